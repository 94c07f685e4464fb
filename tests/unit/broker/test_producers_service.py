"""Producer ids and epochs from a broker, and what it answers to idempotent producers."""

from collections.abc import Iterator

import pytest
from support.coordination_faults import BlockingCoordination

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.core.cluster import layout
from barnabas.core.cluster.producer_ids import BLOCK_SIZE, LAST_ID, LEFT_OUT, raise_above, take_block
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResultPartition
from barnabas.ports.broker_api.producers import DescribedPartition, DescribeProducers, InitProducerId
from barnabas.ports.coordination import Coordination, CoordinationError
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.logs import numbered
from barnabas.testing.manual_broker import ManualBroker, batch


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker()
    simulated.create("t", 2)
    yield simulated
    simulated.stop()


def init(broker: ManualBroker, producer_id: int = -1, epoch: int = -1) -> tuple[int, int]:
    result = broker.ask(InitProducerId(producer_id=producer_id, producer_epoch=epoch))
    assert result.error is ErrorCode.NONE
    return result.producer_id, result.producer_epoch


def send(
    broker: ManualBroker, value: bytes, sequence: int, *, producer: int = 5, epoch: int = 0, partition: int = 0
) -> ProduceResultPartition:
    records = numbered(value, producer=producer, epoch=epoch, sequence=sequence)
    return broker.ask(Produce(partitions=[ProducePartition("t", partition, records)])).partitions[0]


def test_every_producer_gets_its_own_id(broker: ManualBroker) -> None:
    ids = [init(broker) for _ in range(2 * BLOCK_SIZE + 1)]
    assert ids == [(number, 0) for number in range(2 * BLOCK_SIZE + 1)]


def test_ids_do_not_come_again_after_a_restart(broker: ManualBroker) -> None:
    assert init(broker) == (0, 0)
    broker.restart()
    assert init(broker) == (BLOCK_SIZE, 0)


def test_brokers_that_share_a_tree_share_no_id() -> None:
    tree = MemoryTree()
    sessions = [tree.session(), tree.session()]
    blocks = [take_block(sessions[number % 2], number % 2) for number in range(6)]
    assert blocks == [range(number, number + BLOCK_SIZE) for number in range(0, 6 * BLOCK_SIZE, BLOCK_SIZE)]


@pytest.mark.parametrize("given_out", [0, 1, 3])
def test_producer_ids_that_a_log_has_are_not_given_out_again(given_out: int) -> None:
    session = MemoryTree().session()
    for _ in range(given_out):
        take_block(session, 1)
    largest = 2 * BLOCK_SIZE + 7
    first = raise_above(session, 1, largest)
    if given_out == 3:
        assert first is None and take_block(session, 1).start == 3 * BLOCK_SIZE
    else:
        assert first is not None and first >= largest + LEFT_OUT
        assert take_block(session, 2).start == first
        assert raise_above(session, 2, largest) is None
    assert raise_above(session, 2, LAST_ID) is None, "no producer has got that from a broker"
    assert take_block(session, 2).stop < LAST_ID


def test_the_last_id_and_garbage_in_the_tree() -> None:
    session = MemoryTree().session()
    session.create(layout.PRODUCER_IDS, layout.encode_producer_ids(1, range(LAST_ID - BLOCK_SIZE, LAST_ID)))
    with pytest.raises(CoordinationError, match="all producer ids"):
        take_block(session, 1)
    session.set(layout.PRODUCER_IDS, b"{}")
    with pytest.raises(CoordinationError, match="does not hold"):
        take_block(session, 1)


def test_the_next_epoch_of_an_id(broker: ManualBroker) -> None:
    mine = init(broker)
    assert init(broker, *mine) == (mine[0], 1)
    assert init(broker, mine[0], 1) == (mine[0], 2)
    assert init(broker, mine[0], 32765) == (mine[0], 32766)
    assert init(broker, mine[0], 32766) == (1, 0)
    assert init(broker, 77, 3) == (2, 0)  # an id without a producer yet
    broker.restart()
    assert init(broker, *mine) == (mine[0], 1)


def test_requests_that_make_no_sense(broker: ManualBroker) -> None:
    def error(**fields: object) -> ErrorCode:
        result = broker.ask(InitProducerId(**fields))  # type: ignore[arg-type]  # of the test's own making
        assert (result.producer_id, result.producer_epoch) == (-1, -1)
        return result.error

    assert error(transactional_id="") is ErrorCode.INVALID_REQUEST
    assert error(producer_id=4) is ErrorCode.INVALID_REQUEST
    assert error(producer_epoch=4) is ErrorCode.INVALID_REQUEST


def test_requests_waiting_for_id_block_get_different_ids() -> None:
    broker = ManualBroker(wrap_session=BlockingCoordination)
    asked = [broker.submit(InitProducerId()) for _ in range(2 * BLOCK_SIZE + 5)]
    broker.scheduler.run_pending()
    ids = [answers[0].producer_id for answers in asked]
    assert sorted(ids) == list(range(2 * BLOCK_SIZE + 5))
    broker.stop()


@pytest.mark.parametrize("how", ["down", "deaf"])
def test_init_producer_id_during_coordination_outage_fails_then_recovers(how: str) -> None:
    sessions: list[BlockingCoordination] = []

    def slow(session: Coordination) -> Coordination:
        sessions.append(BlockingCoordination(session))
        return sessions[-1]

    broker = ManualBroker(wrap_session=slow)
    setattr(sessions[-1], how, True)
    result = broker.ask(InitProducerId())
    assert (result.error, result.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    setattr(sessions[-1], how, False)
    assert init(broker) == (BLOCK_SIZE if how == "deaf" else 0, 0)
    broker.stop()


def test_a_batch_that_is_sent_again_has_its_first_offset(broker: ManualBroker) -> None:
    first = send(broker, b"a", 0)
    send(broker, b"b", 1)
    again = send(broker, b"a", 0)
    assert (again.error, again.base_offset, again.log_append_time_ms) == (ErrorCode.NONE, first.base_offset, -1)
    assert broker.values("t") == [b"a", b"b"]


def test_one_partition_out_of_order_leaves_the_others_alone(broker: ManualBroker) -> None:
    send(broker, b"a", 0)
    entries = [
        ProducePartition("t", 0, numbered(b"x", producer=5, sequence=9)),
        ProducePartition("t", 1, numbered(b"y", producer=5, sequence=0)),
        ProducePartition("t", 1, batch(b"z")),
    ]
    results = broker.ask(Produce(partitions=entries)).partitions
    assert [result.error for result in results] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert (broker.values("t"), broker.values("t", partition=1)) == ([b"a"], [b"y", b"z"])
    assert send(broker, b"b", 1).base_offset == 1


def test_an_older_epoch_is_refused(broker: ManualBroker) -> None:
    send(broker, b"a", 0, epoch=1)
    assert send(broker, b"b", 1, epoch=0).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producer_sequences_continue_after_broker_restart(broker: ManualBroker) -> None:
    for number in range(7):
        send(broker, b"%d" % number, number)
    broker.restart()
    for number in range(2, 7):
        assert send(broker, b"%d" % number, number).base_offset == number
    assert send(broker, b"7", 7).base_offset == 7
    assert len(broker.values("t")) == 8


def test_duplicates_do_not_count_as_messages_in(broker: ManualBroker) -> None:
    for _ in range(3):
        send(broker, b"a", 0)
    assert broker.metrics.value("kafka_server_brokertopicmetrics_messagesin_total", topic="t") == 1


def describe(broker: ManualBroker, topic: str, partition: int) -> DescribedPartition:
    return broker.ask(DescribeProducers(topics={topic: [partition]})).partitions[0]


def test_producers_are_described(broker: ManualBroker) -> None:
    send(broker, b"a", 0, producer=7, epoch=3)
    send(broker, b"b", 1, producer=7, epoch=3)
    (found,) = describe(broker, "t", 0).producers
    assert (found.producer_id, found.producer_epoch, found.last_sequence) == (7, 3, 1)
    assert found.last_timestamp_ms == broker.clock.now_ms()
    assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, -1)
    assert describe(broker, "t", 1).producers == []
    assert describe(broker, "t", 9).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producers_are_described_by_followers_too(broker: ManualBroker) -> None:
    send(broker, b"a", 0, producer=7, epoch=3)
    broker.node.state.replicas.partitions["t", 0].leader = 2
    observed = describe(broker, "t", 0)
    assert (observed.error, [each.producer_id for each in observed.producers]) == (ErrorCode.NONE, [7])


def test_silent_producers_expire() -> None:
    settings = {"producer.id.expiration.ms": 10_000, "producer.id.expiration.check.interval.ms": 1000}
    broker = ManualBroker(**settings)  # type: ignore[arg-type]  # dotted keys
    broker.create("t", 1)
    send(broker, b"a", 0, producer=1)
    broker.scheduler.advance(6000)
    send(broker, b"a", 0, producer=2)
    broker.scheduler.advance(6000)
    assert [known.producer_id for known in describe(broker, "t", 0).producers] == [2]
    broker.restart()
    assert [known.producer_id for known in describe(broker, "t", 0).producers] == [2]
    broker.stop()
    broker.scheduler.advance(10_000)
    broker.node = broker._started()
    assert describe(broker, "t", 0).producers == []
    broker.stop()
