from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest
from support.memory_cluster import MemoryCluster

from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.source.ranges import TASK_RECORDS, OffsetRange, plan_ranges, slices, together
from barnabas.pipeline.topics.model import ClusterPartition
from barnabas.ports.errors import ApiError, ConfigError


def _cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    for number, log in enumerate(cluster.create("a", 2)):
        for i in range(10 * (number + 1)):
            log.add(1000 + i, b"%d" % i)
    cluster.create("ab", 1)[0].add(5, b"x")
    return cluster


def _plan(cluster: MemoryCluster, **options: str) -> tuple[list[OffsetRange], list[str]]:
    observed: list[str] = []
    plan = plan_ranges(cluster, read_options({"bootstrap.servers": "h:1", **options}), observed.append)
    return plan, observed


def test_everything_by_default() -> None:
    assert _plan(_cluster(), subscribe="a")[0] == [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 20)]


class _Growing(MemoryCluster):
    """A cluster that gets a message between any two requests."""

    def offsets(self, places: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        asked = list(places)
        found = super().offsets(asked, timestamp_ms)
        for place in asked:
            self.logs[place.topic][place.partition].add(1000, b"more")
        return found


def test_a_topic_that_is_written_to_while_the_read_is_planned() -> None:
    """The end offset grows between the first and the last request: nothing is lost."""
    cluster = _Growing()
    cluster.create("a", 1)
    (part,), observed = _plan(cluster, subscribe="a")
    assert (part.start, observed) == (0, [])
    assert part.end > 0


def test_a_pattern_matches_whole_names() -> None:
    assert {part.topic for part in _plan(_cluster(), subscribePattern="a")[0]} == {"a"}
    assert {part.topic for part in _plan(_cluster(), subscribePattern="a.*")[0]} == {"a", "ab"}
    assert _plan(_cluster(), subscribePattern="nothing")[0] == []


def test_assigned_partitions_only() -> None:
    assert _plan(_cluster(), assign='{"a": [1]}')[0] == [OffsetRange("a", 1, 0, 20)]


def test_unknown_topics_and_partitions_are_errors() -> None:
    with pytest.raises(ApiError, match="no topic 'z'; there is a, ab"):
        _plan(_cluster(), subscribe="z")
    with pytest.raises(ApiError, match="a-2: the topic has 2"):
        _plan(_cluster(), assign='{"a": [2]}')


def test_offsets_and_words_mixed() -> None:
    plan, _ = _plan(
        _cluster(), subscribe="a", startingOffsets='{"a":{"0":4,"1":-2}}', endingOffsets='{"a":{"0":-1,"1":3}}'
    )
    assert plan == [OffsetRange("a", 0, 4, 10), OffsetRange("a", 1, 0, 3)]


def test_offsets_must_name_every_partition() -> None:
    with pytest.raises(ConfigError, match="missing: a-1; not read: b-0"):
        _plan(_cluster(), subscribe="a", startingOffsets='{"a":{"0":4},"b":{"0":1}}')


def test_between_two_times() -> None:
    plan, _ = _plan(_cluster(), subscribe="a", startingTimestamp="1002", endingTimestamp="1005")
    assert plan == [OffsetRange("a", 0, 2, 5), OffsetRange("a", 1, 2, 5)]


def test_a_start_after_the_last_record() -> None:
    with pytest.raises(ConfigError, match="a-0 has no record of that time"):
        _plan(_cluster(), subscribe="a", startingTimestamp="1015")
    plan, _ = _plan(_cluster(), subscribe="a", startingTimestamp="1015", startingOffsetsByTimestampStrategy="latest")
    assert plan == [OffsetRange("a", 1, 15, 20)]


def test_an_end_after_the_last_record_is_the_end() -> None:
    plan, _ = _plan(_cluster(), subscribe="a", endingOffsetsByTimestamp='{"a":{"0":1003,"1":9999}}')
    assert plan == [OffsetRange("a", 0, 0, 3), OffsetRange("a", 1, 0, 20)]


def test_deleted_offsets_are_data_loss() -> None:
    cluster = _cluster()
    cluster.logs["a"][0].delete_before(6)
    asked = {"assign": '{"a":[0]}', "startingOffsets": '{"a":{"0":2}}'}
    with pytest.raises(ApiError, match="a-0: asked for offsets 2 to 10, but the log has 6 to 10"):
        _plan(cluster, **asked)
    plan, observed = _plan(cluster, failOnDataLoss="false", **asked)
    assert plan == [OffsetRange("a", 0, 6, 10)]
    assert len(observed) == 1


def test_offsets_past_the_end_are_data_loss() -> None:
    asked = {"assign": '{"a":[0]}', "startingOffsets": '{"a":{"0":50}}'}
    with pytest.raises(ApiError, match="created again"):
        _plan(_cluster(), **asked)
    assert _plan(_cluster(), failOnDataLoss="false", **asked)[0] == []


def test_slices_cover_the_ranges_without_overlap() -> None:
    ranges = [OffsetRange("a", 0, 5, 105), OffsetRange("a", 1, 0, 900)]
    cut = slices(ranges, at_least=10, at_most_records=None)
    assert len(cut) >= 10
    for part in ranges:
        mine = [s for s in cut if s.partition == part.partition]
        assert mine[0].start == part.start
        assert mine[-1].end == part.end
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert all(s.size > 0 for s in mine)


def test_slices_are_bounded_and_never_empty() -> None:
    cut = slices([OffsetRange("a", 0, 0, 7)], at_least=None, at_most_records=3)
    assert [s.size for s in cut] == [2, 2, 3]
    assert len(slices([OffsetRange("a", 0, 0, 3)], at_least=50, at_most_records=None)) == 3
    assert slices([], at_least=5, at_most_records=5) == []


def test_small_ranges_share_a_task() -> None:
    small = [OffsetRange("a", partition, 0, 50) for partition in range(8)]
    assert together(small) == [small]
    large = OffsetRange("a", 8, 0, TASK_RECORDS + 1)
    assert together([*small[:2], large, *small[2:]]) == [small[:2], [large], small[2:]]
    assert together(small, 100) == [small[at : at + 2] for at in range(0, 8, 2)]
    assert together([]) == []
