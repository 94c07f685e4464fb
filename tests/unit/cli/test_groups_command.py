"""`barnabas groups`: the trend of a lag between two looks, and what a share group has in flight."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from barnabas.app.cli.groups.command import parse_offsets, show_offsets
from barnabas.app.cli.groups.trend import Trend, age_trend_text, done_in_ms, done_in_text, trend_of, trend_text
from barnabas.app.clients.admin.admin import Admin
from barnabas.app.clients.admin.group_details import GroupDetails, GroupLag, MemberDetails
from barnabas.ports.broker_api.configs import ConfigEntry, ResourceKind
from barnabas.ports.broker_api.metadata import PartitionMetadata, TopicMetadata
from barnabas.ports.broker_api.share_partitions import DeliveredRecords, HeldRecords, SharePartitionDescription
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((100, 5_000), (80, 4_000), Trend(-10.0, -500.0)),
        ((0, 0), (0, 0), Trend(0.0, 0.0)),
        ((None, None), (5, 100), Trend()),
        ((5, 100), (None, None), Trend()),
        (None, (5, 100), Trend()),
    ],
)
def test_trend_is_the_change_in_a_second(
    before: tuple[int | None, int | None] | None, now: tuple[int | None, int | None], expected: Trend
) -> None:
    assert trend_of(before, now, 2.0) == expected
    assert trend_of(before, now, 0.0) == Trend()


def test_shrinking_lag_will_be_gone() -> None:
    assert done_in_ms(80, Trend(-10.0, None)) == 8_000
    assert done_in_ms(0, Trend()) == 0
    assert done_in_ms(80, Trend(0.0, None)) is None
    assert done_in_ms(80, Trend(3.0, None)) is None
    assert done_in_ms(None, Trend(-3.0, None)) is None
    assert [done_in_text(each) for each in (None, 0, 8_000, 180_000)] == ["-", "0s", "8s", "3min"]


def test_trends_have_a_sign() -> None:
    assert [trend_text(each) for each in (None, 0.0, 0.04, 0.5, -2.25, 1234.5)] == [
        *("-", "0/s", "0/s", "+0.5/s", "-2.2/s", "+1234/s")
    ]
    assert [age_trend_text(each) for each in (None, 0.0, 1_000.0, -12_340.0)] == ["-", "0s/s", "+1.0s/s", "-12.3s/s"]


def test_offsets_to_set_name_topic_and_partition() -> None:
    assert parse_offsets(["a:b:0=5", "c:12=0"]) == {TopicPartition("a:b", 0): 5, TopicPartition("c", 12): 0}
    for wrong in ("a=5", "a:0", "a:x=5", "a:0=-1", ":0=1"):
        with pytest.raises(ConfigError, match="TOPIC:PARTITION=OFFSET"):
            parse_offsets([wrong])


MEMBERS = [MemberDetails(member_id=name, client_id="c", client_host="h") for name in ("m1", "m2")]
DETAILS = GroupDetails(
    group_id="s",
    state="Stable",
    protocol_type="share",
    protocol="simple",
    members=MEMBERS,
    type="share",
    group_epoch=5,
    assignment_epoch=4,
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class _Admin:
    """Describes the share group; `is_kafka`: only what Kafka says."""

    def __init__(self, *, is_kafka: bool = False) -> None:
        self._is_kafka = is_kafka

    def group_lag(self, _name: str, *, times: bool) -> dict[TopicPartition, GroupLag]:
        assert times
        return {
            T0: GroupLag(committed=10, end=40, members=MEMBERS, unfinished=25),
            T1: GroupLag(committed=7, end=7, members=MEMBERS[:1], unfinished=0),
        }

    def describe_share_partitions(self, _name: str) -> dict[TopicPartition, SharePartitionDescription]:
        if self._is_kafka:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "no")
        deliveries = [DeliveredRecords(1, 9), DeliveredRecords(2, 3), DeliveredRecords(5, 1)]
        return {
            T0: SharePartitionDescription(
                topic="t",
                partition=0,
                start_offset=10,
                acquired=12,
                available=1,
                acknowledged=4,
                archived=2,
                deliveries=deliveries,
                holders=[HeldRecords("m1", 12, 9_000)],
            )
        }

    def describe_configs(self, kind: ResourceKind, name: str, keys: Sequence[str]) -> list[ConfigEntry]:
        assert (kind, name) == (ResourceKind.GROUP, "s")
        if self._is_kafka:
            return []
        return [ConfigEntry(name=keys[0], value="dlq.s")]

    def describe_topic(self, name: str) -> TopicMetadata:
        partition = PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=[1], isr=[1])
        return TopicMetadata(name=name, partitions=[partition])

    def list_offsets(self, places: dict[tuple[str, int], str]) -> dict[tuple[str, int], int]:
        return {tp: 3 if which == "earliest" else 9 for tp, which in places.items()}


def test_share_group_is_shown_with_what_is_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    show_offsets(cast(Admin, _Admin()), DETAILS, None, as_json=False)
    head, letters, columns, first, second = capsys.readouterr().out.splitlines()
    assert head == "s  Stable  share  epoch 5, assignment 4  lag 25"
    assert letters == "dead letters: 6 in dlq.s"
    assert columns.split() == [
        *("TOPIC", "PARTITION", "START_OFFSET", "LOG_END_OFFSET", "LAG", "LAG_TIME"),
        *("ACQUIRED", "AVAILABLE", "GIVEN_UP", "DELIVERIES", "MEMBERS"),
    ]
    assert first.split()[6:9] == ["12", "1", "2"]
    assert "9 once, 3 twice, 1 5 times" in first
    assert second.split() == ["t", "1", "7", "7", "0", "0s", "-", "-", "-", "-", "1"]


def test_share_group_is_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_offsets(cast(Admin, _Admin()), DETAILS, None, as_json=True)
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (shown["type"], shown["group_epoch"], shown["dead_letters"]) == (
        *("share", 5),
        {"topic": "dlq.s", "messages": 6},
    )
    partition = shown["partitions"][0]
    assert partition["members"] == ["m1", "m2"]
    assert partition["deliveries"] == {"1": 9, "2": 3, "5": 1}
    assert partition["holders"] == [{"member": "m1", "messages": 12, "lock_ms": 9_000}]


def test_share_group_of_kafka_is_shown_without_what_is_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    show_offsets(cast(Admin, _Admin(is_kafka=True)), DETAILS, None, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["t", "0", "10", "40", "25", "-", "-", "-", "-", "-", "2"]
