"""The screen of `barnabas top`, and its changes by keys and messages: without a terminal and without a cluster."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

import attrs
import pytest

from barnabas.app.cli.cluster.status import ClusterAnswers, status_of
from barnabas.app.cli.tables import clean
from barnabas.app.cli.top.command import TEXT_MAX, KeyReader, drawn, first_shown, to_tailed
from barnabas.app.cli.top.look import (
    BrokerDetail,
    GroupDetail,
    GroupFigures,
    Look,
    Looker,
    PartitionFigures,
    TopicFigures,
    figures_of,
    partitions_of,
)
from barnabas.app.cli.top.state import FILTER_MAX, Tailed, TailedMessage, TopState, arrived, failed, looked, pressed
from barnabas.app.cli.top.view import found_in, number_text, time_text, view_of
from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.admin.consumer_lag import GroupSummary
from barnabas.app.clients.admin.group_details import GroupDetails, GroupLag, MemberDetails
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.cluster import (
    BrokerNode,
    ConnectionDescription,
    DescribeClusterResult,
    LogDirDescription,
    LogDirReplica,
)
from barnabas.ports.broker_api.metadata import PartitionMetadata, TopicMetadata
from barnabas.ports.broker_api.replicas import OngoingReassignment
from barnabas.ports.broker_api.share_partitions import DeliveredRecords, SharePartitionDescription
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.types import TopicPartition

NODES = [BrokerNode(node_id=1, host="h", port=9092)]
CLUSTER = DescribeClusterResult(cluster_id="c", controller_id=1, brokers=NODES)


def _look(at_s: float, topics: Mapping[str, tuple[int | None, int | None]] | None = None, **changes: object) -> Look:
    figures = None if topics is None else [_topic(name, end, size) for name, (end, size) in topics.items()]
    look = Look(at_s=at_s, status=status_of(CLUSTER, [], {1: []}, {}, []), topics=figures)
    return attrs.evolve(look, **changes)  # type: ignore[arg-type]


def _topic(name: str, end: int | None, size: int | None) -> TopicFigures:
    return TopicFigures(name=name, partitions=1, end=end, bytes=size)


def _after(*looks: Look) -> TopState:
    state = TopState()
    for look in looks:
        state = looked(state, look)
    return state


def _keys(state: TopState, *keys: str) -> TopState:
    for key in keys:
        state = pressed(state, key, view_of(state).names)
    return state


def _cells(state: TopState) -> list[list[str]]:
    return [list(row.cells) for row in view_of(state).rows]


def _message(offset: int, value: str | None = "v", key: str | None = None, headers: str = "") -> TailedMessage:
    return TailedMessage(partition=0, offset=offset, timestamp_ms=0, key=key, value=value, headers=headers)


def test_rates_are_differences_between_looks() -> None:
    state = _after(_look(10, {"a": (100, 5000), "b": (7, 70)}))
    assert _cells(state)[0] == ["a", "1", "-", "-", "100", "4.9KiB", "ok"], "one sample gives no rate"
    state = looked(state, _look(12, {"a": (400, 9096), "b": (7, 70), "new": (1, 1)}))
    assert [cells[2:4] for cells in _cells(state)] == [["150", "2.0KiB"], ["0", "0B"], ["-", "-"]]
    state = looked(state, _look(14, {"a": (3, 9000), "b": (None, 70)}))
    assert [cells[2:4] for cells in _cells(state)] == [["-", "-"], ["-", "0B"]], "made again; files deleted; not known"


def test_looks_that_are_close_or_ask_for_others_leave_rates_alone() -> None:
    state = _after(_look(10, {"a": (0, 0)}), _look(12, {"a": (10, 0)}))
    assert _cells(looked(state, _look(12.1, {"a": (11, 0)})))[0][2:5:2] == ["5.0", "11"]
    groups = _look(14, groups=[GroupFigures(name="g", state="Stable", members=2, topics=["a"], lag=3)])
    state = looked(state, groups)
    assert _cells(state)[0][2] == "5.0"
    assert _cells(_keys(state, "g")) == [["g", "Stable", "classic", "2", "3", "-", "-", "a"]]
    assert _cells(looked(state, _look(16, {"a": (50, 0)})))[0][2] == "10", "since the last look at topics"


def test_brokers_and_what_is_wrong() -> None:
    led = PartitionMetadata(partition=0, leader=-1, leader_epoch=0, replicas=[1], isr=[])
    status = status_of(CLUSTER, [TopicMetadata(name="t", partitions=[led])], {}, {1: "it is slow"}, [])
    state = _keys(_after(_look(1, status=status, problem="no offsets")), "b")
    assert _cells(state) == [["1", "h:9092", "0", "1", "0", "-", "-", "it is slow"]]
    notice = view_of(state).notice
    assert notice.startswith("1 offline partition, ")
    assert notice.endswith("1 broker with a problem, no offsets")


def test_first_line_counts_the_topics_of_the_table_and_brokers_that_are_down() -> None:
    led = PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=[1, 2], isr=[1])
    topics = [
        TopicMetadata(name="t", partitions=[led]),
        TopicMetadata(name="__consumer_offsets", internal=True, partitions=[led] * 50),
    ]
    status = status_of(CLUSTER, topics, {1: []}, {}, [])
    view = view_of(_after(_look(1, status=status)))
    assert view.head == "cluster c, controller 1, 2 brokers, 1 topic, 1 partition"
    assert view.notice == "51 under-replicated partitions, 1 broker down"
    assert "2 topics, 51 partitions" in view_of(_after(_look(1, status=status, shows_internal=True))).head


def test_a_cluster_that_does_not_answer() -> None:
    assert view_of(failed(TopState(), "refused")).notice == "the cluster does not answer: refused"
    state = failed(_after(_look(1, {"a": (1, 1)})), "refused")
    assert "last known state" in view_of(state).notice
    assert view_of(state).names == ["a"]
    assert view_of(looked(state, _look(2, {"a": (1, 1)}))).notice == ""


def test_moving_stays_with_the_row_when_rows_change() -> None:
    state = _after(_look(1, dict.fromkeys("acd", (0, 0))))
    assert view_of(_keys(state, "k", "up")).selected == 0
    assert view_of(_keys(state, *["down"] * 9)).selected == 2
    assert view_of(_keys(state, "end")).selected == 2
    assert view_of(_keys(state, "end", "home", "page down", "page up", "j")).selected == 1
    state = looked(_keys(state, "j"), _look(3, dict.fromkeys("abcd", (0, 0))))
    assert view_of(state).names[view_of(state).selected] == "c"
    assert view_of(looked(state, _look(5, dict.fromkeys("ab", (0, 0))))).selected == 0, "it has gone"
    assert _keys(TopState(), "j", "enter", "end") == TopState(), "there is nothing to move in or to open"


def test_a_filter_shows_only_matching_rows() -> None:
    state = _keys(_after(_look(1, dict.fromkeys(["orders", "views", "quit"], (0, 0)))), "/", "Q")
    assert view_of(state).names == ["quit"], "keys are letters now"
    assert view_of(_keys(state, "backspace", "e")).names == ["orders", "views"]
    filtered = _keys(state, "enter")
    assert "/Q" in view_of(filtered).foot
    assert view_of(_keys(filtered, "esc")).names == view_of(_keys(state, "esc")).names == ["orders", "views", "quit"]
    assert len(_keys(state, *"x" * 200).filter) == FILTER_MAX
    assert _keys(state, "up") == state, "names of keys are no text"
    assert _keys(filtered, "t").filter == ""


def test_a_topic_is_opened_and_left() -> None:
    state = _keys(_after(_look(1, dict.fromkeys("ab", (0, 0)))), "j", "enter")
    assert state.opened == "b"
    assert arrived(state, "a", Tailed(messages=[_message(1)])) == state, "of a topic that was open before"
    state = arrived(state, "b", Tailed(messages=[_message(2), _message(1)], missed=5, problem="slow"))
    view = view_of(state)
    assert view.names == ["0:2", "0:1"]
    assert "5 more skipped" in view.foot
    assert view.notice == "slow"
    assert _keys(state, "enter") == state
    gone = looked(state, _look(3, {"a": (0, 0)}))
    assert view_of(gone).notice == "topic b does not exist; esc goes back"
    assert _keys(state, "esc").opened is None
    assert view_of(_keys(state, "esc")).selected == 1
    assert _keys(state, "g").opened is None


def test_the_newest_message_is_followed_unless_another_is_chosen() -> None:
    opened = _keys(_after(_look(1, {"a": (0, 0)})), "enter")
    two, three = Tailed(messages=[_message(2), _message(1)]), Tailed(messages=[_message(3), _message(2), _message(1)])
    assert view_of(arrived(arrived(opened, "a", two), "a", three)).selected == 0
    assert view_of(arrived(_keys(arrived(opened, "a", two), "j"), "a", three)).selected == 2
    assert view_of(arrived(_keys(arrived(opened, "a", two), "j", "k"), "a", three)).selected == 0


def test_a_pause_holds_what_is_shown() -> None:
    state = _keys(_after(_look(1, {"a": (0, 0)})), "p")
    assert looked(state, _look(3, {"b": (0, 0)})) == state
    assert "PAUSED" in view_of(state).foot
    assert not _keys(state, "p").paused
    opened = _keys(state, "enter")
    assert not opened.paused, "something else is to be shown"
    paused = _keys(opened, "p")
    assert arrived(paused, "a", Tailed(messages=[_message(1)])) == paused
    assert not _keys(paused, "esc").paused


@pytest.mark.parametrize("keys", [("q",), ("ctrl-c",), ("/", "ctrl-c")])
def test_quit_keys_end_top(keys: tuple[str, ...]) -> None:
    assert _keys(TopState(), *keys).done
    assert not _keys(TopState(), "/", "q").done


def test_trend_of_a_group_is_between_two_looks_at_groups() -> None:
    def look(at_s: float, lag: int) -> Look:
        return _look(
            at_s, groups=[GroupFigures(name="g", state="Stable", type="share", members=1, topics=["a"], lag=lag)]
        )

    state = looked(looked(TopState(tab="groups"), look(10, 500)), look(12, 300))
    assert _cells(state) == [["g", "Stable", "share", "1", "300", "-100/s", "3s", "a"]]
    close = looked(state, look(12.1, 290))
    assert _cells(close) == [["g", "Stable", "share", "1", "290", "-100/s", "2s", "a"]]
    assert _cells(looked(close, look(14, 400)))[0][5:7] == ["+50/s", "-"]


def test_searching_finds_messages_by_key_and_value() -> None:
    message = _message(1, "Hello there", key="user-7", headers="trace=abc")
    assert all(found_in(message, text) for text in ("", "hello", "USER", "abc", "key=user-7"))
    assert not any(found_in(message, text) for text in ("nothing", "key=hello"))
    assert not found_in(_message(1, None), "null")
    state = _keys(_after(_look(1, {"a": (0, 0)})), "enter")
    state = arrived(state, "a", Tailed(messages=[_message(2, "no"), _message(1, "yes"), _message(0, None)]))
    assert [cells[-1] for cells in _cells(state)] == ["no", "yes", "NULL"]
    state = _keys(state, "/", "y")
    assert [cells[-1] for cells in _cells(state)] == ["yes"]
    assert "1 of the newest 3 messages" in view_of(state).foot


def test_figures_of_topics_come_from_leaders() -> None:
    partitions = [
        PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=[1, 2], isr=[1]),
        PartitionMetadata(partition=1, leader=2, leader_epoch=0, replicas=[1, 2], isr=[1, 2]),
    ]
    offline = PartitionMetadata(partition=0, leader=-1, leader_epoch=0, replicas=[1], isr=[])
    topics = [
        TopicMetadata(name="t", partitions=partitions),
        TopicMetadata(name="__own", internal=True, partitions=[]),
        TopicMetadata(name="off", partitions=[offline]),
    ]

    def folder(*sizes: int) -> list[LogDirDescription]:
        replicas = [LogDirReplica(topic="t", partition=n, size_bytes=size) for n, size in enumerate(sizes)]
        return [LogDirDescription(path="/d", replicas=replicas)]

    answers = ClusterAnswers(
        cluster=CLUSTER, topics=topics, folders={1: folder(10, 3), 2: folder(9, 20)}, problems={}, reassignments=[]
    )
    ends = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    off, t = figures_of(answers, ends, internal=False)
    assert (t.end, t.bytes, t.trouble) == (11, 30, "1 under-replicated")
    assert (off.end, off.bytes, off.trouble) == (None, None, "1 offline")
    assert len(figures_of(answers, ends, internal=True)) == 3
    found = [(p.topic, p.partition, p.leader, p.end, p.bytes) for p in partitions_of(answers, ends, internal=False)]
    assert found == [("off", 0, -1, None, None), ("t", 0, 1, 5, 10), ("t", 1, 2, 6, 20)]


MEMBER = MemberDetails(
    member_id="app-1",
    client_id="app",
    client_host="/10.0.0.1",
    group_instance_id="one",
    assignment=[TopicPartition("t", 0)],
)
LAGS = {
    TopicPartition("t", 0): GroupLag(committed=3, end=10, member=MEMBER, unread_since_ms=5_000),
    TopicPartition("t", 1): GroupLag(committed=None, end=10),
    TopicPartition("t", 2): GroupLag(committed=1, end=99),
}
_FIRST = ConnectionDescription(
    connection_id=1,
    listener="PLAIN",
    host="10.0.0.1",
    port=5,
    principal="User:ann",
    is_encrypted=False,
    client_id="app",
    software_name="librdkafka",
    software_version="2.14",
    connected_at_ms=40_000,
    requests=7,
    in_flight=0,
    bytes_in=1024,
    bytes_out=5,
)
CONNECTIONS = [
    _FIRST,
    attrs.evolve(
        _FIRST,
        connection_id=3,
        port=6,
        client_id=None,
        software_name="",
        software_version="",
        connected_at_ms=-1,
        requests=70,
        bytes_in=9,
    ),
]


_IN_FLIGHT = SharePartitionDescription(
    topic="t",
    partition=0,
    start_offset=3,
    acquired=4,
    available=1,
    acknowledged=0,
    archived=2,
    deliveries=[DeliveredRecords(1, 3), DeliveredRecords(2, 2)],
)


class _Admin:
    """A cluster of a broker, of which some things cannot be asked."""

    def __init__(self, groups: int = 0, *, broken: bool = False) -> None:
        self.state, self.type = "Stable", "classic"
        self._groups, self._broken = groups, broken

    def describe_cluster(self) -> DescribeClusterResult:
        return CLUSTER

    def describe_topics(self) -> list[TopicMetadata]:
        return []

    def describe_log_dirs(self, brokers: Sequence[int]) -> dict[int, list[LogDirDescription]]:
        return {broker: [] for broker in brokers}

    def list_reassignments(self) -> list[OngoingReassignment]:
        return []

    def list_offsets(self, asked: Mapping[TopicPartition, str]) -> dict[TopicPartition, int]:
        if self._broken:
            raise BarnabasError("no offsets")
        return dict.fromkeys(asked, 0)

    def list_group_lags(self, *, times: bool) -> list[GroupSummary]:
        assert not times, "the ages of all groups cost too much to repeat"
        if self._broken:
            raise BarnabasError("no groups")
        names = [f"g{number:03}" for number in range(self._groups)]
        return [GroupSummary(group_id=name, state="Stable", protocol_type="consumer", coordinator=1) for name in names]

    def describe_groups(self, groups: Sequence[str]) -> list[GroupDetails]:
        group = GroupDetails(group_id=groups[0], state=self.state, protocol_type="", protocol="", members=[MEMBER])
        return [attrs.evolve(group, type=self.type)]

    def describe_share_partitions(self, _group: str) -> dict[TopicPartition, SharePartitionDescription]:
        if self._broken:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "only Barnabas knows it")
        return {TopicPartition("t", 0): _IN_FLIGHT}

    def group_lag(self, group: str, *, times: bool) -> dict[TopicPartition, GroupLag]:
        assert times
        return LAGS

    def describe_connections(self, brokers: Sequence[int], *, limit: int) -> dict[int, list[ConnectionDescription]]:
        return dict.fromkeys(brokers, CONNECTIONS)


def test_an_open_group_shows_lag_in_each_partition_and_its_members() -> None:
    looker = Looker(cast(Admin, _Admin(groups=1)), internal=False)
    state = _keys(looked(TopState(tab="groups"), looker.take_snapshot(["groups"])), "enter")
    assert (state.opened, state.pane) == ("g000", "partitions")
    assert _cells(state) == []
    look = attrs.evolve(looker.take_snapshot(["groups"], "g000"), at_ms=100_000)
    state = looked(state, look)
    assert _cells(state) == [
        ["t", "0", "3", "10", "7", "95s", "app", "10.0.0.1"],
        ["t", "1", "-", "10", "-", "-", "-", "-"],
        ["t", "2", "1", "99", "98", "-", "-", "-"],
    ]
    assert [cells[4] for cells in _cells(_keys(state, "l"))] == ["98", "7", "-"]
    assert "by lag" in view_of(_keys(state, "l")).foot
    assert [cells[1] for cells in _cells(_keys(state, "/", *"10.0"))] == ["0"]
    members = _keys(state, "tab")
    assert members.pane == "members"
    assert _cells(members) == [["app", "10.0.0.1", "one", "-", "1", "app-1", "t-0"]]
    assert ("members", True) in view_of(members).tabs
    assert _keys(members, "tab").pane == "partitions"
    assert looked(state, attrs.evolve(look, detail=GroupDetail(name="other", exists=True))).detail == state.detail
    dead = _Admin(groups=1)
    dead.state = "Dead"
    gone = looked(state, Looker(cast(Admin, dead), internal=False).take_snapshot(["groups"], "g000"))
    assert view_of(gone).notice == "group g000 does not exist; esc goes back"
    assert _keys(gone, "esc").opened is None


def test_open_share_group_shows_what_is_in_flight() -> None:
    admin = _Admin(groups=1)
    admin.type = "share"
    looker = Looker(cast(Admin, admin), internal=False)
    state = _keys(looked(TopState(tab="groups"), looker.take_snapshot(["groups"])), "enter")
    state = looked(state, attrs.evolve(looker.take_snapshot(["groups"], "g000"), at_ms=100_000))
    assert view_of(state).columns[2] == "start_offset"
    assert _cells(state) == [
        ["t", "0", "3", "10", "7", "95s", "4", "1", "2", "3 once, 2 twice", "0"],
        ["t", "1", "-", "10", "-", "-", "-", "-", "-", "-", "0"],
        ["t", "2", "1", "99", "98", "-", "-", "-", "-", "-", "0"],
    ]
    assert "members" in view_of(_keys(state, "tab")).tabs[-1]


def test_an_open_broker_shows_its_connections() -> None:
    looker = Looker(cast(Admin, _Admin()), internal=False)
    state = _keys(looked(TopState(tab="brokers"), looker.take_snapshot(["brokers"])), "enter")
    state = looked(state, attrs.evolve(looker.take_snapshot(["brokers"], "1"), at_ms=100_000))
    assert isinstance(state.detail, BrokerDetail)
    first = ["app", "librdkafka 2.14", "10.0.0.1:5", "User:ann", "60s", "7", "1.0KiB", "5B", "PLAIN"]
    assert _cells(state) == [first, ["-", "-", "10.0.0.1:6", "User:ann", "-", "70", "9B", "5B", "PLAIN"]]
    assert _cells(_keys(state, "r"))[1] == first
    assert _cells(_keys(state, "s"))[0] == first
    assert _keys(state, "tab") == state, "there is nothing else"


def test_partitions_of_an_open_topic_show_rates_and_sort_by_them() -> None:
    def look(at_s: float, *ends: int) -> Look:
        partitions = [
            PartitionFigures(
                topic=topic, partition=n, leader=1 if n else -1, replicas=(1, 2), isr=(1,), end=end, bytes=end
            )
            for topic in ("a", "b")
            for n, end in enumerate(ends)
        ]
        return _look(at_s, {"a": (1, 1), "b": (1, 1)}, partitions=partitions)

    state = _keys(_after(look(10, 0, 0, 5), look(12, 20, 4000, 5)), "enter", "tab")
    assert (state.opened, state.pane) == ("a", "partitions")
    assert view_of(state).columns == ("partition", "leader", "messages/s", "bytes/s", "end", "size", "replicas", "isr")
    assert _cells(state) == [
        ["0", "-", "10", "10B", "20", "20B", "1,2", "1"],
        ["1", "1", "2000", "2.0KiB", "4000", "3.9KiB", "1,2", "1"],
        ["2", "1", "0", "0B", "5", "5B", "1,2", "1"],
    ]
    assert [cells[0] for cells in _cells(_keys(state, "r"))] == ["1", "0", "2"]
    assert [cells[0] for cells in _cells(_keys(state, "s"))] == ["1", "0", "2"]
    assert "tab messages" in view_of(state).foot
    assert _keys(state, "tab").pane == "messages"


def test_tables_sort_by_rate_lag_and_size_with_unknown_figures_last() -> None:
    looks = [
        _look(10, {"a": (0, 300), "b": (0, None), "c": (0, 5000)}),
        _look(12, {"a": (8, 400), "b": (900, None), "c": (None, 6000)}),
    ]
    state = _after(*looks)
    assert view_of(_keys(state, "r")).names == ["b", "a", "c"]
    assert view_of(_keys(state, "s")).names == ["c", "a", "b"]
    assert view_of(_keys(state, "l")).names == ["a", "b", "c"], "topics have no lag"
    assert view_of(_keys(state, "r", "n")).names == ["a", "b", "c"]
    groups = [GroupFigures(name=name, state="Empty", lag=lag) for name, lag in (("x", 5), ("y", None), ("z", 70))]
    state = looked(_keys(state, "g"), _look(14, groups=groups))
    assert view_of(_keys(state, "l")).names == ["z", "x", "y"]
    assert _keys(state, "/", "l").sort == "name", "keys are letters now"


def test_help_lists_all_keys_until_any_key_is_pressed() -> None:
    state = _keys(_after(_look(1, {"a": (0, 0)})), "?")
    shown = " ".join(cell for row in view_of(state).rows for cell in row.cells)
    for word in ("brokers", "Enter", "Tab", "sort", "filter", "pause", "quit"):
        assert word in shown
    assert view_of(_keys(state, "j")).names == ["a"]
    assert not _keys(state, "esc").done
    assert _keys(state, "q").done
    assert len(drawn(view_of(state), 80, 24, None)) == 24


def test_failed_request_leaves_the_rows_of_the_last_snapshot() -> None:
    state = TopState(tab="groups")
    state = looked(state, Looker(cast(Admin, _Admin(groups=1)), internal=False).take_snapshot(["groups"]))
    broken = Looker(cast(Admin, _Admin(broken=True)), internal=False)
    state = looked(state, broken.take_snapshot(["groups"]))
    assert view_of(state).notice == "no groups"
    assert broken.take_snapshot(["topics"]).problem == "no offsets"
    assert view_of(state).names == ["g000"]


def test_long_messages_are_truncated() -> None:
    tailed = to_tailed(Message(b"x" * 100_000, b"\xff", (("h", None),), 5, "t", 1, 2))
    assert tailed.value is not None
    assert len(tailed.value) == TEXT_MAX + 1
    assert (tailed.key, tailed.headers, tailed.partition, tailed.offset) == (r"\xff", "h=NULL", 1, 2)
    assert to_tailed(Message(None)).value is None


def test_texts_of_numbers_rates_and_times() -> None:
    assert [number_text(number) for number in (None, 0, 0.25, 9.96, 1234.4)] == ["-", "0", "0.2", "10.0", "1234"]
    assert time_text(1_700_000_000_000) == "2023-11-14T22:13:20"
    assert time_text(10**18) == "@1000000000000000000"
    assert time_text(None) is time_text(-1) is None
    assert clean("a\x1b[2J\nb\u202ec") == r"a\x1b[2J\nb\u202ec"


def test_keys_from_bytes() -> None:
    reader = KeyReader()
    assert reader.feed(b"a\x1b[A\x1bOB\r\x7f\x03\x1b[5~\x1b[1;5C") == [
        "a", "up", "down", "enter", "backspace", "ctrl-c", "page up",
    ]  # fmt: skip
    assert reader.feed("é".encode()[:1]) == []
    assert reader.feed("é".encode()[1:]) == ["é"]
    assert reader.feed(b"\x1b") == []
    assert reader.waits
    assert reader.feed(b"[") == []
    assert reader.feed(b"B") == ["down"]
    reader.feed(b"\x1b")
    assert reader.flush() == ["esc"]
    assert reader.flush() == []
    assert reader.feed(b"\x1bp\x1b\x1b[A") == ["esc", "p", "esc", "up"]
    assert reader.feed(b"\x1b[" + b"1" * 5000)[0] == "esc", "what has no end is not kept"


def test_the_screen_is_filled_and_no_wider() -> None:
    state = _after(_look(1, {f"topic-{number:03}": (number, number) for number in range(100)}))
    state = _keys(state, *["j"] * 50)
    for width, height in ((80, 24), (30, 8), (10, 3), (1, 1)):
        lines = drawn(view_of(state), width, height, None)
        assert len(lines) == height
        assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines) <= width
    text = "\n".join(drawn(view_of(state), 80, 24, None))
    assert "topic-050" in text
    assert "topic-000" not in text
    assert [first_shown(at, 100, 10) for at in (0, 4, 50, 99)] == [0, 0, 45, 90]
    assert first_shown(2, 3, 10) == 0
