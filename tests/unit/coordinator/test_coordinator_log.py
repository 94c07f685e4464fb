"""An internal topic as a coordinator keeps its state in it: whichever topic, whichever coordinator."""

from collections.abc import Iterator

import pytest
from support.replica_harness import ME, OTHER, ReplicaHarness, reached

from barnabas.core.coordinator.log import CoordinatorLog, Record
from barnabas.core.coordinator.log_loader import LogLoader
from barnabas.core.message.batch_header import HEADER_SIZE, assign_offset, parse_header
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import Codec
from barnabas.core.message.control_records import EndTransactionMarker, encode_marker
from barnabas.core.message.message import Message
from barnabas.core.replica.partition.partition import Partition
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import bytes_of

TOPIC = "__transaction_state"
NONE = ErrorCode.NONE


class LoadedState:
    """The records of one partition."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: dict[bytes | None, bytes | None] = {}

        self.open: list[tuple[int, Record]] = []

    def add(self, key: bytes | None, value: bytes | None) -> None:
        self.values[key] = value

    def add_open(self, producer_id: int, record: Record) -> None:
        self.open.append((producer_id, record))


class Keeper:
    """A coordinator's end of the topic."""

    def __init__(self, ended: list[LoadedState] | None = None) -> None:
        self.harness = ReplicaHarness()
        self.failures: list[str] = []
        self.observed: list[tuple[str, ErrorCode]] = []
        self.ended: list[LoadedState] = [] if ended is None else ended
        harness = self.harness
        self.log = CoordinatorLog(
            TOPIC,
            harness.replicas,
            clock=harness.clock,
            scheduler=harness.scheduler,
            timeout_ms=1000,
            failed=lambda what, _: self.failures.append(what),
        )
        self.loader = LogLoader(
            harness.replicas,
            LoadedState,
            self.ended.append,
            codecs=builtin_codecs(),
            clock=harness.clock,
            scheduler=harness.scheduler,
            slice_bytes=100,
            report=harness.reports.append,
            failed=lambda what, _: self.failures.append(what),
            still_open=LoadedState.add_open,
        )

    def append(self, name: str, *records: tuple[bytes, bytes | None]) -> None:
        self.log.append(0, records, lambda error: self.observed.append((name, error)))


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    made = Keeper()
    yield made
    assert made.failures == []


def test_writes_of_one_turn_are_one_batch_in_order(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    keeper.append("a", (b"k", b"1"), (b"l", b"1"))
    keeper.append("b", (b"k", b"2"))
    assert (keeper.observed, partition.log.log_end_offset) == ([], 0)
    keeper.harness.scheduler.run_pending()
    assert keeper.observed == [("a", NONE), ("b", NONE)]
    assert parse_header(memoryview(bytes_of(partition.log, 0))).next_offset == 3, "the first batch has all"
    assert partition.log.log_end_offset == 3


def test_append_completes_when_in_sync_replicas_have_it_or_times_out(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC, replicas=(ME, OTHER))
    keeper.append("a", (b"k", b"1"))
    keeper.harness.scheduler.run_pending()
    assert keeper.observed == []
    reached(partition, OTHER, 1)
    keeper.harness.replicas.purgatory.check(partition.topic_partition)
    assert keeper.observed == [("a", NONE)]
    keeper.append("b", (b"k", b"2"))
    keeper.harness.scheduler.advance(1000)
    assert keeper.observed[1:] == [("b", ErrorCode.REQUEST_TIMED_OUT)]


def test_a_partition_that_is_not_here_and_a_log_that_is_closed(keeper: Keeper) -> None:
    keeper.append("nowhere", (b"k", b"1"))
    keeper.log.close()
    keeper.append("late", (b"k", b"1"))
    assert keeper.observed == [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("late", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]


def test_failing_append_callback_is_reported_and_other_callbacks_run() -> None:
    keeper = Keeper()
    keeper.harness.open(TOPIC)

    def raises(_: ErrorCode) -> None:
        raise KeyError("a fault")

    keeper.append("before", (b"a", b"1"))
    keeper.log.append(0, [(b"k", b"1")], raises)
    keeper.append("after", (b"c", b"3"))
    keeper.harness.scheduler.run_pending()
    assert keeper.failures == [f"reporting the outcome of an append to {TOPIC}-0"]
    assert keeper.observed == [("before", NONE), ("after", NONE)], "the others get it all the same, and once"


def test_a_partition_that_cannot_be_taken_in_holds_up_no_other() -> None:
    refused = [RuntimeError("a fault")]
    taken: list[int] = []

    class Refusing(list[LoadedState]):
        def append(self, state: LoadedState) -> None:
            if refused:
                raise refused.pop()
            taken.append(state.number)

    keeper = Keeper(Refusing())
    partitions = [keeper.harness.open(TOPIC, number) for number in (0, 1)]
    for number in (0, 1):
        keeper.log.append(number, [(b"k", b"v")], lambda _: None)
    keeper.harness.scheduler.run_pending()
    for partition in partitions:
        keeper.loader.load(partition)
    keeper.harness.scheduler.run_pending()
    assert (taken, keeper.failures) == ([1], [f"loading {TOPIC}-0"])
    keeper.harness.scheduler.advance(2000)
    assert (taken, keeper.loader.is_busy) == ([1, 0], False)


def test_appended_records_are_loaded_again(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    for number in range(20):
        keeper.append("", (b"k%d" % (number % 3), b"%d" % number))
        keeper.harness.scheduler.run_pending()
    keeper.append("", (b"k0", None))
    keeper.harness.scheduler.run_pending()
    keeper.loader.load(partition)
    assert (keeper.ended, keeper.loader.is_busy) == ([], True)
    keeper.harness.scheduler.run_pending()
    (state,) = keeper.ended
    assert (state.number, state.values) == (0, {b"k0": None, b"k1": b"19", b"k2": b"17"})
    assert not keeper.loader.is_busy


def test_a_partition_that_goes_is_read_no_further(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    for number in range(5):
        keeper.append("", (b"k", b"%d" % number))
        keeper.harness.scheduler.run_pending()
    keeper.loader.load(partition)
    keeper.harness.replicas.drop([TopicPartition(TOPIC, 0)])
    keeper.harness.scheduler.run_pending()
    assert (keeper.ended, keeper.loader.is_busy) == ([], False)


# --- leadership comes and goes


def test_pending_writes_are_dropped_after_a_leader_change(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    keeper.append("of the old life", (b"k", b"1"))
    keeper.log.give_up(0)
    assert keeper.observed == [("of the old life", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    keeper.append("of the new life", (b"k", b"2"))
    keeper.harness.scheduler.run_pending()
    assert keeper.observed[1:] == [("of the new life", NONE)]
    assert partition.log.log_end_offset == 1


def written(keeper: Keeper, count: int) -> Partition:
    """Return a partition with a follower that has none of its records yet."""
    partition = keeper.harness.open(TOPIC, replicas=(ME, OTHER))
    for number in range(count):
        keeper.append("", (b"k", b"%d" % number))
        keeper.harness.scheduler.run_pending()
    return partition


def test_loading_completes_when_followers_have_all_records(keeper: Keeper) -> None:
    partition = written(keeper, 3)
    keeper.loader.load(partition)
    keeper.harness.scheduler.run_pending()
    for offset in (0, 2):
        reached(partition, OTHER, offset)
        keeper.harness.replicas.purgatory.check(partition.topic_partition)
        keeper.harness.scheduler.advance(5000)
        assert (keeper.ended, keeper.loader.is_busy) == ([], True)
    reached(partition, OTHER, 3)
    keeper.harness.replicas.purgatory.check(partition.topic_partition)
    (state,) = keeper.ended
    assert (state.values, keeper.loader.is_busy) == ({b"k": b"2"}, False)


@pytest.mark.parametrize("is_read", [False, True], ids=["while it is read", "while it waits for its followers"])
def test_partition_that_changes_leader_during_loading_is_loaded_again(keeper: Keeper, is_read: bool) -> None:
    partition = written(keeper, 2)
    keeper.loader.load(partition)
    if is_read:
        keeper.harness.scheduler.run_pending()
    partition.leader, partition.leader_epoch = OTHER, 1
    partition.leader = ME
    partition.leader_epoch = partition.led_since = 2  # both in one turn: only the epoch shows it
    reached(partition, OTHER, 2)
    keeper.loader.load(partition)
    keeper.harness.replicas.purgatory.check(partition.topic_partition)
    keeper.harness.scheduler.run_pending()
    keeper.harness.scheduler.advance(5000)
    (state,) = keeper.ended
    assert (state.values, keeper.loader.is_busy) == ({b"k": b"1"}, False)


def test_loading_continues_while_the_epoch_of_the_leader_rises(keeper: Keeper) -> None:
    partition = written(keeper, 2)
    keeper.loader.load(partition)
    keeper.harness.scheduler.run_pending()
    partition.leader_epoch = 1
    reached(partition, OTHER, 2)
    keeper.harness.replicas.purgatory.check(partition.topic_partition)
    (state,) = keeper.ended
    assert (state.values, keeper.loader.is_busy) == ({b"k": b"1"}, False)


def test_a_partition_that_stays_elsewhere_is_dropped(keeper: Keeper) -> None:
    partition = written(keeper, 2)
    keeper.loader.load(partition)
    keeper.harness.scheduler.run_pending()
    partition.leader, partition.leader_epoch = OTHER, 1
    keeper.harness.replicas.purgatory.check(partition.topic_partition)
    assert (keeper.ended, keeper.loader.is_busy) == ([], False)


# --- transactions


def copied(partition: Partition, *batches: bytearray) -> None:
    """These are at the end of the log, as if a leader before had written them."""
    for batch in batches:
        assign_offset(batch, partition.log.log_end_offset, 0)
        partition.log.append_replicated(memoryview(batch), now_ms=1)
    partition.set_isr_state(partition.isr_state)


def in_transaction(producer: int, codec: Codec | None = None, /, **records: str) -> bytearray:
    messages = [Message(value.encode(), key.encode()) for key, value in records.items()]
    return encode_batch(messages, now_ms=1, codec=codec, producer_id=producer, producer_epoch=0, transactional=True)


def plain(**records: str) -> bytearray:
    return encode_batch([Message(value.encode(), key.encode()) for key, value in records.items()], now_ms=1)


def marker(producer: int, *, committed: bool) -> bytearray:
    return encode_marker(EndTransactionMarker(committed, 0), producer_id=producer, producer_epoch=0, now_ms=1)


def loaded(keeper: Keeper, partition: Partition) -> LoadedState:
    keeper.loader.load(partition)
    keeper.harness.scheduler.run_pending()
    return keeper.ended[-1]


GZIP = builtin_codecs().by_name("gzip")


@pytest.mark.parametrize("codec", [None, GZIP], ids=["plain", "compressed"])
def test_records_of_transactions_count_by_how_these_end(keeper: Keeper, codec: Codec | None) -> None:
    partition = keeper.harness.open(TOPIC)
    copied(
        partition,
        plain(a="0", b="0", c="0"),
        in_transaction(7, codec, a="7", d="7"),
        in_transaction(8, codec, b="8", c="8"),
        in_transaction(9, codec, c="9", e="9"),
        marker(7, committed=True),
        plain(d="1"),
        marker(8, committed=False),
        in_transaction(9, codec, e="10"),
    )
    state = loaded(keeper, partition)
    assert state.values == {b"a": b"7", b"b": b"0", b"c": b"0", b"d": b"1"}
    assert state.open == [(9, (b"c", b"9")), (9, (b"e", b"10"))]
    assert not keeper.harness.reports


def test_the_order_of_the_log_counts_and_not_that_of_the_ends(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    copied(
        partition,
        in_transaction(7, a="7", b="7", c="7"),
        in_transaction(8, a="8", c="8"),
        plain(b="later"),
        marker(8, committed=True),
        marker(7, committed=True),
        in_transaction(7, c="again"),
    )
    state = loaded(keeper, partition)
    assert state.values == {b"a": b"8", b"b": b"later", b"c": b"8"}
    assert state.open == [(7, (b"c", b"again"))]


def test_a_marker_that_comes_while_followers_are_waited_for_is_read(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC, replicas=(ME, OTHER))
    copied(partition, in_transaction(7, a="7"), in_transaction(8, a="8"))
    keeper.loader.load(partition)
    keeper.harness.scheduler.run_pending()
    copied(partition, marker(8, committed=True))
    reached(partition, OTHER, 3)
    keeper.harness.replicas.purgatory.check(partition.topic_partition)
    keeper.harness.scheduler.run_pending()
    (state,) = keeper.ended
    assert (state.values, state.open) == ({b"a": b"8"}, [])


def test_a_damaged_marker_ends_nothing(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    copied(partition, in_transaction(7, a="7"))
    at = len(bytes_of(partition.log, 0))
    copied(partition, marker(7, committed=False), plain(b="1"))
    data = keeper.harness.disk.folders[f"{TOPIC}-0"]["00000000000000000000.log"].data
    data[at + HEADER_SIZE + 8] ^= 1  # the type: it would commit
    state = loaded(keeper, partition)
    assert (state.values, state.open) == ({b"b": b"1"}, [(7, (b"a", b"7"))])
    (line,) = keeper.harness.reports
    assert "left out the batch at offset 1" in line


def rotten(keeper: Keeper) -> tuple[Partition, bytearray, int]:
    """Return a partition with another replica, and the position of a wrong byte in its second batch."""
    partition = keeper.harness.open(TOPIC, replicas=(ME, OTHER))
    copied(partition, plain(a="1"))
    at = len(bytes_of(partition.log, 0)) + HEADER_SIZE + 8
    copied(partition, plain(a="2"), plain(b="1"))
    reached(partition, OTHER, 3)
    data = keeper.harness.disk.folders[f"{TOPIC}-0"]["00000000000000000000.log"].data
    data[at] ^= 1
    return partition, data, at


def test_damaged_segment_is_repaired_before_it_is_loaded(keeper: Keeper) -> None:
    partition, data, at = rotten(keeper)
    suspected: list[int] = []
    keeper.harness.replicas.add_suspicion_listener(lambda _, offset: suspected.append(offset))
    keeper.loader.load(partition)
    keeper.harness.scheduler.advance(2_500)
    assert (keeper.ended, keeper.loader.is_busy) == ([], True)
    assert set(suspected) == {1}
    data[at] ^= 1
    keeper.harness.scheduler.advance(1_000)
    (state,) = keeper.ended
    assert state.values == {b"a": b"2", b"b": b"1"}
    assert keeper.harness.reports == []


def test_damage_without_a_good_copy_is_left_out_after_the_limit(keeper: Keeper) -> None:
    partition, _, _ = rotten(keeper)
    keeper.loader.load(partition)
    keeper.harness.scheduler.advance(200_000)
    (state,) = keeper.ended
    assert state.values == {b"a": b"1", b"b": b"1"}
    (line,) = keeper.harness.reports
    assert "left out the batch at offset 1" in line


def test_transactional_records_get_their_own_batch(keeper: Keeper) -> None:
    partition = keeper.harness.open(TOPIC)
    keeper.append("before", (b"k", b"1"))
    keeper.log.append(0, [(b"k", b"2")], lambda error: keeper.observed.append(("in", error)), (7, 3))
    assert keeper.observed == [("before", NONE), ("in", NONE)], "a marker may come in this turn"
    keeper.append("behind", (b"k", b"3"))
    keeper.harness.scheduler.run_pending()
    batches = [header for _, header in whole_batches(bytes_of(partition.log, 0))]
    assert [(each.producer_id, each.producer_epoch, each.transactional) for each in batches] == [
        (-1, -1, False),
        (7, 3, True),
        (-1, -1, False),
    ]
    keeper.log.append(0, [(b"k", b"2")], lambda error: keeper.observed.append(("late", error)), (7, 2))
    assert keeper.observed[-1] == ("late", ErrorCode.INVALID_PRODUCER_EPOCH)
