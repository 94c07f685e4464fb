"""Ad-hoc queries over topics and tables: `query` answers one SELECT with an Arrow table.

It is loaded on first use, so that the command can say which extra is missing.
"""

from typing import TYPE_CHECKING

from ...app.extras import require
from .scope import QUERY_PACKAGES

if TYPE_CHECKING:
    from .run import query

__all__ = ["query"]


def __getattr__(name: str) -> object:
    if name != "query":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("a query", QUERY_PACKAGES, "query")
    from .run import query

    globals()[name] = query
    return query
