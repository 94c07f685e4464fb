"""Arguments of the wrong type are errors at the call, and the client's thread works on as before."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from support.long_tests import first_is_quick
from support.waiting import PATIENCE_S

from barnabas import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Broker,
    Consumer,
    ConsumerConnector,
    Message,
    Producer,
    SimpleConsumer,
)
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.ports.errors import BarnabasError

TOPIC, CLASSIC = "checked", "checked-classic"
WRONG: list[Any] = [
    *(5, -1, 2**70, 5.5, True, b"bytes", "text", "\ud800", "", object(), lambda: 5),
    *([5], ["\ud800"], [(TOPIC, "0")], (TOPIC, "0"), (TOPIC, -1), (TOPIC, 2**40), (5, 5), [None], [[]]),
    *({TOPIC: "0"}, {(TOPIC, "0"): 1}, {(TOPIC, 0): "x"}, {(TOPIC, 0): 2**70}, {5: 5}, {"text": object()}),
    *(Message(value="text"), Message(b"x", headers=[("a", "b")]), Message(b"x", timestamp_ms="now")),  # type: ignore[call-overload]
    Message(b"x", topic=TOPIC, partition="0", offset=1),  # type: ignore[call-overload]
]
RIGHT: dict[str, Any] = {
    "topic": TOPIC,
    "name": TOPIC,
    "names": [TOPIC],
    "value": b"x",
    "values": [b"x"],
    "what": TOPIC,
    "place": (TOPIC, 0),
    "position": 0,
    "offsets": {(TOPIC, 0): 0},
    "group": "g",
    "times": {(TOPIC, 0): 0},
    "timestamp_ms": 0,
    "ends": {(TOPIC, 0): 0},
    "timeout": 0.02,
    "max_wait_ms": 10,
}
TIMES = {"timeout", "max_wait_ms"}
"""A large number is no wrong one here, and would be waited for."""
APART = {
    "close",
    "prepare_transaction",
    "resume_transaction",
    "transaction",
    "send_arrow",
    "fetch_arrow",
}
APART |= {"read_arrow"}
QUICK: dict[str, Any] = {"default_api_timeout_ms": 1000}


def methods_of(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_") and name not in APART]


def calls_of(method: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    """Yield calls of the method with each argument wrong in turn, the others right or left out."""
    parameters = inspect.signature(method).parameters.values()
    for bad in parameters:
        if bad.kind is bad.VAR_KEYWORD:
            continue
        for wrong in WRONG:
            if bad.name in TIMES and isinstance(wrong, int | float):
                continue
            given: list[Any] = []
            named: dict[str, Any] = {}
            for each in parameters:
                content = wrong if each is bad else RIGHT.get(each.name, each.default)
                if content is each.default and each is not bad:
                    if content is each.empty and each.kind is not each.VAR_POSITIONAL:
                        content = "text"
                    else:
                        continue
                if each.kind is each.KEYWORD_ONLY or len(given) < list(parameters).index(each):
                    named[each.name] = content
                else:
                    given.append(content)
            yield lambda given=given, named=named: method(*given, **named)  # type: ignore[misc]


def call_all(client: object, name: str) -> None:
    """No call may hang, and none may end with anything but an exception of the call or a result."""
    for call in calls_of(getattr(client, name)):
        try:
            found = call()
            if isinstance(found, Iterator):
                list(islice(found, 1))
        except Exception:  # noqa: BLE001, S112  # which one is for other tests to say
            continue


async def await_all(client: object, name: str) -> None:
    for call in calls_of(getattr(client, name)):
        try:
            found = call()
            if inspect.isawaitable(found):
                await found
            elif isinstance(found, AsyncIterator):
                async for _ in found:
                    break
        except Exception:  # noqa: BLE001, S112  # as above
            continue


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    listeners = ["kafka://127.0.0.1:0", "classic://127.0.0.1:0"]
    # Classic consumers read what has been flushed: without this key, up to three seconds later.
    flushed: dict[str, Any] = {"log_flush_interval_messages": 1, "group_initial_rebalance_delay_ms": 0}
    with Broker(storage="memory", listeners=listeners, num_partitions=1, **flushed) as running:
        with Producer(running) as producer, Admin(running) as admin:
            # One for each call that takes a message, so that none waits for messages of other tests.
            for sent in [producer.send(TOPIC, b"first") for _ in range(2 * len(WRONG))]:
                sent.result(PATIENCE_S)
            admin.create_topic(CLASSIC, partitions=1, configs={"message.format": "classic"})
        with Producer(classic_of(running)) as classic:
            classic.send(CLASSIC, b"first")
            classic.confirm(PATIENCE_S)
        yield running


def classic_of(broker: Broker) -> str:
    return next(each for each in broker.listeners if each.startswith("classic://"))


@pytest.fixture(scope="module")
def changed_broker() -> Iterator[Broker]:
    """Some calls of an admin succeed: topics come and go."""
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0, num_partitions=1) as running:
        yield running


@pytest.fixture(params=first_is_quick(["in process", "over TCP"]))
def bootstrap(request: pytest.FixtureRequest, broker: Broker) -> Any:
    return broker.bootstrap if request.param == "over TCP" else broker


@pytest.fixture(autouse=True)
def unharmed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception has reached a client's reactor."""
    yield
    lines = [each.getMessage() for each in caplog.records if each.name == "barnabas.client"]
    assert not [line for line in lines if "raised" in line or "closing the connection" in line]


@pytest.mark.parametrize("name", methods_of(Producer))
def test_producer_works_on(bootstrap: Any, name: str) -> None:
    producer = Producer(bootstrap, max_block_ms=3000, delivery_timeout_ms=3000, **QUICK)
    call_all(producer, name)
    assert producer.send(TOPIC, b"good").result(PATIENCE_S).topic == TOPIC
    producer.close()


@pytest.mark.parametrize("name", methods_of(Consumer))
def test_consumer_works_on(bootstrap: Any, name: str) -> None:
    with Consumer(bootstrap, group_id="g", enable_auto_commit=False, consumer_timeout_ms=0, **QUICK) as consumer:
        consumer.assign(TOPIC, position="earliest")
        call_all(consumer, name)
        consumer.unsubscribe()
        consumer.assign(TOPIC, position="earliest")
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value == b"first"


@pytest.mark.parametrize("tcp", first_is_quick([False, True]), ids=["in process", "over TCP"])
@pytest.mark.parametrize("name", methods_of(Admin))
def test_admin_works_on(changed_broker: Broker, name: str, tcp: bool) -> None:
    with Admin(changed_broker.bootstrap if tcp else changed_broker, **QUICK) as admin:
        call_all(admin, name)
        assert isinstance(admin.list_topics(), list)


@pytest.mark.parametrize("name", methods_of(SimpleConsumer))
def test_simple_consumer_works_on(bootstrap: Any, name: str) -> None:
    with SimpleConsumer(bootstrap, **QUICK) as consumer:
        call_all(consumer, name)
        assert next(iter(consumer.fetch(TOPIC, 0, 0))).value == b"first"


@pytest.mark.parametrize("name", methods_of(AsyncProducer))
def test_asyncio_producer_works_on(bootstrap: Any, name: str) -> None:
    async def use() -> None:
        producer = AsyncProducer(bootstrap, max_block_ms=3000, delivery_timeout_ms=3000, **QUICK)
        await await_all(producer, name)
        assert (await producer.send_and_wait(TOPIC, b"good")).topic == TOPIC
        await producer.close()

    asyncio.run(use())


@pytest.mark.parametrize("name", methods_of(AsyncConsumer))
def test_asyncio_consumer_works_on(bootstrap: Any, name: str) -> None:
    async def use() -> None:
        async with AsyncConsumer(bootstrap, group_id="g", enable_auto_commit=False, **QUICK) as consumer:
            await consumer.assign(TOPIC, position="earliest")
            await await_all(consumer, name)
            await consumer.unsubscribe()
            await consumer.assign(TOPIC, position="earliest")
            message = await consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.value == b"first"

    asyncio.run(use())


@pytest.mark.parametrize("name", methods_of(ClassicProducer))
def test_classic_producer_works_on(broker: Broker, name: str) -> None:
    producer = Producer(classic_of(broker))
    call_all(producer, name)
    for attempt in range(10):
        try:
            producer.send(CLASSIC, b"good")
            producer.confirm(PATIENCE_S)
            break
        except BarnabasError:  # the wire's only answer to a partition that is not there is to hang up
            assert attempt < 9
    producer.close()


@pytest.mark.parametrize("name", methods_of(ClassicSimpleConsumer))
def test_classic_simple_consumer_works_on(broker: Broker, name: str) -> None:
    with SimpleConsumer(classic_of(broker)) as consumer:
        call_all(consumer, name)
        assert next(iter(consumer.fetch(CLASSIC, 0, 0))).value == b"first"


@pytest.mark.parametrize("name", methods_of(ConsumerConnector))
def test_consumer_connector_works_on(broker: Broker, name: str) -> None:
    """It takes one subscription: one that was refused leaves it as it was."""
    settings: dict[str, Any] = {"groupid": name, "autooffset_reset": "smallest", "consumer_timeout_ms": 60_000}
    with ConsumerConnector(coordination=broker, **settings) as connector:
        if name not in ("create_message_streams_by_filter", "shutdown"):
            call_all(connector, name)
        (stream,) = connector.create_message_streams({CLASSIC: 1})[CLASSIC]
        assert next(iter(stream)).value == b"first"
        if name not in ("create_message_streams", "create_message_streams_by_filter", "shutdown"):
            call_all(connector, name)
            connector.commit_offsets()


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"topic": b"t"}, TypeError, "topic: expected str, got bytes"),
        ({"topic": ""}, ValueError, "topic: the name is empty"),
        ({"topic": "\ud800"}, ValueError, "surrogates not allowed"),
        ({"topic": "t", "value": {"a": 1}}, TypeError, "expected bytes, got dict"),
        ({"topic": "t", "key": 5}, TypeError, "expected bytes, got int"),
        ({"topic": "t", "partition": "0"}, TypeError, "partition '0': expected a number"),
        ({"topic": "t", "headers": [("a", "b")]}, TypeError, "header 'a': expected a str and bytes"),
        ({"topic": "t", "headers": 5}, TypeError, "not iterable"),
        ({"topic": "t", "timestamp_ms": "now"}, TypeError, "timestamp_ms 'now'"),
        ({"topic": "t", "timestamp_ms": -1}, ValueError, "timestamp_ms -1"),
        ({"topic": "t", "on_delivery": 5}, TypeError, "on_delivery: expected a function, got int"),
    ],
)
def test_send_refuses_at_the_call(broker: Broker, given: dict[str, Any], kind: type[Exception], text: str) -> None:
    with Producer(broker) as producer, pytest.raises(kind, match=text):
        producer.send(**given)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda consumer: consumer.assign(b"t"), "expected"),
        (lambda consumer: consumer.assign(TOPIC, partitions=["0"]), "partition: expected int, got str"),
        (lambda consumer: consumer.assign(TOPIC, timestamp_ms="now"), "timestamp_ms: expected int, got str"),
        (lambda consumer: consumer.position((TOPIC, "0")), "partition: expected int, got str"),
        (lambda consumer: consumer.pause(TOPIC), "expected a pair"),
        (lambda consumer: consumer.offsets_for_times({(TOPIC, 0): "now"}), "time: expected int, got str"),
    ],
)
def test_consumer_refuses_at_the_call(broker: Broker, use: Callable[[Any], object], text: str) -> None:
    with Consumer(broker) as consumer, pytest.raises(TypeError, match=text):
        use(consumer)


def test_admin_refuses_at_the_call(broker: Broker) -> None:
    with Admin(broker) as admin:
        with pytest.raises(TypeError, match=r"DeleteTopics.names: expected a list, got str \('orders'\)"):
            admin.delete_topics("orders")
        with pytest.raises(TypeError, match=r"partitions: expected int, got str \('three'\)"):
            admin.create_topic("t", partitions="three")  # type: ignore[arg-type]
