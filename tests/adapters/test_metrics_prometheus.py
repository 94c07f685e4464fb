"""Metrics for Prometheus."""

import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import PATIENCE_S

from barnabas.adapters.metrics_prometheus.metrics import PrometheusMetrics, merge_metrics
from barnabas.testing.contracts.metrics import MetricsContract


class PrometheusHarness:
    def __init__(self) -> None:
        self.metrics = PrometheusMetrics()

    def value(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                if sample.name in (name, f"{name}_count") and sample.labels == labels:
                    return float(sample.value)
        return None


class TestPrometheusMetrics(MetricsContract):
    @pytest.fixture
    def harness(self) -> PrometheusHarness:
        return PrometheusHarness()


def test_render_gives_prometheus_text_format() -> None:
    metrics = PrometheusMetrics()
    metrics.counter("kafka_server_messages_in_total", "Messages in.", topic="a").add(3)
    metrics.gauge("kafka_brokers", "Brokers.", lambda: 1)
    histogram = metrics.histogram("request_seconds", "Durations.")
    histogram.observe(0.001)
    histogram.observe(0.3)
    histogram.observe(60)
    lines = metrics.render().decode().splitlines()
    assert "# TYPE kafka_server_messages_in_total counter" in lines
    assert 'kafka_server_messages_in_total{topic="a"} 3.0' in lines
    assert "# HELP kafka_brokers Brokers." in lines
    assert "kafka_brokers 1.0" in lines
    assert 'request_seconds_bucket{le="0.0005"} 0.0' in lines
    assert 'request_seconds_bucket{le="0.001"} 1.0' in lines
    assert 'request_seconds_bucket{le="0.5"} 2.0' in lines
    assert 'request_seconds_bucket{le="+Inf"} 3.0' in lines
    assert "request_seconds_count 3.0" in lines


@pytest.mark.parametrize(
    ("name", "largest"), [("a_seconds", "10.0"), ("a_ms", "10000.0"), ("a_bytes", "6.7108864e+07")]
)
def test_the_unit_chooses_the_buckets(name: str, largest: str) -> None:
    metrics = PrometheusMetrics()
    metrics.histogram(name, "x").observe(1)
    page = metrics.render().decode()
    assert any(float(bound.split('"')[1]) == float(largest) for bound in page.splitlines() if f"{name}_bucket" in bound)


def test_a_gauge_that_raises_hides_nothing_and_is_reported_once() -> None:
    reports: list[str] = []
    metrics = PrometheusMetrics(report=reports.append)
    metrics.gauge("bad", "raises", lambda: 1 / 0)
    metrics.gauge("good", "does not", lambda: 2)
    for _ in range(2):
        page = metrics.render().decode()
        assert "good 2.0" in page
        assert "bad NaN" in page
    assert len(reports) == 1 and "bad" in reports[0]


def test_metrics_join_registry_of_process() -> None:
    registry = CollectorRegistry()
    Counter("own", "of the process", registry=registry).inc()
    metrics = PrometheusMetrics(registry)
    metrics.counter("ours_total", "of the broker").add()
    page = metrics.render().decode()
    assert "own_total 1.0" in page
    assert "ours_total 1.0" in page


def test_the_library_is_not_loaded_before_a_page_is_asked_for() -> None:
    code = (
        "import sys; from barnabas.adapters.metrics_prometheus.metrics import PrometheusMetrics as M; m = M();"
        "m.counter('a_total', 'a').add(); assert 'prometheus_client' not in sys.modules; m.render();"
        "assert 'prometheus_client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


def test_merged_metrics_have_each_family_once_and_the_label_of_their_text() -> None:
    texts = {}
    for number, topics in (("1", ("a", "b")), ("2", ("b",))):
        metrics = PrometheusMetrics()
        metrics.counter("requests_total", "How many.").add(int(number))
        for topic in topics:
            metrics.histogram("took", "Milliseconds.", topic=topic).observe(3)
        texts[number] = metrics.render()
    texts["3"] = b"# HELP odd Odd.\n# TYPE odd gauge\nodd{} 1.0\n"
    merged = merge_metrics({"0": b"", **texts}, "worker").decode()
    families = [family.name for family in text_string_to_metric_families(merged)]
    assert len(set(families)) == len(families)
    for line in ("# HELP requests_total How many.", "# TYPE took histogram", "# HELP odd Odd."):
        assert merged.splitlines().count(line) == 1, line
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(merged)
        for sample in family.samples
    }
    assert samples["requests_total", ("worker", "1")] == 1
    assert samples["requests_total", ("worker", "2")] == 2
    assert samples["took_count", ("topic", "b"), ("worker", "2")] == 1
    assert samples["odd", ("worker", "3")] == 1
    assert merge_metrics({}, "worker") == b""
