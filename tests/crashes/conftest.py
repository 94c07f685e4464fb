"""Folders in memory, where the machine has such: thousands are made and removed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crashes.quick_folder import quick_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made
