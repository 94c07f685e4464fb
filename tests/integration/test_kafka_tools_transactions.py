"""kafka-transactions of Apache Kafka."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.compat.console_tools import ConsoleTools
from support.compat.model import Unavailable
from support.waiting import PATIENCE_S

from barnabas.testing import TestBroker

pytestmark = [pytest.mark.slow, pytest.mark.process]

TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture
def tools(broker: TestBroker) -> Iterator[ConsoleTools]:
    try:
        opened = ConsoleTools(broker.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(opened):
        yield opened


def rows(said: str) -> list[dict[str, str]]:
    header, *lines = (line.split() for line in said.strip().splitlines())
    return [dict(zip(header, line, strict=False)) for line in lines]


def test_kafka_transactions_tool_lists_describes_and_aborts_transactions(
    broker: TestBroker, tools: ConsoleTools
) -> None:
    with broker.producer(transactional_id="shop") as producer:
        producer.begin_transaction()
        producer.send("orders", b"x", partition=1).result(PATIENCE_S)
        (listed,) = rows(tools.run(TOOL, "list"))
        assert (listed["TransactionalId"], listed["TransactionState"]) == ("shop", "Ongoing")
        (described,) = rows(tools.run(TOOL, "describe", "--transactional-id", "shop"))
        assert described["ProducerId"] == listed["ProducerId"]
        assert described["TopicPartitions"] == "orders-1"
        (active,) = rows(tools.run(TOOL, "describe-producers", "--topic", "orders", "--partition", "1"))
        assert active["CurrentTransactionStartOffset"] == "0"
        assert rows(tools.run(TOOL, "find-hanging", "--broker-id", "0")) == []
        tools.run(TOOL, "abort", "--topic", "orders", "--partition", "1", "--start-offset", "0")
        (ended,) = rows(tools.run(TOOL, "describe-producers", "--topic", "orders", "--partition", "1"))
        assert ended["CurrentTransactionStartOffset"] == "None"
        producer.abort_transaction()
    assert broker.produced("orders", committed=True) == []
