"""A service that is away does not fill the log."""

import logging
from collections.abc import Callable

import pytest
from support.ports import free_port

from barnabas.adapters.coord_etcd import EtcdCoordination
from barnabas.adapters.coord_zookeeper import ZookeeperCoordination
from barnabas.adapters.repeated_failure import INTERVAL_S, RepeatedFailure
from barnabas.ports.coordination import Coordination, CoordinationError
from barnabas.ports.report import Level, Line


def test_repeated_failure_logs_first_failure_then_one_line_per_interval() -> None:
    observed: list[str] = []
    now_s = [100.0]
    failure = RepeatedFailure(observed.append, now_s=lambda: now_s[0])
    failure.succeeded("connected")
    for _ in range(130):
        failure.failed("no answer")
        now_s[0] += 1
    assert observed == ["no answer", "no answer (61 failures in 60 s)", "no answer (121 failures in 120 s)"]
    failure.succeeded("connected")
    assert observed[3:] == ["connected, after 130.0 s and 130 failures"]
    assert isinstance(observed[3], Line)
    assert observed[3].level is Level.INFO
    failure.failed("no answer")
    assert observed[4:] == ["no answer"]


def test_repeated_failure_logs_configured_number_of_first_failures() -> None:
    observed: list[str] = []
    now_s = [0.0]
    failure = RepeatedFailure(observed.append, first=3, now_s=lambda: now_s[0])
    for _ in range(10):
        failure.failed("it ended")
    assert observed == ["it ended"] * 3
    now_s[0] = INTERVAL_S
    failure.failed("it ended")
    assert observed[3:] == ["it ended (11 failures in 60 s)"]


@pytest.mark.parametrize(
    ("scheme", "connect"), [("zookeeper", ZookeeperCoordination), ("etcd", EtcdCoordination)], ids=["zookeeper", "etcd"]
)
def test_a_service_that_is_away_is_one_warning_with_its_address(
    scheme: str, connect: Callable[..., Coordination], caplog: pytest.LogCaptureFixture
) -> None:
    observed: list[str] = []
    place = f"127.0.0.1:{free_port()}"
    with caplog.at_level(logging.INFO), pytest.raises(CoordinationError):
        connect(f"{scheme}://{place}", connect_timeout_ms=2000, report=observed.append)
    assert len(observed) == 1
    assert place in observed[0]
    assert observed[0].endswith("it is tried again")
    assert not [record for record in caplog.records if record.name.startswith("barnabas")]
