"""A producer does not lose messages silently: leaving its block, the end of the program and a fork say what is lost."""

import asyncio
import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from support.ports import free_port
from support.waiting import PATIENCE_S, wait_for

from barnabas import AsyncProducer, Broker, DeliveryFailed, Producer
from barnabas.app.clients.producer import producer as producer_module
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.testing import TestBroker

QUICK: dict[str, Any] = {"delivery_timeout_ms": 200, "linger_ms": 0}


@pytest.fixture
def unused_address() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", listeners=["kafka://127.0.0.1:0", "classic://127.0.0.1:0"]) as running:
        yield running


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )


# --- leaving the block


def test_leaving_the_block_raises_for_messages_that_nothing_asked_for(unused_address: str) -> None:
    observed = f"3 messages were not delivered.*cannot connect to {unused_address}"
    with pytest.raises(DeliveryFailed, match=observed) as caught, Producer(unused_address, **QUICK) as producer:
        for _ in range(3):
            producer.send("t", b"x")
    assert caught.value.failed == 3
    assert isinstance(caught.value.__cause__, ApiError)


def test_leaving_the_block_of_an_asyncio_producer_raises_too(unused_address: str) -> None:
    async def use() -> None:
        async with AsyncProducer(unused_address, **QUICK) as producer:
            await producer.send("t", b"x")

    with pytest.raises(DeliveryFailed, match="1 message was not delivered"):
        asyncio.run(use())


def test_leaving_the_block_of_a_classic_producer_raises_too(unused_address: str) -> None:
    made = Producer(broker_list=f"0:{unused_address}", producer_type="async", num_retries=0)
    with pytest.raises(DeliveryFailed, match="1 message was not delivered"), made as producer:
        producer.send("t", b"x")


def test_failures_that_the_program_has_asked_for_are_not_raised_again(unused_address: str) -> None:
    errors: list[BarnabasError | None] = []
    with Producer(unused_address, **QUICK) as producer:
        with pytest.raises(ApiError):
            producer.send("t", b"x").result()
        producer.send("t", b"x", on_delivery=lambda error, _: errors.append(error))
        producer.send("t", b"x").add_callback(lambda error, _: errors.append(error))
        with pytest.raises(ApiError):
            producer.send_many("t", [b"x", b"y", b"z"]).result()
        assert len(producer.send_many("t", [b"x", b"y"]).deliveries()) == 2
    assert len(errors) == 2


def test_failures_that_a_task_has_awaited_are_not_raised_again(unused_address: str) -> None:
    async def use() -> None:
        async with AsyncProducer(unused_address, **QUICK) as producer:
            with pytest.raises(ApiError):
                await producer.send_and_wait("t", b"x")
            with pytest.raises(ApiError):
                await (await producer.send_many("t", [b"x", b"y", b"z"]))

    asyncio.run(use())


def test_failures_that_confirm_has_raised_are_not_raised_again(unused_address: str) -> None:
    with Producer(unused_address, **QUICK) as producer:
        handle = producer.send("t", b"x")
        with pytest.raises(BarnabasError, match="1 message is not known to have arrived"):
            producer.confirm()
        producer.send("t", b"y", on_delivery=lambda _error, _: None)
        with pytest.raises(ApiError):
            handle.result()


def test_failed_batch_whose_messages_are_asked_for_in_part_counts_the_others(barnabas_broker: TestBroker) -> None:
    barnabas_broker.produce("lost", [b"first"])
    made = Producer(barnabas_broker.bootstrap, linger_ms=60_000)
    with pytest.raises(DeliveryFailed, match="2 messages were not delivered"), made as producer:
        barnabas_broker.faults.error("Produce", "INVALID_RECORD")
        handles = [producer.send("lost", b"x", partition=0) for _ in range(3)]
        producer.flush(120)
        with pytest.raises(ApiError):
            handles[1].result()


def test_another_exception_is_raised_and_the_failures_are_logged(
    unused_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyError), Producer(unused_address, **QUICK) as producer:
        producer.send("t", b"x")
        raise KeyError("of the program")
    assert any("1 message was not delivered" in each.getMessage() for each in caplog.records)


def test_program_that_runs_on_and_asks_for_nothing_hears_of_it(
    unused_address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "_FIRST_LOOK_MS", 10.0)
    producer = Producer(unused_address, **QUICK)
    producer.send("t", b"x")
    wait_for(lambda: any("1 message was not delivered" in each.getMessage() for each in caplog.records))
    producer.close()


def test_program_that_asks_for_the_outcome_has_no_such_line(
    unused_address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "_FIRST_LOOK_MS", 1_000_000.0)
    producer = Producer(unused_address, **QUICK)
    with pytest.raises(ApiError):
        producer.send("t", b"x").result()
    producer._warn_unseen()
    producer.close()
    assert not any("not delivered" in each.getMessage() for each in caplog.records)


def test_close_logs_the_failures(unused_address: str, caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer(unused_address, **QUICK)
    producer.send("t", b"x")
    producer.close()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "1 message was not delivered" in record.getMessage()


# --- the end of the program

FORGETFUL = """
    import sys
    from barnabas import Producer
    producer = Producer(sys.argv[1], linger_ms=60_000)
    for number in range(10):
        producer.send("forgotten", str(number).encode())
"""


def test_producer_that_is_not_closed_delivers_at_the_end_of_the_program(barnabas_broker: TestBroker) -> None:
    done = run(FORGETFUL, barnabas_broker.bootstrap)
    assert done.returncode == 0, done.stderr
    assert "a producer that was not closed, and 10 messages on the way" in done.stderr
    barnabas_broker.assert_produced("forgotten", [str(number) for number in range(10)])


def test_end_of_the_program_says_what_is_lost_and_waits_not_for_ever(unused_address: str) -> None:
    done = run(
        "import barnabas.app.clients.shared.at_exit as it; it.EXIT_FLUSH_S = 3.0\n" + textwrap.dedent(FORGETFUL),
        unused_address,
    )
    assert done.returncode == 0
    assert f"10 messages are not delivered; last: cannot connect to {unused_address}" in done.stderr


def test_classic_producer_that_is_not_closed_sends_at_the_end_of_the_program(broker: Broker) -> None:
    address = next(each for each in broker.listeners if each.startswith("classic://")).partition("://")[2]
    program = """
        import sys
        from barnabas import Producer
        producer = Producer(broker_list="0:" + sys.argv[1], producer_type="async", queue_time=60_000)
        producer.send("forgotten", b"x")
    """
    done = run(program, address)
    assert done.returncode == 0, done.stderr
    assert "a producer that was not closed, and 1 message on the way" in done.stderr


def test_producer_that_has_delivered_all_ends_silently(barnabas_broker: TestBroker) -> None:
    program = "import sys; from barnabas import Producer\n"
    program += "producer = Producer(sys.argv[1])\nproducer.send('flushed', b'x')\nproducer.flush(120)"
    done = run(program, barnabas_broker.bootstrap)
    assert (done.returncode, done.stderr) == (0, "")


# --- fork

FORK = """
    import inspect, os, sys
    from barnabas import Admin, AsyncProducer, Consumer, Producer, SimpleConsumer

    producer, admin, simple = Producer(sys.argv[1]), Admin(sys.argv[1]), SimpleConsumer(sys.argv[1])
    consumer = Consumer(sys.argv[1], group_id="g")
    classic = Producer(broker_list="0:" + sys.argv[2])
    classic_simple = SimpleConsumer("classic://" + sys.argv[2])
    handle = producer.send("forked", b"by the parent")
    pid = os.fork()
    if pid == 0:
        missing = []
        for client in (producer, consumer, admin, simple, classic, classic_simple):
            for name, member in inspect.getmembers(type(client)):
                if name.startswith("_") or name in ("delivered", "failed"):
                    continue
                if not callable(member) and not isinstance(member, property):
                    continue
                try:
                    found = getattr(client, name)
                    if callable(member):
                        parameters = inspect.signature(found).parameters.values()
                        by_place = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
                        found(*["t" for each in by_place if each.default is each.empty])
                    missing.append((type(client).__name__, name))
                except Exception as error:
                    if "belongs to process" not in str(error) and "classic generation" not in str(error):
                        missing.append((type(client).__name__, name, repr(error)))
        with Producer(sys.argv[1]) as own:
            own.send("forked", b"by the child").result(120)
        try:
            with producer:
                missing.append("enter")
        except Exception as error:
            assert "belongs to process" in str(error)
        print("missing:", missing, flush=True)
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert handle.result(120).topic == "forked"
    producer.close()
    print("status:", status)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this system")
def test_clients_of_the_parent_refuse_every_call_in_a_child(broker: Broker) -> None:
    classic = next(each for each in broker.listeners if each.startswith("classic://")).partition("://")[2]
    done = run(FORK, broker.bootstrap, classic)
    assert "missing: []" in done.stdout, done.stdout + done.stderr
    assert "status: 0" in done.stdout, done.stdout + done.stderr
