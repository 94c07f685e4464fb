"""A client's view of its cluster."""

from collections.abc import Mapping

from support.plain_cluster import ManualDriver, PlainCluster

from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.effects import NEVER, backoff_ms
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition


def viewed(cluster: PlainCluster, bootstrap: int = 1) -> tuple[ClusterView, ManualDriver]:
    play = ManualDriver(cluster)
    addresses = [(f"bootstrap{n}", 1) for n in range(bootstrap)]
    view = ClusterView(addresses, play.entropy, ViewSettings())
    play.parts.append(view)
    return view, play


def test_nothing_is_asked_before_someone_wants_something() -> None:
    _, play = viewed(PlainCluster(t=1))
    assert play.poll() == NEVER
    assert not play.open


def test_wanted_topics_become_known_with_their_leaders() -> None:
    view, play = viewed(PlainCluster(brokers=2, t=3))
    view.add_topics(["t"])
    play.run_until_idle()
    topic = view.topic("t")
    assert topic is not None
    assert topic.leaders == (1, 2, 1)
    assert topic.available == (0, 1, 2)
    assert topic.partitions[2] == TopicPartition("t", 2)
    assert (view.leader("t", 1), view.leader("t", 3), view.leader("u", 0)) == (2, None, None)
    assert view.address(2) == ("broker-2", 9092)
    assert (view.controller, view.cluster_id) == (1, "plain")


def test_stale_metadata_is_requested_again() -> None:
    view, play = viewed(PlainCluster(t=1))
    view.add_topics(["t"])
    wake = play.run_until_idle()
    assert wake == 300_000
    play.clock.advance_to(wake)
    play.run_until_idle()
    assert len(play.cluster.of(Metadata)) == 2


def test_an_unknown_topic_is_asked_for_again_with_growing_pauses() -> None:
    cluster = PlainCluster()
    view, play = viewed(cluster)
    view.add_topics(["new"])
    pauses = []
    for _ in range(6):
        wake = play.run_until_idle()
        pauses.append(wake - play.now)
        play.clock.advance_to(wake)
    assert view.topic_errors["new"] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert pauses[0] < 130
    assert pauses[-1] >= 800
    cluster.topics["new"] = 1
    play.run_until_idle()
    assert view.topic("new") is not None
    assert not view.topic_errors


def test_a_new_topic_does_not_wait_for_one_that_never_comes() -> None:
    view, play = viewed(PlainCluster(t=1))
    view.add_topics(["never"])
    play.run_until_idle()
    view.add_topics(["t"])
    play.run_until_idle()
    assert view.topic("t") is not None
    assert play.clock.monotonic_ms() == 0


def test_an_address_that_does_not_answer_gives_way_to_the_next() -> None:
    cluster = PlainCluster(t=1)
    view, play = viewed(cluster, bootstrap=2)
    asked: list[int] = []

    def broken(node: int, request: object) -> object:
        return TransportError("down") if len(asked) < 3 and not asked.append(node) else None  # type: ignore[func-returns-value]  # append gives None, which is wanted

    cluster.script(broken)
    view.add_topics(["t"])
    nodes = []
    for _ in range(4):
        play.poll()
        nodes += [send.node for send in play.open]
        play.answer()
        play.clock.advance(2000)
    assert nodes == [-1, -2, -1, -2]
    assert view.topic("t") is not None
    assert view.last_error is None


def test_a_leader_epoch_never_goes_back() -> None:
    cluster = PlainCluster(brokers=2, t=1)
    tp = TopicPartition("t", 0)
    view, play = viewed(cluster)
    cluster.epochs[tp], cluster.leaders[tp] = 5, 2
    view.add_topics(["t"])
    play.run_until_idle()
    cluster.epochs[tp], cluster.leaders[tp] = 4, 1
    play.clock.advance(1000)
    view.request_refresh()
    play.run_until_idle()
    assert view.leader("t", 0) == 2
    cluster.epochs[tp] = 6
    play.clock.advance(1000)
    view.request_refresh()
    play.run_until_idle()
    assert view.leader("t", 0) == 1


def test_refreshes_keep_a_distance() -> None:
    view, play = viewed(PlainCluster(t=1))
    view.add_topics(["t"])
    play.run_until_idle()
    view.request_refresh()
    assert play.run_until_idle() == 100
    assert len(play.cluster.of(Metadata)) == 1


def test_back_off_grows_to_its_bound() -> None:
    middles = [backoff_ms(n, 100, 1000, 0.5) for n in range(1, 8)]
    assert middles == [100, 200, 400, 800, 1000, 1000, 1000]
    assert backoff_ms(1, 100, 1000, 0.0) == 80


def test_all_topics_are_known_while_they_are_wanted() -> None:
    cluster = PlainCluster(t=1, u=2)
    view, play = viewed(cluster)

    def known() -> Mapping[str, bool] | None:
        return view.all_topics

    view.add_topics(["t", "missing"])
    play.run_until_idle()
    assert known() is None
    view.need_all_topics()
    play.run_until_idle()
    assert cluster.of(Metadata)[-1].topics is None
    assert known() == {"t": False, "u": False}
    assert (view.leader("u", 1), view.topic_errors) == (1, {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    del cluster.topics["u"]
    view.request_refresh()
    play.run(lambda: view.topic("u") is None)
    view.need_all_topics(False)
    assert (known(), view.topic("t") is not None) == (None, True)


def test_coordinator_has_node_id_separate_from_its_broker() -> None:
    view, play = viewed(PlainCluster(t=1))
    view.add_topics(["t"])
    play.run_until_idle()
    node = view.coordinator(1, ("coordinator", 9093))
    assert node != 1
    assert (view.address(node), view.address(1)) == (("coordinator", 9093), ("broker-1", 9092))
    assert view.coordinator(1, ("moved", 1)) == node
    assert (view.address(node), view.address(node + 1)) == (("moved", 1), None)
