"""Long tests, which `make test` does in part and `make prove` in full: parameters, examples of Hypothesis."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

MOST_QUICK_EXAMPLES = 10


def first_is_quick(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Mark all but the first `quick` values as slow; a tuple is one set of parameters."""
    return [
        value
        if number < quick
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def examples(count: int) -> int:
    """Return `count` in the profile `prove` of `make prove`, and no more than `MOST_QUICK_EXAMPLES` in `make test`."""
    return count if settings.get_current_profile_name() == "prove" else min(count, MOST_QUICK_EXAMPLES)
