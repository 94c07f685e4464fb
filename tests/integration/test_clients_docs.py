"""The Python of docs/clients.md runs as written."""

import pytest
from support.doc_commands import ADDRESS
from support.documents import blocks
from support.schema_registry import serving

from barnabas import Admin
from barnabas.testing import TestBroker

PAGE = "docs/clients.md"


class Enough(Exception):
    """The examples that read for ever have read what there is."""


def example(word: str, bootstrap: str) -> str:
    return next(block.code for block in blocks(PAGE, "python") if word in block.code).replace(ADDRESS, bootstrap)


def test_a_group_and_transactions() -> None:
    printed: list[tuple[object, ...]] = []

    def show(*values: object) -> None:
        printed.append(values)
        if len(printed) == 2:
            raise Enough

    with TestBroker() as broker:
        broker.produce("orders", [b"one", b"two"])
        with pytest.raises(Enough):
            exec(compile(example('group_id="billing"', broker.bootstrap), PAGE, "exec"), {"print": show})
        exec(compile(example("transactional_id", broker.bootstrap), PAGE, "exec"), {})
        broker.assert_produced("invoices", ["for one"], committed=True, mode="contains")
    assert sorted(str(values[-1]) for values in printed) == ["b'one'", "b'two'"]


def test_administration_example_prints_lags_and_connections() -> None:
    printed: list[tuple[object, ...]] = []
    with TestBroker() as broker:
        topic = broker.create_topic("orders", partitions=1)
        broker.produce(topic, [b"one", b"two"])
        with Admin(broker.bootstrap) as admin:
            admin.alter_group_offsets("billing", {(topic, 0): 1})
        names = {"print": lambda *values: printed.append(values)}
        exec(compile(example("list_group_lags", broker.bootstrap), PAGE, "exec"), names)
    assert printed[0][:4] == ("billing", "Empty", 0, 1)
    assert isinstance(printed[0][4], int)
    assert printed[1][1:] == (1, None)
    assert ("barnabas", "127.0.0.1") in [(row[2], row[4]) for row in printed[2:]]


def test_asyncio_example_of_clients_page_runs() -> None:
    printed: list[object] = []
    with TestBroker() as broker:
        exec(compile(example("asyncio", broker.bootstrap), PAGE, "exec"), {"print": printed.append})
    assert printed == [0, b"one"]


def test_typed_example_of_clients_page_runs() -> None:
    printed: list[object] = []

    def show(value: object) -> None:
        printed.append(value)
        raise Enough

    with TestBroker() as broker:
        broker.produce("orders", [{"number": 7}])
        names = {"__name__": "clients", "print": show}
        with pytest.raises(Enough):
            exec(compile(example("ConsumerKeywords", broker.bootstrap), PAGE, "exec"), names)
    assert printed == [7]


def test_objects_of_the_json_example_come_back() -> None:
    printed: list[object] = []
    with TestBroker() as broker:
        names = {"__name__": "clients", "print": printed.append}
        exec(compile(example("JsonDecoder", broker.bootstrap), PAGE, "exec"), names)
    assert "Payment(number=1, sum=Decimal('9.90'), at=datetime.datetime(" in str(printed)


def test_schemas_and_audit() -> None:
    with TestBroker() as broker, serving(broker.bootstrap) as url:
        code = example("AvroEncoder", broker.bootstrap).replace("http://127.0.0.1:8081", url)
        exec(compile(code, PAGE, "exec"), {"__name__": "clients"})
        with broker.consumer() as consumer:
            consumer.assign("orders", position="earliest")
            (message,) = consumer.messages(stop_at_end=True)
        assert message.value is not None
        assert message.value[0] == 0, "Confluent's wire form"
        assert [name for name, _ in message.headers] == ["barnabas-audit"]
