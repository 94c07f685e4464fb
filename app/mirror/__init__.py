"""Copying topics from clusters into another one, of either generation (facts A9)."""

from .maker import MirrorMaker

__all__ = ["MirrorMaker"]
