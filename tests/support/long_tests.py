"""Parameters of which `make test` plays the first few, and `make prove` all others."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_is_quick(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Mark all but the first `quick` values as slow; a tuple is one set of parameters."""
    return [
        value
        if number < quick
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
