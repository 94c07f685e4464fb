import pytest
from support.memory_cluster import MemoryCluster

from barnabas.pipeline.source.ranges import OffsetRange
from barnabas.pipeline.tables.load_plan import LoadPlan, TopicRecreated, plan_load, task_count
from barnabas.pipeline.tables.state import Commit
from barnabas.pipeline.topics.model import ClusterPartition
from barnabas.ports.errors import ApiError


def _cluster(records: int = 10) -> MemoryCluster:
    cluster = MemoryCluster()
    for log in cluster.create("t", 2, "id-1"):
        for i in range(records):
            log.add(1000 + i, b"v")
    return cluster


def _plan(
    cluster: MemoryCluster,
    last: LoadPlan | None = None,
    *,
    since_ms: int | None = None,
    fail_on_data_loss: bool = True,
    recreated: str = "fail",
) -> LoadPlan:
    commit = None
    if last is not None:
        commit = Commit(number=1, created_ms=0, topics=last.topics, ranges=[], rows=0, files=[])
    return plan_load(
        cluster, commit, ["t"], since_ms=since_ms, fail_on_data_loss=fail_on_data_loss, recreated=recreated
    )


def test_the_first_load_takes_everything_and_the_second_what_is_new() -> None:
    cluster = _cluster()
    first = _plan(cluster)
    assert first.ranges == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)]
    again = _plan(cluster, first)
    assert again.ranges == []
    assert not again.changes(Commit(number=1, created_ms=0, topics=first.topics, ranges=[], rows=0, files=[]))
    cluster.logs["t"][1].add(2000, b"new")
    assert _plan(cluster, first).ranges == [OffsetRange("t", 1, 10, 11)]


def test_new_partitions_are_loaded_from_their_beginning() -> None:
    cluster = _cluster()
    first = _plan(cluster)
    cluster.logs["t"].append(_cluster(3).logs["t"][0])
    assert _plan(cluster, first).ranges == [OffsetRange("t", 2, 0, 3)]


def test_since_goes_back_but_never_skips() -> None:
    cluster = _cluster()
    first = _plan(cluster)
    back = _plan(cluster, first, since_ms=1007)
    assert back.ranges == [OffsetRange("t", 0, 7, 10), OffsetRange("t", 1, 7, 10)]
    assert back.replaced_from == {ClusterPartition("t", 0): 7, ClusterPartition("t", 1): 7}
    for log in cluster.logs["t"]:
        log.add(5000, b"new")
        log.add(6000, b"new")
    late = _plan(cluster, first, since_ms=6000)
    assert late.ranges == [OffsetRange("t", 0, 10, 12), OffsetRange("t", 1, 10, 12)]
    assert late.replaced_from == {}


def test_since_on_a_first_load_begins_there() -> None:
    cluster = _cluster()
    plan = _plan(cluster, since_ms=1008)
    assert plan.ranges == [OffsetRange("t", 0, 8, 10), OffsetRange("t", 1, 8, 10)]
    assert plan.replaced_from == {}
    assert _plan(cluster, since_ms=9999).ranges == []
    assert _plan(cluster, since_ms=9999).topics["t"].next_offsets == {"0": 10, "1": 10}


def test_deleted_before_it_was_loaded() -> None:
    cluster = _cluster()
    first = _plan(cluster)
    log = cluster.logs["t"][0]
    for i in range(10):
        log.add(3000 + i, b"v")
    log.delete_before(15)
    with pytest.raises(ApiError, match="t-0: offsets 10 to 15 were deleted"):
        _plan(cluster, first)
    plan = _plan(cluster, first, fail_on_data_loss=False)
    assert plan.ranges == [OffsetRange("t", 0, 15, 20)]
    assert len(plan.lost) == 1


def test_a_first_load_begins_where_the_log_does() -> None:
    cluster = _cluster()
    cluster.logs["t"][0].delete_before(4)
    plan = _plan(cluster)
    assert plan.ranges[0] == OffsetRange("t", 0, 4, 10)
    assert plan.deleted == ["t-0: offsets 0 to 4 were deleted before this first load"]
    assert _plan(cluster, plan).deleted == []
    assert _plan(cluster, since_ms=1008).deleted == [], "what is older is not asked for"


def test_topic_emptied_by_retention_is_reported_at_its_first_load() -> None:
    cluster = _cluster()
    for log in cluster.logs["t"]:
        log.delete_before(10)
    plan = _plan(cluster)
    assert plan.ranges == []
    assert len(plan.deleted) == 2
    assert plan.deleted[0].startswith("t-0: offsets 0 to 10 were deleted before this first load; nothing is left (ret")
    assert len(_plan(cluster, since_ms=5000).deleted) == 2


def test_a_recreated_topic_is_noticed_by_its_id() -> None:
    first = _plan(_cluster())
    cluster = _cluster(20)
    cluster.ids["t"] = "id-2"
    with pytest.raises(TopicRecreated, match="its id was id-1 and is id-2"):
        _plan(cluster, first)
    plan = _plan(cluster, first, recreated="replace")
    assert plan.replaced_topics == ["t"]
    assert plan.ranges == [OffsetRange("t", 0, 0, 20), OffsetRange("t", 1, 0, 20)]
    assert plan.topics["t"].topic_id == "id-2"


def test_a_recreated_topic_is_noticed_without_ids() -> None:
    cluster = _cluster()
    cluster.ids["t"] = ""
    first = _plan(cluster)
    shorter = _cluster(4)
    shorter.ids["t"] = ""
    with pytest.raises(TopicRecreated, match="loaded up to offset 10 and ends at 4"):
        _plan(shorter, first)
    shorter.logs["t"].pop()
    with pytest.raises(TopicRecreated, match="had 2 partitions and has 1"):
        _plan(shorter, first)


def test_plan_for_unknown_topic_raises_api_error() -> None:
    with pytest.raises(ApiError, match="there is no topic 't'; there is none"):
        _plan(MemoryCluster())


def test_other_topics_keep_their_state() -> None:
    cluster = _cluster()
    cluster.create("u", 1)[0].add(1, b"x")
    first = _plan(cluster)
    commit = Commit(number=1, created_ms=0, topics=first.topics, ranges=[], rows=0, files=[])
    plan = plan_load(cluster, commit, ["u"], since_ms=None, fail_on_data_loss=True, recreated="fail")
    assert plan.topics["t"] == first.topics["t"]
    assert plan.topics["u"].next_offsets == {"0": 1}


@pytest.mark.parametrize(
    ("sizes", "tasks"), [([10], 1), ([5000] * 10, 2), ([10_000_000], 10), ([1] * 1000, 1), ([9_000, 9_000], 2)]
)
def test_task_count_depends_on_sizes_and_cores(sizes: list[int], tasks: int) -> None:
    assert task_count(sizes, cores=2, rows_per_file=1_000_000) == tasks
