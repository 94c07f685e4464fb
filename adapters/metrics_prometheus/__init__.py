"""Metrics for Prometheus."""

from .metrics import PrometheusMetrics

__all__ = ["PrometheusMetrics"]
