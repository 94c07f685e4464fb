"""A change of the files alone."""

from collections.abc import Iterable, Sequence

import attrs

from ..state import Commit, TableChange


def change_files(
    last: Commit, operation: str, *, files: Sequence[str], removed: Iterable[str], replaced_rows: int = 0
) -> TableChange:
    """Everything else that the table says of itself is as it was."""
    carried = {field.name: getattr(last, field.name) for field in attrs.fields(TableChange)}
    done = {"operation": operation, "ranges": (), "rows": 0, "replaced_rows": replaced_rows, "lost": ()}
    return TableChange(**{**carried, **done, "files": files, "removed": list(removed)})
