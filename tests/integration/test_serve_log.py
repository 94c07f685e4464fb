"""The log of `barnabas serve`: on standard error, as text or JSON, from the requested level."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from support.process import BrokerProcess, barnabas, broker_process
from support.raw import RawConnection, frame
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError


def lines_of(broker: BrokerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in broker.log().splitlines()]


def test_a_day_of_a_broker_in_json(tmp_path: Path) -> None:
    settings = ["logging.format=json", "group.initial.rebalance.delay.ms=0", "slow.request.threshold.ms=-1"]
    with broker_process(tmp_path / "data", *settings) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=2)
            with Producer(broker.bootstrap) as producer:
                producer.send("orders", b"one")
            for group_id, protocol in (("readers", "classic"), ("watchers", "consumer")):
                with Consumer(
                    broker.bootstrap, group_id=group_id, group_protocol=protocol, auto_offset_reset="earliest"
                ) as consumer:
                    consumer.subscribe(["orders"])
                    wait_for(lambda: bool(consumer.poll(0.2)))  # called at once
            admin.alter_topic_configs("orders", {"retention.ms": "60000"})
            admin.delete_topics(["orders"])
        assert broker.stop() == 0
        lines = lines_of(broker)
        assert broker.ready_line.startswith("barnabas ready kafka://")
    assert {line["level"] for line in lines} == {"INFO"}
    assert all(line["time"].endswith("Z") for line in lines)
    observed = {line["message"]: line for line in lines}

    def one(start: str) -> dict[str, Any]:
        (found,) = [line for text, line in observed.items() if text.startswith(start)]
        return found

    assert one("broker 1 starts: ")["logger"] == "barnabas.app.broker"
    assert str(tmp_path / "data") in one("broker 1 starts: ")["message"]
    assert broker.bootstrap in one("broker 1 of cluster ")["message"]
    assert one("created topic orders: 2 partitions")["topic"] == "orders"
    assert one("group readers: generation 1")["logger"] == "barnabas.core.coordinator"
    assert "left (" in one("group readers: generation 2 has no members")["message"]
    assert one("consumer group watchers: target assignment of epoch 2 for 1 member")["logger"] == (
        "barnabas.core.coordinator"
    )
    assert one("configuration of topic orders: retention.ms=60000")
    assert one("deleted topic orders")
    assert [one("broker 1 stops"), one("broker 1 has stopped")] == lines[-2:]


@pytest.mark.slow
def test_levels_and_form_on_the_command_line(tmp_path: Path) -> None:
    for level, message in (
        ("loud", "'loud' is invalid; expected one of debug"),
        ("barnabas.core=", "is invalid; expected one of debug"),
    ):
        wrong = barnabas("serve", "--data", tmp_path / "data", "--log-level", level, expect=2)
        assert message in wrong.stderr.decode()
    wrong = barnabas("serve", "--data", tmp_path / "data", "--log-format", "xml", expect=2)
    assert "one of text, json" in wrong.stderr.decode()
    with broker_process(tmp_path / "quiet", "logging.level=error,barnabas.core.cluster=info") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t")
        broker.stop()
        levels, line = broker.log().splitlines()
    assert " INFO barnabas.core.cluster: finalized levels of features: " in levels
    assert line.endswith(" INFO barnabas.core.cluster: created topic t: 1 partition, replication factor 1")


def test_slow_requests_and_each_one_on_debug(tmp_path: Path) -> None:
    settings = ["slow.request.threshold.ms=0", "logging.level=info,barnabas.requests=debug", "logging.format=json"]
    with broker_process(tmp_path / "data", *settings) as broker:
        with Admin(broker.bootstrap, client_id="an admin") as admin:
            admin.create_topic("t")
        broker.stop()
        lines = [line for line in lines_of(broker) if line["logger"] == "barnabas.requests"]
    made = [line for line in lines if line.get("api") == "CreateTopics"]
    assert {line["level"] for line in made} == {"DEBUG", "WARNING"}
    (observed,) = [line for line in made if line["level"] == "DEBUG"]
    assert (observed["client_id"], observed["host"], observed["api_version"]) == ("an admin", "127.0.0.1", 7)
    assert observed["bytes"] > 20
    assert 0 < observed["took_ms"] < 60_000
    assert observed["message"].startswith("CreateTopics v7 from an admin at 127.0.0.1 on kafka://")


def test_connections_that_wait_for_a_place_are_reported_and_served_later(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", "max.connections=1") as broker:
        with RawConnection(broker.bootstrap) as first, RawConnection(broker.bootstrap) as second:
            first.exchange(frame(18, 0, b""))
            second.send(frame(18, 0, b""))
            wait_for(lambda: "new connections wait" in broker.log())
            first.socket.close()
            assert second.answer()
        assert "raise it if they are wanted" in broker.log()


def test_connections_that_are_refused_are_closed_at_once(tmp_path: Path) -> None:
    limit = "max.connections.per.ip=1"
    with broker_process(tmp_path / "data", limit) as broker, RawConnection(broker.bootstrap) as first:
        first.exchange(frame(18, 0, b""))
        for _ in range(30):
            with RawConnection(broker.bootstrap) as refused:
                assert refused.closed_by_broker()


def test_malformed_requests_are_logged_as_a_sum(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as broker:
        for _ in range(50):
            with RawConnection(broker.bootstrap) as connection:
                connection.send(frame(999, 0, b""))
                assert connection.closed_by_broker()
        broker.stop()
        lines = [line for line in broker.log().splitlines() if "WARNING" in line]
    assert len([line for line in lines if "API key 999" in line]) == 20
    assert lines[20:] == [lines[20]]
    assert "30 more such lines were left out" in lines[20]


@pytest.mark.slow
def test_no_client_learns_where_the_data_lies(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data) as broker:
        (data / "blocked-0").write_bytes(b"a file where a folder must be")
        with Admin(broker.bootstrap) as admin, pytest.raises(ApiError) as error:
            admin.create_topic("blocked")
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert str(tmp_path) not in str(error.value)
        assert "see the broker's log" in str(error.value)
        assert str(data / "blocked-0") in broker.log()


@pytest.mark.slow
def test_data_folders_have_configured_permissions(tmp_path: Path) -> None:
    for mode, settings in ((0o700, []), (0o750, ["log.dir.mode=0750"])):
        data = tmp_path / f"of-{mode:o}" / "data"
        data.parent.mkdir()
        with broker_process(data, *settings) as broker:
            with Admin(broker.bootstrap) as admin:
                admin.create_topic("t")
            broker.stop()
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in (data, data / "t-0")] == [mode, mode]
