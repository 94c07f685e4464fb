"""`barnabas groups`, `barnabas configs` and what is new in `barnabas topics`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from support.command import Command
from support.group_member import IdleMember
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Message, Producer
from barnabas.app.cli.times import parse_duration_ms, parse_period_ms, parse_time_ms
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition

START_MS = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Topic `t`: partition 0 with ten messages, one a second; 1 with one."""
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0) as running:
        with Admin(running) as admin:
            admin.create_topic("t", partitions=2)
        with Producer(running) as producer:
            sent = [Message(b"%d" % n, timestamp_ms=START_MS + n * 1000) for n in range(10)]
            producer.send_many("t", sent, partition=0).result(PATIENCE_S)
            producer.send("t", b"a", partition=1).result(PATIENCE_S)
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker) as client:
        yield client


@pytest.fixture
def barnabas(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "--bootstrap", broker.bootstrap)


@pytest.mark.parametrize(
    "words",
    [
        *(["groups", name] for name in ("list", "describe", "reset-offsets", "delete", "delete-offsets")),
        *(
            ["groups", "share", name]
            for name in ("describe-offsets", "alter-offsets", "reset-offsets", "delete-offsets")
        ),
        *(["configs", name] for name in ("describe", "set", "delete")),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert "Usage: barnabas " + " ".join(words) in Command(capsys)(*words, "--help").out


# --- groups


def test_groups_are_listed(barnabas: Command, admin: Admin) -> None:
    admin.alter_group_offsets("listed", {T0: 1})
    with_state = {"group": "listed", "state": "Empty", "type": "classic", "protocol": ""}
    assert with_state in json.loads(barnabas("groups", "list", "--no-lag", "--json").out)
    assert with_state in json.loads(barnabas("groups", "list", "--no-lag", "--state", "Empty", "--json").out)
    assert "listed" not in barnabas("groups", "list", "--state", "Stable").out
    lines = barnabas("groups", "list", "--no-lag").out.splitlines()
    assert ["listed", "Empty", "classic", "-"] in [line.split() for line in lines]
    (row,) = [row for row in json.loads(barnabas("groups", "list", "--json").out) if row["group"] == "listed"]
    assert row.items() >= {**with_state, "members": 0, "lag": 9, "topics": ["t"]}.items()


def test_a_group_is_described(barnabas: Command, admin: Admin) -> None:
    admin.alter_group_offsets("described", {T0: 4})
    member = IdleMember(admin, "described", [T0, T1], instance="one")
    observed = json.loads(barnabas("groups", "describe", "described", "--json").out)
    assert (observed["group"], observed["state"], observed["lag"]) == ("described", "Stable", 6)
    columns = ("topic", "partition", "committed", "log_end_offset", "lag", "member")
    assert [tuple(row[column] for column in columns) for row in observed["partitions"]] == [
        ("t", 0, 4, 10, 6, member.member_id),
        ("t", 1, None, 1, None, member.member_id),
    ]
    assert barnabas("groups", "describe", "described").out.splitlines()[0] == "described  Stable  lag 6"
    assert barnabas("groups", "describe", "described", "--offsets").out.splitlines()[3].split()[:5] == [
        *("t", "1", "-", "1", "-")
    ]
    (one,) = json.loads(barnabas("groups", "describe", "described", "--members", "--json").out)["members"]
    assert (one["member"], one["instance"], one["assignment"]) == (member.member_id, "one", {"t": [0, 1]})
    assert barnabas("groups", "describe", "described", "--members").out.splitlines()[1].split()[-2:] == ["2", "t:0,1"]
    state = json.loads(barnabas("groups", "describe", "described", "--state", "--json").out)
    assert (state["state"], state["assignor"], state["members"]) == ("Stable", "range", 1)
    assert "range" in barnabas("groups", "describe", "described", "--state").out
    refused = barnabas("groups", "reset-offsets", "described", "--all-topics", "--to-latest", expect=1)
    assert member.member_id in refused.err
    assert refused.err.count("\n") == 1
    assert "NON_EMPTY_GROUP" in barnabas("groups", "delete", "described", expect=1).err


def test_nothing_changes_before_execute(barnabas: Command, admin: Admin) -> None:
    admin.alter_group_offsets("reset", {T0: 4, T1: 1})
    where = ("groups", "reset-offsets", "reset", "--all-topics", "--to-earliest")
    plan = barnabas(*where)
    assert [line.split() for line in plan.out.splitlines()[1:]] == [
        ["t", "0", "4", "0", "0", "10", "10"],
        ["t", "1", "1", "0", "0", "1", "1"],
    ]
    assert "--execute" in plan.err
    assert {tp: found.offset for tp, found in admin.group_offsets("reset").items()} == {T0: 4, T1: 1}
    done = json.loads(barnabas(*where, "--execute", "--json").out)
    assert (done["executed"], [row["after"] for row in done["partitions"]]) == (True, [0, 0])
    assert {tp: found.offset for tp, found in admin.group_offsets("reset").items()} == {T0: 0, T1: 0}


@pytest.mark.parametrize(
    ("where", "after"),
    [
        (["--to-latest"], 10),
        (["--to-datetime", datetime.fromtimestamp(START_MS / 1000 + 7, UTC).isoformat()], 7),
        (["--by-duration", "1h"], 10),
        (["--by-duration", "P99999D"], 0),
        (["--to-offset", "3"], 3),
        (["--shift-by", "-2"], 3),
        (["--shift-by", "2"], 7),
    ],
    ids=str,
)
def test_reset_offsets_moves_group_to_chosen_position(
    barnabas: Command, admin: Admin, where: list[str], after: int
) -> None:
    admin.alter_group_offsets("moved", {T0: 5})
    observed = json.loads(barnabas("groups", "reset-offsets", "moved", "--topic", "t:0", *where, "--json").out)
    assert [(row["partition"], row["before"], row["after"]) for row in observed["partitions"]] == [(0, 5, after)]


def test_offsets_and_groups_are_deleted(barnabas: Command, admin: Admin) -> None:
    admin.alter_group_offsets("deleted", {T0: 5, T1: 1})
    assert "t:1" in barnabas("groups", "delete-offsets", "deleted", "--topic", "t:1").out
    assert list(admin.group_offsets("deleted")) == [T0]
    refused = barnabas("groups", "delete-offsets", "deleted", "--topic", "t:1", expect=2)
    assert "no committed offsets there" in refused.err
    assert barnabas("groups", "delete", "deleted").out == "deleted deleted\n"
    for words in (["delete"], ["describe"], ["delete-offsets", "--topic", "t"]):
        gone = barnabas("groups", words[0], "deleted", *words[1:], expect=1)
        assert "groups list" in gone.err
        assert gone.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to-latest"], "--all-topics"),
        (["--all-topics", "--topic", "t", "--to-latest"], "--all-topics"),
        (["--all-topics"], "exactly one"),
        (["--all-topics", "--to-latest", "--shift-by", "1"], "exactly one"),
        (["--all-topics", "--to-latest"], "committed nothing"),
        (["--topic", "t:x", "--to-latest"], "TOPIC:0,1"),
        (["--topic", "t", "--to-datetime", "noon"], "2026-01-31"),
        (["--topic", "t", "--by-duration", "P1M"], "90m"),
        (["--topic", "t", "--by-duration", "soon"], "90m"),
        (["--topic", "t", "--shift-by", "1"], "earliest or latest"),
    ],
    ids=str,
)
def test_a_reset_that_makes_no_sense(barnabas: Command, words: list[str], said: str) -> None:
    failed = barnabas("groups", "reset-offsets", "unheard-of", *words, expect=2)
    assert said in failed.err
    assert failed.err.count("\n") == 1


def test_only_one_view_of_a_group(barnabas: Command) -> None:
    assert "one of" in barnabas("groups", "describe", "g", "--members", "--state", expect=2).err


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90m", 5_400_000), ("2h30m", 9_000_000), ("P1DT1.5S", 86_401_500), ("PT90M", 5_400_000), ("2w", 1_209_600_000)],
)
def test_duration_texts_parse_to_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text, "--by-duration") == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("30s", 30_000), ("1h30m", 5_400_000), ("0.5s", 500), ("500ms", 500), ("5m1ms", 300_001), ("1d", 86_400_000)],
)
def test_period_texts_parse_to_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_period_ms(text, "--every") == milliseconds


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "5 m", "5x", "-1s", "soon"])
def test_wrong_period_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--every '.*' is not a duration; give 30s, 5m or 1h"):
        parse_period_ms(text, "--every")


def test_time_texts_parse_to_milliseconds() -> None:
    def time_ms(text: str) -> int:
        return parse_time_ms(text, "--to-datetime", now_ms=START_MS)

    assert time_ms("2023-11-14T22:13:20") == time_ms("2023-11-14T23:13:20+01:00") == START_MS
    assert time_ms("2023-11-14T22:13:20.5Z") == START_MS + 500
    assert time_ms("-90m") == time_ms("1h30m") == START_MS - 5_400_000
    assert time_ms("now") == time_ms(f"@{START_MS}") == time_ms(str(START_MS)) == START_MS
    for wrong in ("", "-", "soon", "12", "@", "-2023-11-14"):
        with pytest.raises(ConfigError, match="--to-datetime"):
            time_ms(wrong)


# --- configs


def test_settings_of_a_topic(barnabas: Command, admin: Admin) -> None:
    admin.create_topic("set", configs={"retention.ms": "1000"})
    of = ("--topic", "set")
    changed = barnabas("configs", "set", "segment.bytes=1048576", *of).out
    assert changed == "changed topic set: segment.bytes 1073741824 (default) -> 1048576\n"
    observed = {each["key"]: each for each in json.loads(barnabas("configs", "describe", *of, "--json").out)}
    assert {key: (each["value"], each["source"]) for key, each in observed.items()} == {
        "retention.ms": ("1000", "topic"),
        "segment.bytes": ("1048576", "topic"),
    }
    assert observed["segment.bytes"]["instead"][-1] == {
        "key": "log.segment.bytes",
        "value": "1073741824",
        "source": "default",
    }
    changed = barnabas("configs", "delete", "retention.ms", "segment.bytes", *of).out
    assert changed == "changed topic set: retention.ms 1000 -> default, segment.bytes 1048576 -> default\n"
    assert json.loads(barnabas("configs", "describe", *of, "--json").out) == []
    assert barnabas("configs", "describe", "retention.ms", *of).out.splitlines()[1].split() == [
        *("retention.ms", "604800000", "default")
    ]
    assert "cleanup.policy" in barnabas("configs", "describe", "--all", "--explain", *of).out
    assert "no setting retention" in barnabas("configs", "describe", "retention", *of, expect=2).err
    wrong = barnabas("configs", "set", "segment.byte=1", *of, expect=1)
    assert "segment.bytes" in wrong.err
    assert wrong.err.count("\n") == 1


def test_settings_of_brokers(barnabas: Command, admin: Admin) -> None:
    here = str(admin.describe_cluster().controller_id)
    changed = barnabas("configs", "set", "log.retention.ms=100000", "--broker-default").out
    assert changed == "changed the default of all brokers: log.retention.ms (not set) -> 100000\n"
    barnabas("configs", "set", "log.segment.bytes=1048576", "--broker", here)
    assert barnabas("configs", "describe", "--broker-default").out.splitlines()[1].split() == [
        *("log.retention.ms", "100000", "dynamic-default-broker")
    ]
    observed = json.loads(barnabas("configs", "describe", "--broker", here, "--json").out)
    dynamic = {each["key"]: each["source"] for each in observed if each["source"].startswith("dynamic")}
    assert dynamic == {"log.retention.ms": "dynamic-default-broker", "log.segment.bytes": "dynamic-broker"}
    barnabas("configs", "delete", "log.retention.ms", "--broker-default")
    barnabas("configs", "delete", "log.segment.bytes", "--broker", here)
    assert json.loads(barnabas("configs", "describe", "--broker-default", "--json").out) == []
    assert "restart" in barnabas("configs", "set", "listeners=kafka://a:1", "--broker", here, expect=1).err
    assert "unknown broker 99" in barnabas("configs", "describe", "--broker", "99", expect=2).err
    for words in ((), ("--topic", "t", "--broker-default"), ("--topic", "t", "--group", "t")):
        assert "select a resource" in barnabas("configs", "describe", *words, expect=2).err


def test_settings_of_groups(barnabas: Command) -> None:
    of = ("--group", "orders/new")
    changed = barnabas("configs", "set", "share.delivery.count.limit=7", "consumer.session.timeout.ms=50000", *of).out
    assert changed == (
        "changed group orders/new: share.delivery.count.limit 5 (default) -> 7,"
        " consumer.session.timeout.ms 45000 (default) -> 50000\n"
    )
    assert [line.split() for line in barnabas("configs", "describe", *of).out.splitlines()] == [
        ["KEY", "VALUE", "SOURCE"],
        ["consumer.session.timeout.ms", "50000", "group"],
        ["share.delivery.count.limit", "7", "group"],
    ]
    assert (
        "group.share.max.delivery.count.limit"
        in barnabas("configs", "set", "share.delivery.count.limit=11", *of, expect=1).err
    )
    barnabas("configs", "delete", "share.delivery.count.limit", "consumer.session.timeout.ms", *of)
    assert json.loads(barnabas("configs", "describe", *of, "--json").out) == []


# --- topics


def test_topics_that_are_there_or_not(barnabas: Command, admin: Admin) -> None:
    created = barnabas("topics", "create", "once", "-p", "2", "--if-not-exists").out
    assert created == "created once: 2 partitions, 1 replica each\n"
    described = barnabas("topics", "describe", "once").out.splitlines()
    assert [line.split()[3:5] for line in described[1:]] == [["REPLICAS", "ISR"], ["1", "1"], ["1", "1"]]
    altered = barnabas("topics", "alter", "once", "-p", "3", "--set", "retention.ms=5").out
    assert altered == "changed once: partitions 2 -> 3, retention.ms 604800000 (default) -> 5\n"
    assert barnabas("topics", "create", "once", "--if-not-exists").out == "once exists\n"
    assert "TOPIC_ALREADY_EXISTS" in barnabas("topics", "create", "once", expect=1).err
    assert barnabas("topics", "delete", "once", "--if-exists").out == "deleted once\n"
    assert barnabas("topics", "delete", "once", "--if-exists").out == "once does not exist\n"
    admin.alter_group_offsets("g", {T0: 1})
    assert "__consumer_offsets" not in barnabas("topics", "list").out
    assert "__consumer_offsets" in barnabas("topics", "list", "--internal").out
