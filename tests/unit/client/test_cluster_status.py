"""The conclusions of `barnabas cluster status` from the answers of a cluster."""

from barnabas.app.cli.cluster.command import sections_of, to_fields
from barnabas.app.cli.cluster.status import ClusterStatus, status_of
from barnabas.app.cli.tables import framed, list_text, size_text
from barnabas.ports.broker_api.cluster import BrokerNode, DescribeClusterResult, LogDirDescription, LogDirReplica
from barnabas.ports.broker_api.metadata import PartitionMetadata, TopicMetadata
from barnabas.ports.broker_api.replicas import OngoingReassignment
from barnabas.ports.error_codes import ErrorCode

NODES = [BrokerNode(node_id=number, host="h", port=9090 + number, rack=f"r{number}") for number in (1, 2)]


def _status(
    *partitions: PartitionMetadata,
    lags: dict[int, int] | None = None,
    problems: dict[int, str] | None = None,
    controller: int = 1,
    moves: tuple[OngoingReassignment, ...] = (),
    error: ErrorCode = ErrorCode.NONE,
) -> ClusterStatus:
    folders = {
        broker: [
            LogDirDescription(
                path="/d", replicas=[LogDirReplica(topic="t", partition=0, size_bytes=100, lag=lag)], error=error
            )
        ]
        for broker, lag in ({1: 0, 2: 0} if lags is None else lags).items()
    }
    cluster = DescribeClusterResult(cluster_id="c", controller_id=controller, brokers=NODES)
    return status_of(cluster, [TopicMetadata(name="t", partitions=partitions)], folders, problems or {}, moves)


def _partition(number: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionMetadata:
    return PartitionMetadata(partition=number, leader=leader, leader_epoch=0, replicas=replicas, isr=isr)


def _text(status: ClusterStatus) -> str:
    from rich.console import Console

    console = Console(width=200, record=True, file=None)
    with console.capture() as captured:
        console.print(framed(sections_of(status)))
    return captured.get()


def test_a_cluster_that_is_well() -> None:
    status = _status(_partition(0, 1, (1, 2), (2, 1)), _partition(1, 2, (2, 1), (1, 2)))
    assert status.healthy
    assert [(b.leaders, b.replicas, b.in_sync, b.bytes, b.lag) for b in status.brokers] == [(1, 2, 2, 100, 0)] * 2
    assert "no offline partitions" in _text(status)
    assert to_fields(status)["healthy"] is True


def test_replicas_that_are_behind_and_partitions_without_a_leader() -> None:
    status = _status(_partition(0, 1, (1, 2), (1,)), _partition(1, -1, (2, 3), (3,)), lags={1: 0, 2: 7})
    assert not status.healthy
    assert [p.partition for p in status.under_replicated] == [0, 1]
    assert [p.partition for p in status.offline] == [1]
    assert status.under_replicated[0].lags == {1: 0, 2: 7}
    assert [(b.id, b.problem, b.lag) for b in status.brokers] == [
        (1, None, 0),
        (2, None, 7),
        (3, "down", None),
    ]
    fields = to_fields(status)
    assert fields["offline"] == [
        {"topic": "t", "partition": 1, "leader": -1, "replicas": [2, 3], "isr": [3], "lag": {}},
    ]
    text = _text(status)
    assert "1 offline partition" in text
    assert "2 under-replicated partitions" in text
    assert "2:7" in text


def test_internal_topics_take_one_line_each_in_tables_of_partitions() -> None:
    offsets = TopicMetadata(
        name="__consumer_offsets", internal=True, partitions=[_partition(n, 1, (1, 2), (1,)) for n in range(50)]
    )
    topics = [TopicMetadata(name="t", partitions=[_partition(0, 1, (1, 2), (1,))]), offsets]
    moves = [
        OngoingReassignment(topic="__consumer_offsets", partition=n, replicas=(1, 2), adding=(2,), removing=())
        for n in range(7)
    ]
    cluster = DescribeClusterResult(cluster_id="c", controller_id=1, brokers=NODES)
    found = status_of(cluster, topics, {1: [], 2: []}, {}, moves)
    assert len(to_fields(found)["under_replicated"]) == 51, "a program gets each of them"
    _, _, behind, moving = sections_of(found)
    assert behind.title == "51 under-replicated partitions"
    assert behind.rows == [("t", 0, 1, "1,2", "1", "-"), ("__consumer_offsets", "50 of 50", "-", "-", "-", "-")]
    assert moving.rows == [("__consumer_offsets", "7 of 50", "-", "-", "-")]


def test_a_broker_that_does_not_answer_and_a_folder_that_is_broken() -> None:
    status = _status(_partition(0, 1, (1,), (1,)), lags={1: 0}, problems={2: "no answer"})
    assert not status.healthy
    assert [broker.problem for broker in status.brokers] == [None, "no answer"]
    broken = _status(_partition(0, 1, (1,), (1,)), error=ErrorCode.KAFKA_STORAGE_ERROR)
    assert broken.brokers[0].problem == "/d: KAFKA_STORAGE_ERROR"


def test_no_controller_and_moves_under_way() -> None:
    move = OngoingReassignment(topic="t", partition=0, replicas=(1, 2, 3), adding=(3,), removing=(1,))
    status = _status(_partition(0, 1, (1,), (1,)), controller=-1, moves=(move,))
    assert not status.healthy
    assert to_fields(status)["reassignments"] == [
        {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "adding": [3], "removing": [1]}
    ]
    assert "no controller" in _text(status)
    assert "1 partition on the move" in _text(status)


def test_sizes_and_lists_for_people() -> None:
    assert [size_text(size) for size in (None, -1, 0, 1023, 1024, 3 * 2**29)] == [
        "-",
        "-",
        "0B",
        "1023B",
        "1.0KiB",
        "1.5GiB",
    ]
    assert (list_text([]), list_text([1, 2])) == ("-", "1,2")
