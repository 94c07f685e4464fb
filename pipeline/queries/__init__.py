"""Ad-hoc queries over topics and tables: `query` answers one SELECT with an Arrow table."""

from .run import query

__all__ = ["query"]
