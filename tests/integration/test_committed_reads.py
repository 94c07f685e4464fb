"""Reads of committed records over a socket, and transactions that only an administrator ends."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from support.api_connection import ApiConnection
from support.compat.console_tools import ConsoleTools
from support.compat.model import Unavailable
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer
from barnabas.ports.broker_api.fetch import AbortedTransaction, Fetch, FetchPartition
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.producers import DescribeProducers
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestCluster
from barnabas.testing.logs import numbered

pytestmark = [pytest.mark.xdist_group("confluent")]

E = ErrorCode
TOOL = "org.apache.kafka.tools.TransactionsCommand"
TP = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """It asks no coordinator, so that a transaction can be begun that no coordinator knows."""
    with Broker(
        storage="memory",
        coordination="memory",
        transaction_state_log_num_partitions=1,
        transaction_partition_verification_enable=False,
    ) as running:
        with Admin(running) as admin:
            admin.create_topic("t", partitions=1)
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[ApiConnection]:
    with ApiConnection(broker.bootstrap) as opened:
        yield opened


def send(connection: ApiConnection, *values: bytes, producer: int = 4001, sequence: int = 0, **more: Any) -> Any:
    records = numbered(*values, producer=producer, sequence=sequence, transactional=True)
    request = Produce(partitions=[ProducePartition("t", 0, records)], **{"transactional_id": "orders", **more})
    return connection.ask(request).partitions[0]


def end(connection: ApiConnection, committed: bool, *, producer: int = 4001, epoch: int = 0) -> ErrorCode:
    marker = TxnMarker(producer_id=producer, producer_epoch=epoch, committed=committed, partitions=[TP])
    (written,) = connection.ask(WriteTxnMarkers(markers=[marker])).markers
    return written.partitions[0].error  # type: ignore[no-any-return]


def test_committed_records_in_every_version(connection: ApiConnection) -> None:
    assert send(connection, b"a").error is E.NONE
    assert send(connection, b"b", producer=4002).error is E.NONE
    assert end(connection, False) is E.NONE
    for version in range(4, 13):
        for isolation, stable, aborted in ((0, 1, None), (1, 1, (AbortedTransaction(4001, 0),))):
            request = Fetch(partitions=[FetchPartition("t", 0, 0, 1 << 20)], isolation_level=isolation, max_wait_ms=0)
            (found,) = connection.ask(request, version).partitions
            assert (found.error, found.high_watermark, found.last_stable_offset) == (E.NONE, 3, stable), version
            assert found.aborted == aborted, version
            assert bool(len(found.records))
    for version in range(2, 8):
        asked = ListOffsetsPartition(topic="t", partition=0, timestamp=LATEST)
        ends = [
            connection.ask(ListOffsets(partitions=[asked], isolation_level=isolation), version).partitions[0].offset
            for isolation in (0, 1)
        ]
        assert ends == [3, 1], version


def test_forbidden_client_actions_are_refused(connection: ApiConnection) -> None:
    assert send(connection, b"a", transactional_id=None).error is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end(connection, True, producer=99) is E.NONE, "it was not begun"
    assert send(connection, b"a").error is E.NONE
    assert end(connection, True, epoch=-1) is E.INVALID_PRODUCER_EPOCH
    assert end(connection, True, epoch=1) is E.NONE
    assert send(connection, b"b", sequence=1).error is E.INVALID_PRODUCER_EPOCH
    (described,) = connection.ask(DescribeProducers(topics={"t": [0]})).partitions
    assert [(each.producer_id, each.producer_epoch, each.current_txn_start_offset) for each in described.producers] == [
        (99, 0, -1),
        (4001, 1, -1),
    ]


def test_a_partition_that_was_never_added_gets_nothing() -> None:
    with Broker(storage="memory", coordination="memory", transaction_state_log_num_partitions=1) as broker:
        with Admin(broker) as admin:
            admin.create_topic("t", partitions=1)
        sender = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "orders"})
        sender.init_transactions(PATIENCE_S)  # the coordinator is there, and knows the name
        with ApiConnection(broker.bootstrap) as connection:
            refused = send(connection, b"a")
            assert refused.error in (E.INVALID_TXN_STATE, E.INVALID_PRODUCER_ID_MAPPING), refused
            stranger = send(connection, b"a", transactional_id="nobody")
            assert stranger.error is E.INVALID_PRODUCER_ID_MAPPING, stranger
        assert broker_values(broker.bootstrap) == []


def broker_values(bootstrap: str, count: int = 0) -> list[bytes]:
    """Return the values that a reader of committed messages gets; waits for `count`."""
    found: list[bytes] = []
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([("t", 0)])

        def has() -> bool:
            found.extend(message.value or b"" for message in consumer.poll_many(100, 0.1))
            return len(found) >= count

        wait_for(has)
    return found


@pytest.mark.slow
def test_kafkas_tool_ends_a_hanging_transaction(broker: Broker, connection: ApiConnection) -> None:
    try:
        tools = ConsoleTools(broker.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(tools):
        send(connection, b"before", producer=1)
        end(connection, True, producer=1)
        send(connection, b"hangs")
        observed = tools.run(TOOL, "describe-producers", "--topic", "t", "--partition", "0")
        (line,) = [line.split() for line in observed.splitlines() if line.startswith("4001")]
        assert line[-1] == "2", observed
        tools.run(TOOL, "abort", "--topic", "t", "--partition", "0", "--start-offset", "2")
        observed = tools.run(TOOL, "describe-producers", "--topic", "t", "--partition", "0")
        (line,) = [line.split() for line in observed.splitlines() if line.startswith("4001")]
        assert line[-1] == "None", observed
    send(connection, b"after", producer=1, sequence=1)
    end(connection, True, producer=1)
    assert broker_values(broker.bootstrap, 2) == [b"before", b"after"]


def _of_consumers(request: Any, _caller: object) -> bool:
    return bool(request.replica_id < 0)


def test_readers_near_a_follower_see_what_is_committed() -> None:
    racks = {number: {"broker.rack": rack} for number, rack in ((1, "a"), (2, "b"), (3, "c"))}
    with TestCluster(brokers=3, per_broker=racks, replica_selector_class="rack-aware") as cluster:
        cluster.create_topic("t", partitions=1)
        sender = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "orders"})
        sender.init_transactions(PATIENCE_S)
        for number in range(10):
            sender.begin_transaction()
            sender.produce("t", b"%d" % number, partition=0)
            sender.flush(PATIENCE_S)  # an abort before the first partition is added gets INVALID_TXN_STATE
            if number % 2:
                sender.commit_transaction(PATIENCE_S)
            else:
                sender.abort_transaction(PATIENCE_S)
        cluster.wait_in_sync("t")
        leader = cluster.wait_for_leader("t", 0)
        near = next(broker for broker in cluster.broker_ids if broker != leader)
        asked = cluster.broker(near).faults.delay("Fetch", 0, topic="t", when=_of_consumers)
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "near",
            "client.rack": racks[near]["broker.rack"],
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
        reader = confluent_kafka.Consumer(settings)
        reader.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[bytes] = []

        def has() -> bool:
            found.extend(each.value() or b"" for each in reader.consume(100, 0.05) if each.error() is None)
            return len(found) >= 5 and asked.hits > 0

        try:
            wait_for(has)
            assert found == [b"1", b"3", b"5", b"7", b"9"]
            sender.begin_transaction()
            sender.produce("t", b"late", partition=0)
            sender.flush(PATIENCE_S)
            assert reader.consume(10, 0.2) == []
            sender.commit_transaction(PATIENCE_S)
            wait_for(lambda: has() and len(found) >= 6)
            assert found[5:] == [b"late"]
        finally:
            reader.close()
