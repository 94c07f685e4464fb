"""The coordination tree in an SQLite file, for one broker."""

from .coordination import EmbeddedCoordination

__all__ = ["EmbeddedCoordination"]
