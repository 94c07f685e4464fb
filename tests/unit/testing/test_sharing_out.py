"""What the workers of pytest-xdist are handed."""

from pathlib import Path

import pytest
from support.sharing_out import LONGEST_FIRST, part_of


@pytest.mark.parametrize(
    ("nodeid", "part"),
    [
        ("tests/unit/test_a.py::TestA::test_b[c-1]", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::test_b[c@d]", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::test_b[c@d]@etcd", "etcd"),
        ("tests/unit/test_a.py::test_b@spark", "spark"),
    ],
)
def test_a_part_is_a_group_or_a_file(nodeid: str, part: str) -> None:
    assert part_of(nodeid) == part


def test_files_that_take_long_are_there(checkout: Path) -> None:
    assert all((checkout / name).exists() for name in LONGEST_FIRST if name.endswith(".py"))
