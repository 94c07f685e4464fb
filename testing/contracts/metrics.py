"""Contract suite for metrics adapters."""

import threading
from typing import Protocol

import pytest

from ...ports.metrics import Metrics


class MetricsHarness(Protocol):
    """Metrics under test, and how to read them."""

    metrics: Metrics

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a counter or gauge, the count of a histogram; None when there is none."""
        ...


class MetricsContract:
    """Inherit, and give a fixture `harness`."""

    def test_a_counter_adds_up(self, harness: MetricsHarness) -> None:
        counter = harness.metrics.counter("kafka_server_messages_in_total", "messages", topic="a")
        counter.add()
        counter.add(2.5)
        assert harness.value("kafka_server_messages_in_total", topic="a") == 3.5

    def test_a_counter_starts_at_zero(self, harness: MetricsHarness) -> None:
        harness.metrics.counter("things_total", "things")
        assert harness.value("things_total") == 0.0

    def test_the_same_name_and_labels_give_the_same_counter(self, harness: MetricsHarness) -> None:
        harness.metrics.counter("things_total", "things", topic="a", partition="0").add()
        harness.metrics.counter("things_total", "things", partition="0", topic="a").add()
        harness.metrics.counter("things_total", "things", topic="b", partition="0").add()
        assert harness.value("things_total", topic="a", partition="0") == 2.0
        assert harness.value("things_total", topic="b", partition="0") == 1.0

    def test_a_counter_does_not_shrink(self, harness: MetricsHarness) -> None:
        counter = harness.metrics.counter("things_total", "things")
        with pytest.raises(ValueError):
            counter.add(-1)

    def test_a_counter_is_named_as_one(self, harness: MetricsHarness) -> None:
        with pytest.raises(ValueError, match="_total"):
            harness.metrics.counter("things", "things")

    def test_a_histogram_counts(self, harness: MetricsHarness) -> None:
        histogram = harness.metrics.histogram("request_seconds", "durations", api="Fetch")
        for value in (0.001, 0.2, 99.0):
            histogram.observe(value)
        assert harness.value("request_seconds", api="Fetch") == 3.0

    def test_what_comes_and_goes_is_found_when_collected(self, harness: MetricsHarness) -> None:
        lags = {("g", "0"): 3.0}
        harness.metrics.gauges("lag", "behind", ("group", "partition"), lambda: list(lags.items()))
        assert harness.value("lag", group="g", partition="0") == 3.0
        lags[("h", "1")] = 4.0
        del lags[("g", "0")]
        assert harness.value("lag", group="h", partition="1") == 4.0
        assert harness.value("lag", group="g", partition="0") is None
        harness.metrics.forget(group="h")
        assert harness.value("lag", group="h", partition="1") == 4.0, "it exists as long as it is read"
        with pytest.raises(ValueError):
            harness.metrics.gauges("lag", "behind", ("topic",), list)
        with pytest.raises(ValueError):
            harness.metrics.gauge("lag", "behind", lambda: 1.0)

    def test_a_gauge_is_read_when_collected(self, harness: MetricsHarness) -> None:
        values = [1.0]
        harness.metrics.gauge("connections", "open", lambda: values[0], listener="x")
        values[0] = 7.0
        assert harness.value("connections", listener="x") == 7.0

    def test_a_gauge_can_be_replaced(self, harness: MetricsHarness) -> None:
        harness.metrics.gauge("connections", "open", lambda: 1.0)
        harness.metrics.gauge("connections", "open", lambda: 2.0)
        assert harness.value("connections") == 2.0

    def test_other_label_names_are_refused(self, harness: MetricsHarness) -> None:
        harness.metrics.counter("things_total", "things", topic="a")
        with pytest.raises(ValueError, match="things_total"):
            harness.metrics.counter("things_total", "things", group="a")

    def test_another_kind_is_refused(self, harness: MetricsHarness) -> None:
        harness.metrics.gauge("things_total", "things", lambda: 1.0)
        with pytest.raises(ValueError, match="things_total"):
            harness.metrics.counter("things_total", "things")

    def test_forgetting_drops_what_carries_all_the_labels(self, harness: MetricsHarness) -> None:
        for topic in ("a", "b"):
            for partition in ("0", "1"):
                harness.metrics.counter("in_total", "in", topic=topic, partition=partition).add()
            harness.metrics.gauge("size_bytes", "size", lambda: 5.0, topic=topic)
        harness.metrics.counter("all_total", "no labels").add()
        harness.metrics.forget(topic="a", partition="0")
        assert harness.value("in_total", topic="a", partition="0") is None
        assert harness.value("in_total", topic="a", partition="1") == 1.0
        assert harness.value("size_bytes", topic="a") == 5.0
        harness.metrics.forget(topic="a")
        assert harness.value("in_total", topic="a", partition="1") is None
        assert harness.value("size_bytes", topic="a") is None
        assert harness.value("in_total", topic="b", partition="0") == 1.0
        assert harness.value("all_total") == 1.0

    def test_a_forgotten_counter_starts_again(self, harness: MetricsHarness) -> None:
        old = harness.metrics.counter("in_total", "in", topic="a")
        old.add(5)
        harness.metrics.forget(topic="a")
        old.add(5)
        harness.metrics.counter("in_total", "in", topic="a").add()
        assert harness.value("in_total", topic="a") == 1.0

    def test_threads_lose_no_count(self, harness: MetricsHarness) -> None:
        def work() -> None:
            for _ in range(2000):
                harness.metrics.counter("in_total", "in", topic="a").add()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert harness.value("in_total", topic="a") == 8000.0
