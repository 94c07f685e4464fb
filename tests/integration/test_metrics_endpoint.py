"""Observability of a broker: metrics by Kafka's and kafka_exporter's names, its health, the dashboard."""

import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
import yaml
from support.ports import free_port
from support.sasl_connection import SaslConnection
from support.waiting import wait_for

from barnabas import Broker, Consumer, Producer
from barnabas.adapters.metrics_prometheus import endpoint as endpoint_module
from barnabas.adapters.metrics_prometheus.endpoint import AT_ONCE_MAX, MetricsEndpoint
from barnabas.adapters.metrics_prometheus.metrics import PrometheusMetrics
from barnabas.core.security.sasl.plain import PlainClient
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.values import Secret

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A broker that has done a bit of everything, and its page."""
    port = free_port()
    data = tmp_path_factory.mktemp("metrics")
    with Broker(data, metrics_listen=f"127.0.0.1:{port}", log_flush_interval_messages=1) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send_many("orders", [b"x"] * 10, partition=0).result(PATIENCE_S)
        with Consumer(broker.bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            assert len([next(consumer.messages(timeout=PATIENCE_S)) for _ in range(7)]) == 7
            consumer.commit()
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: "kafka_network_requestmetrics_totaltimems" in get(f"{url}/metrics")[1])  # counted now and then
        yield broker, url


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(page: str) -> dict[str, float]:
    return {
        name: float(number)
        for name, number in (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
    }


def test_how_far_groups_are_behind(served: tuple[Broker, str]) -> None:
    found = numbers(get(f"{served[1]}/metrics")[1])
    place = '{consumergroup="billing",partition="0",topic="orders"}'
    assert found[f"kafka_consumergroup_current_offset{place}"] == 7
    assert found[f"kafka_consumergroup_lag{place}"] == 3
    assert found['kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"}'] == 3
    assert found['kafka_consumergroup_members{consumergroup="billing"}'] == 0


def test_times_connections_flushes_and_the_process(served: tuple[Broker, str]) -> None:
    broker, url = served
    with socket.create_connection(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2]))):
        name = f'kafka_server_socketservermetrics_connection_count{{listener="kafka://{broker.bootstrap}"}}'
        wait_for(lambda: numbers(get(url)[1]).get(name, 0) >= 1)
    times = "kafka_network_requestmetrics_totaltimems_count"
    wait_for(lambda: all(f'{times}{{request="{api}"}}' in get(url)[1] for api in ("Produce", "OffsetCommit")))
    found = numbers(get(f"{url}/metrics")[1])
    assert found['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 1
    assert found['kafka_network_requestmetrics_totaltimems_count{request="OffsetCommit"}'] >= 1
    assert found["kafka_log_logflushstats_logflushrateandtimems_count"] >= 1
    assert found["process_resident_memory_bytes"] > 1e6
    assert found["process_open_fds"] > 3


def test_health_and_readiness_endpoints_answer_ok(served: tuple[Broker, str]) -> None:
    _, url = served
    assert get(f"{url}/healthz") == (200, "ok\n")
    assert get(f"{url}/readyz") == (200, "ok\n")
    assert get(f"{url}/nothing")[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/nothing"])
def test_head_is_get_without_the_body(served: tuple[Broker, str], path: str) -> None:
    whole, bare = (exchange(served[1], f"{method} {path} HTTP/1.0\r\n\r\n") for method in ("GET", "HEAD"))
    assert whole[0].startswith("HTTP/1.0 404" if path == "/nothing" else "HTTP/1.0 200")
    assert bare[0] == whole[0]
    assert whole[1]
    assert not bare[1]
    assert {line.partition(":")[0] for line in bare[2]} == {line.partition(":")[0] for line in whole[2]}


def exchange(url: str, request: str) -> tuple[str, bytes, list[str]]:
    """Return the status line, the body and the other lines of the head."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(request.encode())
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    status, *others = head.decode().splitlines()
    return status, body, others


def test_the_log_says_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "barnabas.app.broker"), Broker(storage="memory", metrics_listen="127.0.0.1:0"):
        (observed,) = [text for text in caplog.messages if text.startswith("metrics at ")]
        assert "kafka_server" in get(observed.removeprefix("metrics at ").partition(",")[0])[1]


def test_health_and_readiness_endpoints_report_problems() -> None:
    trouble: list[str] = []
    endpoint = MetricsEndpoint(
        PrometheusMetrics(), ("127.0.0.1", 0), ready=lambda: trouble[0] if trouble else None, healthy=lambda: "stuck"
    )
    url = f"http://127.0.0.1:{endpoint.address[1]}"
    try:
        assert get(f"{url}/readyz") == (200, "ok\n")
        trouble.append("the broker is starting")
        assert get(f"{url}/readyz") == (503, "the broker is starting\n")
        assert get(f"{url}/healthz") == (503, "stuck\n")
    finally:
        endpoint.close()


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint(PrometheusMetrics(), ("127.0.0.1", 0))
    yield endpoint
    endpoint.close()


def accepted(address: tuple[str, int]) -> int:
    found = psutil.Process().net_connections(kind="tcp")
    return sum(each.laddr == address and each.status == psutil.CONN_ESTABLISHED for each in found)


@pytest.mark.parametrize("head", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"], ids=["silent", "half a request"])
def test_half_open_connections_do_not_block_health_endpoint(endpoint: MetricsEndpoint, head: bytes) -> None:
    address = ("127.0.0.1", endpoint.address[1])
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(address, PATIENCE_S / 2)).sendall(head)
        for _ in range(20):
            began_s = time.monotonic()
            assert get(f"http://127.0.0.1:{address[1]}/healthz") == (200, "ok\n")
            assert time.monotonic() - began_s < PATIENCE_S / 2, "it waits for none of them"
        wait_for(lambda: accepted(address) <= AT_ONCE_MAX)


def test_connection_that_sends_bytes_slowly_is_closed(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", endpoint.address[1]), PATIENCE_S) as slow:
        slow.settimeout(0.05)
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            with suppress(TimeoutError):
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
        else:
            pytest.fail("it may send for as long as it likes")


def test_clients_that_do_not_read_do_not_block_health_endpoint() -> None:
    metrics = PrometheusMetrics()
    metrics.render = lambda: b"x" * 50_000_000  # type: ignore[method-assign]
    endpoint = MetricsEndpoint(metrics, ("127.0.0.1", 0))
    address = ("127.0.0.1", endpoint.address[1])
    try:
        with ExitStack() as stack:
            for _ in range(AT_ONCE_MAX + 4):
                stack.enter_context(socket.create_connection(address, PATIENCE_S / 2)).sendall(
                    b"GET /metrics HTTP/1.0\r\n\r\n"
                )
            began_s = time.monotonic()
            assert get(f"http://127.0.0.1:{address[1]}/healthz") == (200, "ok\n")
            assert time.monotonic() - began_s < PATIENCE_S / 2
    finally:
        endpoint.close()


def test_the_dashboard_shows_metrics_that_there_are(served: tuple[Broker, str], checkout: Path) -> None:
    board = json.loads((checkout / "docs" / "grafana.json").read_text(encoding="utf-8"))
    page = get(f"{served[1]}/metrics")[1]
    there = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    there |= {f"{name}_{part}" for name in there for part in ("bucket", "count", "sum")}
    there |= {f"{name}_total" for name in there}
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked += [each["query"] for each in board["templating"]["list"] if "label_values" in str(each["query"])]
    names = {name for expr in asked for name in re.findall(r"\b(?:kafka|process|barnabas)_[a-z_]+", expr)}
    assert len(asked) > 15
    assert names - there == set()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_alerts_watch_metrics_that_the_broker_serves(served: tuple[Broker, str], checkout: Path) -> None:
    groups = yaml.safe_load((checkout / "docs" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    exprs = [rule["expr"] for group in groups for rule in group["rules"]]
    page = get(f"{served[1]}/metrics")[1]
    there = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    there |= {f"{name}_bucket" for name in there}
    names = {name for expr in exprs for name in re.findall(r"\b(?:kafka|process|barnabas)_[a-z_]+", expr)}
    assert len(names) > 12
    assert names - there == set()


def test_logins_of_a_listener_are_counted() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": "LONG://127.0.0.1:0,BRIEF://127.0.0.1:0",
        "listener.security.protocol.map": "LONG:SASL_PLAINTEXT,BRIEF:SASL_PLAINTEXT",
        "inter.broker.listener.name": "LONG",
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "1",
    }
    for name, lifetime_ms in (("long", 3_600_000), ("brief", 100)):
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = f'{module} required user_alice="secret";'
        settings[f"listener.name.{name}.plain.connections.max.reauth.ms"] = str(lifetime_ms)
    port = free_port()
    with Broker(storage="memory", config=settings, metrics_listen=f"127.0.0.1:{port}") as broker:
        long, brief = (listener.partition("://")[2] for listener in broker.listeners)

        def counted(name: str, address: str = long) -> float:
            return numbers(get(f"http://127.0.0.1:{port}/metrics")[1])[
                f'kafka_server_socketservermetrics_{name}{{listener="kafka://{address}"}}'
            ]

        for passwords in (["guess"], ["secret"], ["secret", "secret"], ["secret", "guess"]):
            with SaslConnection(long) as connection:
                for password in passwords:
                    connection.log_in(PlainClient("alice", Secret(password)))
        with SaslConnection(brief) as connection:
            logged_in = connection.log_in(PlainClient("alice", Secret("secret")))
            time.sleep(logged_in.session_lifetime_ms / 1000 + 0.01)
            with pytest.raises(ConnectionError):
                connection.ask(Metadata(topics=None))
        for address, connections in ((long, 4), (brief, 1)):
            wait_for(lambda: counted("connection_close_total", address) == connections)  # noqa: B023
            assert counted("connection_creation_total", address) == connections
        assert counted("successful_authentication_total") == 3
        assert counted("failed_authentication_total") == 1
        assert counted("successful_reauthentication_total") == 1
        assert counted("failed_reauthentication_total") == 1
        assert counted("expired_connections_killed_count") == 0
        assert counted("successful_authentication_total", brief) == 1
        assert counted("expired_connections_killed_count", brief) == 1
