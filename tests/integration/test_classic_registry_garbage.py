"""Clients among registry nodes that other programs wrote, and names and expressions that cannot be used."""

import logging
from collections.abc import Iterator

import pytest
from support.waiting import wait_for

from barnabas.app.clients.classic.consumer_connector import ConsumerConnector
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.classic.streams import MessageStream
from barnabas.app.compose.coordination import client_coordination
from barnabas.app.embedded_broker import Broker
from barnabas.core.classic.consumer.settings import ConsumerRebalanceFailed
from barnabas.ports.coordination import Coordination, NoNode
from barnabas.ports.errors import ClosedError, ConfigError

VALUES = [b"value %d" % number for number in range(20)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(
        storage="memory",
        listeners=["classic://127.0.0.1:0"],
        config={"num.partitions": 2, "log.flush.interval.messages": 1},
    ) as running:
        yield running


@pytest.fixture
def session(broker: Broker) -> Iterator[Coordination]:
    """Yield a session of another client of the registries."""
    session = client_coordination(broker)
    yield session
    session.close()


def _connector(broker: Broker, **settings: object) -> ConsumerConnector:
    config = {"groupid": "g", "fetcher.backoff.ms": 10, "rebalance.backoff.ms": 20, "consumer.timeout.ms": 120_000}
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return ConsumerConnector(coordination=broker, config={**config, **given})


def _produce(broker: Broker, topic: str = "events") -> None:
    with ClassicProducer(coordination=broker) as producer:
        for value in VALUES:
            producer.send(topic, value)


def _take(stream: MessageStream, count: int = len(VALUES)) -> list[bytes]:
    return sorted(next(stream).value for _ in range(count))


def _own_place(session: Coordination) -> str:
    return f"{session.children('/brokers/ids')[0]}-0"


def _is_registered(session: Coordination, topic: str) -> bool:
    try:
        return bool(session.children(f"/brokers/topics/{topic}"))
    except NoNode:
        return False


def _warned(caplog: pytest.LogCaptureFixture, path: str) -> bool:
    return any(path in record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


def test_garbage_is_skipped_with_a_warning_that_names_its_path(
    broker: Broker, session: Coordination, caplog: pytest.LogCaptureFixture
) -> None:
    own = _own_place(session)
    garbage = {
        "/brokers/ids/700": b"no broker",
        "/brokers/ids/first": b"host-1:host:1",
        "/brokers/topics/events/700": b"many",
        "/brokers/topics/events/first": b"1",
        "/consumers/g/ids/bytes": b"\xff\xfe",
        "/consumers/g/ids/expression": b"*1*(",
        "/consumers/g/ids/number": b'{ "events": -1 }',
        f"/consumers/g/offsets/events/{own}": b"minus one",
    }
    for path, data in garbage.items():
        session.create(path, data)
    # Valid nodes, but of clients that are not alive.
    session.create("/brokers/topics/events/701", b"3")
    session.create("/consumers/g/owners/events/nonsense", b"?")
    _produce(broker)
    with _connector(broker) as connector:
        (stream,) = connector.create_message_streams_by_filter(whitelist="ev.*")
        assert _take(stream) == sorted(VALUES)
        assert {place.broker_id for _, place in connector.owned()} == {int(own.split("-")[0])}
        connector.commit_offsets()
    assert [path for path in garbage if not _warned(caplog, path)] == []
    assert int(session.get(f"/consumers/g/offsets/events/{own}").data) >= 0


def test_garbage_that_comes_later_does_not_disturb(
    broker: Broker, session: Coordination, caplog: pytest.LogCaptureFixture
) -> None:
    _produce(broker)
    with _connector(broker) as connector:
        (stream,) = connector.create_message_streams({"events": 1})["events"]
        assert _take(stream) == sorted(VALUES)
        for path in ("/brokers/ids/700", "/brokers/topics/events/700", "/consumers/g/ids/mad"):
            session.create(path, b"\x00")
        wait_for(lambda: _warned(caplog, "/consumers/g/ids/mad"))
        session.delete("/consumers/g/ids/mad")
        _produce(broker)
        assert _take(stream) == sorted(VALUES)


def test_a_foreign_owner_is_named_and_the_group_left_to_others(broker: Broker, session: Coordination) -> None:
    _produce(broker)
    wait_for(lambda: _is_registered(session, "events"))  # produce of 0.7 has no acknowledgement
    path = f"/consumers/g/owners/events/{_own_place(session)}"
    session.create(path, b"somebody-0")
    with _connector(broker, rebalance_retries_max=2) as connector:
        with pytest.raises(ConsumerRebalanceFailed, match=f"{path} is owned by 'somebody-0'"):
            connector.create_message_streams({"events": 1})
        assert session.children("/consumers/g/ids") == []
        with pytest.raises(ClosedError):
            connector.create_message_streams({"events": 1})
    session.delete(path)
    with _connector(broker) as connector:
        (stream,) = connector.create_message_streams({"events": 1})["events"]
        assert _take(stream) == sorted(VALUES)


@pytest.mark.parametrize("name", ["a/b", "..", "a\n"])
def test_a_group_id_or_consumer_id_that_is_no_name_is_refused(broker: Broker, session: Coordination, name: str) -> None:
    for setting in ("groupid", "consumerid"):
        with pytest.raises(ConfigError, match=setting):
            _connector(broker, **{setting: name})
    with pytest.raises(NoNode):
        session.children("/consumers")


def test_an_expression_that_does_not_compile_is_named_and_another_may_follow(broker: Broker) -> None:
    _produce(broker)
    with _connector(broker) as connector:
        for bad in ("ev(.*", "[a&&b]", "e{1,2}"):
            with pytest.raises(ConfigError, match="topic filter"):
                connector.create_message_streams_by_filter(whitelist=bad)
            with pytest.raises(ConfigError, match="topic filter"):
                connector.create_message_streams_by_filter(blacklist=bad)
        with pytest.raises(ConfigError, match="'a/b'"):
            connector.create_message_streams({"a/b": 1})
        (stream,) = connector.create_message_streams_by_filter(whitelist="'events'")
        assert _take(stream) == sorted(VALUES)
