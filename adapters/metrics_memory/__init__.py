"""Metrics that a test can read, and that a broker without a dashboard can afford."""

from .metrics import MemoryMetrics

__all__ = ["MemoryMetrics"]
