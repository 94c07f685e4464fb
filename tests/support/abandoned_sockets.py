"""Client libraries that leave sockets to the garbage collector."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def abandoned_sockets() -> Iterator[None]:
    """Collect the sockets within the test that opened them. A module of tests imports this."""
    yield
    gc.collect()
