"""Messages on their way into batches."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.system import ManualClock
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.client.producer.record_accumulator import (
    RECORD_OVERHEAD,
    AccumulatorSettings,
    RecordAccumulator,
    bytes_up_to,
    message_bytes,
)
from barnabas.core.message.batch_header import HEADER_SIZE
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.types import TopicPartition

TP = TopicPartition("t", 0)


class Bench:
    """An accumulator under a manual clock."""

    def __init__(self, **settings: float) -> None:
        self.clock = ManualClock()
        self.closed: list[TopicPartition] = []
        self.accumulator = RecordAccumulator(AccumulatorSettings(**settings), self.clock, self.closed.append)  # type: ignore[arg-type]  # ints where ints belong

    def put(self, value: bytes, tp: TopicPartition = TP, key: bytes | None = None) -> ProducerBatch:
        return self.accumulator.append(tp, (value, key, (), None), message_bytes(value, key, ()))

    def ready(self) -> tuple[list[ProducerBatch], float]:
        return self.accumulator.drain_ready(self.clock.monotonic_ms(), lambda tp: True)


def values(batch: ProducerBatch) -> list[bytes | None]:
    return list(batch.values)


def test_a_batch_lingers_and_is_then_ready() -> None:
    bench = Bench(linger_ms=5)
    bench.put(b"a")
    assert bench.ready() == ([], 5)
    bench.clock.advance(5)
    batches, _ = bench.ready()
    assert [values(b) for b in batches] == [[b"a"]]


def test_a_full_batch_does_not_linger() -> None:
    bench = Bench(linger_ms=1000, batch_size=HEADER_SIZE + 2 * (RECORD_OVERHEAD + 10))
    for _ in range(3):
        bench.put(bytes(10))
    batches, _ = bench.ready()
    assert [b.count for b in batches] == [2]
    assert bench.closed == [TP]


def test_keyed_run_appends_until_the_batch_closes_or_has_more_than_keys() -> None:
    bench = Bench(linger_ms=5)
    accumulator = bench.accumulator
    batch = bench.put(b"0", key=b"k")
    assert accumulator.append_keyed(batch, b"k", b"1") == -1  # not begun
    accumulator.begin_keyed_run(batch, batch.bytes + RECORD_OVERHEAD + 2)
    before = accumulator.bytes
    assert accumulator.append_keyed(batch, b"l", b"1") == 1
    assert (batch.count, accumulator.messages, accumulator.bytes - before) == (2, 2, RECORD_OVERHEAD + 2)
    assert accumulator.append_keyed(batch, b"m", b"2") == -1  # beyond the end of the run
    accumulator.begin_keyed_run(batch, 10_000)
    accumulator.append(TP, (b"2", None, (), None), message_bytes(b"2", None, ()))
    assert accumulator.append_keyed(batch, b"n", b"3") == 3
    assert (batch.values, batch.keys) == ([b"0", b"1", b"2", b"3"], [b"k", b"l", None, b"n"])
    accumulator.append(TP, (b"4", b"o", (("h", b""),), None), message_bytes(b"4", b"o", (("h", b""),)))
    assert accumulator.append_keyed(batch, b"p", b"5") == -1
    accumulator.begin_keyed_run(batch, 10_000)
    assert accumulator.append_keyed(batch, b"p", b"5") == -1  # it has headers
    other = bench.put(b"0", TopicPartition("t", 1), b"k")
    accumulator.begin_keyed_run(other, 10_000)
    accumulator.hurry = 1
    bench.ready()
    assert accumulator.append_keyed(other, b"k", b"1") == -1  # it is in flight


def test_a_batch_may_be_full_by_messages() -> None:
    bench = Bench(linger_ms=1000, batch_messages=2)
    for _ in range(2):
        bench.put(b"x")
    assert [b.count for b in bench.ready()[0]] == [2]


def test_one_batch_of_a_partition_is_in_flight() -> None:
    bench = Bench(linger_ms=0)
    first = bench.put(b"1")
    assert bench.ready()[0] == [first]
    second = bench.put(b"2")
    assert second is not first
    assert bench.ready()[0] == []
    bench.accumulator.complete_batch(first)
    assert bench.ready()[0] == [second]


def test_a_batch_that_comes_back_is_first_in_line() -> None:
    bench = Bench(linger_ms=0)
    first = bench.put(b"1")
    bench.ready()
    bench.put(b"2")
    first.attempts, first.not_before_ms = 1, 100
    bench.accumulator.give_back(first)
    assert bench.ready() == ([], 100)
    bench.clock.advance(100)
    assert bench.ready()[0] == [first]


def test_hurry_ends_all_lingering() -> None:
    bench = Bench(linger_ms=1000)
    bench.put(b"1")
    bench.accumulator.hurry += 1
    assert len(bench.ready()[0]) == 1


def test_memory_is_bounded_and_given_back() -> None:
    bench = Bench(linger_ms=0, buffer_memory=1000)
    assert bench.accumulator.has_room(5000)
    batch = bench.put(bytes(800))
    assert not bench.accumulator.has_room(200)
    bench.ready()
    assert not bench.accumulator.has_room(200)
    bench.accumulator.complete_batch(batch)
    assert (bench.accumulator.bytes, bench.accumulator.messages) == (0, 0)
    assert not bench.accumulator.unsettled


def test_the_number_of_messages_is_bounded_too() -> None:
    bench = Bench(buffer_messages=2)
    bench.put(b"1")
    assert bench.accumulator.has_room(1)
    bench.put(b"2")
    assert not bench.accumulator.has_room(1)


def test_late_batches_are_taken_out_but_not_those_in_flight() -> None:
    bench = Bench(linger_ms=0, delivery_timeout_ms=100)
    in_flight = bench.put(b"1")
    bench.ready()
    waiting = bench.put(b"2")
    assert bench.accumulator.expire(99) == ([], 100)
    assert bench.accumulator.expire(100)[0] == [waiting]
    assert bench.accumulator.unsettled == {in_flight}


def test_when_a_batch_is_late_it_is_taken_out_to_the_last_bit_of_the_clock() -> None:
    """Else the sender is polled again and again at the same moment."""
    bench = Bench(linger_ms=0, delivery_timeout_ms=4000)
    created_ms = next(x for x in (1979 + n * 1.1e-5 for n in range(10_000)) if (x + 4000) - 4000 < x)
    bench.clock.advance(created_ms)
    waiting = bench.put(b"1")
    _, due_ms = bench.accumulator.expire(created_ms)
    assert bench.accumulator.expire(due_ms)[0] == [waiting]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(80, 600), st.integers(1, 20))
def test_a_run_of_values_goes_the_way_of_single_ones(data: list[bytes], batch_size: int, batch_messages: int) -> None:
    one, other = (Bench(batch_size=batch_size, batch_messages=batch_messages, linger_ms=0) for _ in range(2))
    singles = [one.put(value) for value in data]
    ends, at, runs = bytes_up_to(data), 0, []
    while at < len(data):
        batch = other.accumulator.batch_for(TP, len(data[at]) + RECORD_OVERHEAD)
        taken = other.accumulator.extend(batch, data, ends, at)
        runs += [batch] * taken
        at += taken
    assert [values(b) for b in dict.fromkeys(singles)] == [values(b) for b in dict.fromkeys(runs)]
    assert one.accumulator.bytes == other.accumulator.bytes
    assert one.accumulator.messages == other.accumulator.messages


Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]
contents = st.tuples(
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
    st.none() | st.integers(0, 2**40),
)


@given(st.lists(contents, min_size=1, max_size=20))
def test_batch_size_estimate_covers_encoded_size_and_content_is_unchanged(messages: list[Content]) -> None:
    bench = Bench()
    for message in messages:
        batch = bench.accumulator.append(TP, message, message_bytes(*message[:3]))
    records = batch.encode(None)
    assert len(records) <= batch.bytes
    expected = [(*m[:3], batch.wall_ms if m[3] is None else m[3]) for m in messages]
    assert [tuple(m[:4]) for m in MessageSet(records)] == expected


def test_split_batches_report_outcome_of_each_record_once() -> None:
    bench = Bench()
    observed: list[tuple[str, object]] = []
    for number in range(5):
        batch = bench.put(b"%d" % number)
        batch.callbacks.append((number, lambda error, delivery, n=number: observed.append((f"{n}", error or delivery))))  # type: ignore[misc]  # a default binds the loop's number
    first, second = batch.split()
    assert [values(first), values(second)] == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert not batch.done_all()
    first.base_offset = 10
    first.finish(None)
    quarter, last = second.split()
    quarter.base_offset, last.base_offset = 12, 13
    quarter.finish(None)
    last.finish(None)
    assert batch.done_all()
    homes = [batch.find(n) for n in range(5)]
    assert [home.delivery(n).offset for home, n in homes] == [10, 11, 12, 13, 14]
    for half in (first, quarter, last):
        half.run_callbacks(lambda error: observed.append(("raised", error)))
    assert [name for name, _ in observed] == ["0", "1", "2", "3", "4"]
