"""Metrics in memory."""

import pytest

from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.testing.contracts.metrics import MetricsContract


class MemoryHarness:
    def __init__(self) -> None:
        self.metrics = MemoryMetrics()
        self.value = self.metrics.value


class TestMemoryMetrics(MetricsContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()

    def test_memory_metrics_can_be_read(self) -> None:
        metrics = MemoryMetrics()
        metrics.histogram("request_bytes", "sizes").observe(12)
        metrics.counter("in_total", "in", topic="a").add()
        assert metrics.observed("request_bytes") == [12]
        assert metrics.names() == {"request_bytes", "in_total"}
        assert metrics.descriptions == {"request_bytes": "sizes", "in_total": "in"}
