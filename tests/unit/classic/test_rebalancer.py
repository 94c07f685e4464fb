"""The owners of partitions: the guarantees of the range algorithm."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.classic.rebalancer import RangeRebalancer, Rebalancer, own_share
from barnabas.core.classic.registry.group import GroupView
from barnabas.core.classic.registry.layout import BrokerPartition, ClassicBroker, thread_id
from barnabas.ports.errors import ConfigError
from barnabas.testing.contracts.rebalancer import RebalancerContract

RANGE = RangeRebalancer()
assign = RANGE.assign


def _places(counts: Mapping[int, int]) -> list[BrokerPartition]:
    return [BrokerPartition(broker, number) for broker, count in counts.items() for number in range(count)]


def _brokers(counts: Mapping[int, int]) -> dict[int, ClassicBroker]:
    return {n: ClassicBroker(broker_id=n, creator_id=f"h-{n}", host="h", port=1) for n in counts}


def _owner(shares: Mapping[str, list[BrokerPartition]]) -> dict[BrokerPartition, str]:
    return {place: thread for thread, places in shares.items() for place in places}


COUNTS = st.dictionaries(st.integers(0, 120), st.integers(0, 15), max_size=8)
THREADS = st.sets(st.text(alphabet="ab-0129\uffff\U0001f600", min_size=1, max_size=5), max_size=12).map(list)


def test_the_ranges_of_a_known_case() -> None:
    places = _places({0: 12, 1: 1, 10: 1})
    names = {thread: " ".join(map(str, found)) for thread, found in assign(["c-2", "c-10"], places).items()}
    # As strings, c-10 comes before c-2, 0-10 before 0-2, and 1-0 before 10-0.
    assert list(names.items()) == [("c-10", "0-0 0-1 0-10 0-11 0-2 0-3 0-4"), ("c-2", "0-5 0-6 0-7 0-8 0-9 1-0 10-0")]


def test_the_first_threads_get_one_more() -> None:
    shares = assign(["a", "b", "c"], _places({0: 8}))
    assert [len(shares[thread]) for thread in "abc"] == [3, 3, 2]


def test_threads_without_a_partition_are_listed() -> None:
    assert assign(["b", "a", "c"], _places({0: 1})) == {"a": [BrokerPartition(0, 0)], "b": [], "c": []}
    assert assign(["a"], []) == {"a": []}
    assert assign([], _places({0: 1})) == {}


def test_names_sort_as_in_java() -> None:
    """By UTF-16 units: what lies beyond 65,535 sorts below U+FFFF there, above it in Python."""
    assert list(assign(["\uffff", "\U0001f600"], [])) == ["\U0001f600", "\uffff"]


class TestRange(RebalancerContract):
    even = True

    def make(self) -> Rebalancer:
        return RangeRebalancer()


@given(COUNTS, THREADS)
def test_the_first_shares_are_the_larger_ones(counts: dict[int, int], threads: list[str]) -> None:
    shares = assign(threads, _places(counts))
    assert set(shares) == set(threads)
    sizes = [len(found) for found in shares.values()]
    assert sizes == sorted(sizes, reverse=True)


@given(COUNTS, THREADS)
def test_threads_read_from_few_brokers(counts: dict[int, int], threads: list[str]) -> None:
    counts = {broker: count for broker, count in counts.items() if count}
    shares = [found for found in assign(threads, _places(counts)).values() if found]
    touched = [len({place.broker_id for place in found}) for found in shares]
    if shares:
        # Both are cuts of one line: T - 1 between threads and B - 1 between brokers leave at most T + B - 1 pieces.
        assert sum(touched) <= len(shares) + len(counts) - 1
        assert sum(touched) <= 2 * max(len(shares), len(counts)) - 1
    least = min(counts.values(), default=1)
    for found, brokers in zip(shares, touched, strict=True):
        # All brokers but the first and the last of a range lie in it with all they have.
        assert brokers <= (1 if len(found) == 1 else 2 + (len(found) - 2) // least)


def test_the_bounds_on_brokers_are_reached() -> None:
    def brokers_of(threads: str, counts: Mapping[int, int]) -> list[int]:
        return [len({place.broker_id for place in found}) for found in assign(threads, _places(counts)).values()]

    assert brokers_of("abcd", {0: 3, 1: 3}) == [1, 2, 1, 1]
    assert brokers_of("abc", dict.fromkeys(range(5), 3)) == [2, 3, 2]


def _join(partitions: int, threads: int, at: int) -> tuple[list[int], list[int]]:
    """Per partition the owner's position without the newcomer at `at`; before (of `threads`) and after (`at` + 0.5)."""
    before = _owner(assign([f"{n:03}" for n in range(threads)], _places({0: partitions})))
    names = [f"{n:03}" for n in range(threads)]
    newcomer = f"{at - 1:03}x" if at else "!"
    after = _owner(assign([*names, newcomer], _places({0: partitions})))
    order = sorted(after)
    # Twice the position; the newcomer stands between two of the others.
    return (
        [2 * int(before[place]) for place in order],
        [2 * at - 1 if after[place] == newcomer else 2 * int(after[place]) for place in order],
    )


@given(st.integers(0, 60), st.integers(1, 15), st.data())
def test_few_partitions_move_when_a_thread_joins_or_leaves(partitions: int, threads: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, threads))
    before, after = _join(partitions, threads, at)
    moves = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    for old, new in moves:
        # One place only, towards the newcomer (read backwards: away from the one that leaves).
        assert abs(new - old) <= 2
        assert old < new <= 2 * at - 1 or 2 * at - 1 <= new < old
    assert len(moves) <= min(partitions, partitions / 2 + (threads + 1) ** 2 / 8)


def test_the_bound_on_moves_holds_everywhere_and_is_no_empty_promise() -> None:
    worst = 0.0
    for threads in range(1, 9):
        for partitions in range(41):
            bound = min(partitions, partitions / 2 + (threads + 1) ** 2 / 8)
            for at in range(threads + 1):
                before, after = _join(partitions, threads, at)
                moved = sum(old != new for old, new in zip(before, after, strict=True))
                assert moved <= bound, (threads, partitions, at)
                worst = max(worst, moved / bound if bound else 0)
    assert worst == 1.0


def test_a_newcomer_in_the_middle_moves_a_quarter_at_the_end_a_half() -> None:
    moved = {}
    for at in (0, 2, 4):
        before, after = _join(400, 4, at)
        moved[at] = sum(old != new for old, new in zip(before, after, strict=True))
    assert moved == {0: 200, 2: 120, 4: 200}


@st.composite
def _views(draw: st.DrawFn) -> GroupView:
    counts = draw(COUNTS)
    topics = draw(st.lists(st.sampled_from("tuvw"), unique=True, min_size=1))
    names = draw(st.lists(st.sampled_from(["g_a", "g_b", "g_a-0", "g_10", "g_2"]), unique=True))
    streams = st.dictionaries(st.sampled_from("tuvwx"), st.integers(1, 4))
    return GroupView(
        consumers={name: draw(streams) for name in names},
        partitions={topic: {b: draw(st.integers(0, c)) for b, c in counts.items()} for topic in topics},
        brokers=_brokers(counts),
    )


@given(_views())
def test_members_that_see_the_same_share_without_overlap_and_gap(view: GroupView) -> None:
    shares = {consumer_id: own_share(view, consumer_id, RANGE) for consumer_id in view.consumers}
    for topic, counts in view.partitions.items():
        owned = [p for share in shares.values() for found in share.get(topic, {}).values() for p in found]
        wanted = any(topic in streams for streams in view.consumers.values())
        assert sorted(owned) == (sorted(_places(counts)) if wanted else [])
    for consumer_id, share in shares.items():
        assert {topic: len(found) for topic, found in share.items()} == view.consumers[consumer_id]
        for found in share.values():
            assert list(found) == [thread_id(consumer_id, number) for number in range(len(found))]


def test_unregistered_consumer_gets_no_partitions() -> None:
    view = GroupView(consumers={"a": {"t": 1}}, partitions={"t": {0: 2}}, brokers=_brokers({0: 2}))
    assert own_share(view, "b", RANGE) == {}
    assert own_share(view, "a", RANGE) == {"t": {"a-0": _places({0: 2})}}


@pytest.mark.parametrize("topic", ["t", "unknown"])
def test_a_topic_without_partitions_leaves_threads_idle(topic: str) -> None:
    view = GroupView(consumers={"a": {topic: 2}}, partitions={"t": {}}, brokers={})
    assert own_share(view, "a", RANGE) == {topic: {"a-0": [], "a-1": []}}


class Answering:
    """Gives the same answer whatever it is asked."""

    def __init__(self, answer: Mapping[str, Sequence[BrokerPartition]]) -> None:
        self.answer = answer

    def assign(
        self,
        threads: Sequence[str],
        places: Sequence[BrokerPartition],
    ) -> Mapping[str, Sequence[BrokerPartition]]:
        return self.answer


FIRST, SECOND = BrokerPartition(0, 0), BrokerPartition(0, 1)


def _share_by(rebalancer: Rebalancer) -> dict[str, dict[str, Sequence[BrokerPartition]]]:
    view = GroupView(consumers={"a": {"t": 1}, "b": {"t": 1}}, partitions={"t": {0: 2}}, brokers=_brokers({0: 2}))
    return own_share(view, "a", rebalancer)


def test_consumer_missing_in_the_assignment_owns_nothing() -> None:
    assert _share_by(Answering({"b-0": [FIRST, SECOND]})) == {"t": {"a-0": []}}
    assert _share_by(Answering({"a-0": (SECOND, FIRST)})) == {"t": {"a-0": (SECOND, FIRST)}}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"a-0": [FIRST]}, "partition 0-1 0 times"),
        ({"a-0": [FIRST, SECOND], "b-0": [SECOND]}, "partition 0-1 2 times"),
        ({"a-0": [FIRST, SECOND, BrokerPartition(7, 0)]}, "partition 7-0 1 times"),
        ({"a-0": [FIRST], "c-0": [SECOND]}, "a thread 'c-0'"),
    ],
)
def test_an_answer_that_does_not_share_out_each_partition_once_is_refused(
    answer: Mapping[str, Sequence[BrokerPartition]], text: str
) -> None:
    with pytest.raises(ConfigError, match=rf"rebalance.strategy Answering answers for topic t with {text}: it is to"):
        _share_by(Answering(answer))
