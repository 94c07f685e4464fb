"""Apache Kafka's consumers and franz-go in one live group that moves to KIP-848 and back, at a broker process."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.process import BrokerProcess, broker_process
from support.verifiable_members import GROUP, TOPIC, MemberGroup, franz_go_member, java_member, sending

from barnabas import Admin

pytestmark = [pytest.mark.process, pytest.mark.slow]

PARTITIONS = 6
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=200",
    "group.consumer.heartbeat.interval.ms=500",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=6000",
)
Kind = Callable[[Path, str, str, str], Sequence[str]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "data", *SETTINGS) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield running


@pytest.fixture
def members(broker: BrokerProcess, tmp_path: Path) -> Iterator[MemberGroup]:
    with MemberGroup(tmp_path, broker.bootstrap, PARTITIONS) as made:
        yield made


def expect_each_once(members: MemberGroup, admin: Admin, sent: int) -> None:
    """End the members; each message that could be committed was read once, and the last commits are at the ends."""
    members.wait_until(lambda: len(set(members.offsets())) >= sent)
    while members.alive:
        members.stop_oldest()
    counts = Counter(members.offsets())
    assert members.failures() == []
    assert {tp for tp, count in counts.items() if count > 1} <= members.uncommitted()
    assert len(counts) == sent
    assert {tp.partition: lag.lag for tp, lag in admin.group_lag(GROUP).items()} == dict.fromkeys(range(PARTITIONS), 0)


def group_type(admin: Admin) -> str | None:
    found: str | None = admin.describe_group(GROUP).type
    return found


def wait_for_type(members: MemberGroup, admin: Admin, expected: str) -> None:
    members.wait_until(lambda: group_type(admin) == expected)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "kinds",
    [(java_member, java_member), (franz_go_member, franz_go_member), (java_member, franz_go_member)],
    ids=["java", "franz-go", "both"],
)
def test_live_group_moves_to_the_consumer_protocol_and_back(
    members: MemberGroup, kinds: Sequence[Kind], strategy: str
) -> None:
    with Admin(members.bootstrap) as admin:
        with sending(members.bootstrap, PARTITIONS) as sent:
            for kind in kinds:
                members.join(kind, "classic", strategy)
            members.wait_until_shared()
            assert group_type(admin) == "classic"
            for protocol, types in (("consumer", ("consumer", "consumer")), ("classic", ("consumer", "classic"))):
                for kind, after in zip(kinds, types, strict=True):
                    members.join(kind, protocol, strategy)
                    members.wait_until_shared()
                    assert group_type(admin) == "consumer"
                    members.stop_oldest()
                    members.wait_until_shared()
                    wait_for_type(members, admin, after)
        expect_each_once(members, admin, len(sent))


@pytest.mark.parametrize("kind", [java_member, franz_go_member], ids=["java", "franz-go"])
def test_classic_members_stay_when_the_last_new_member_dies(members: MemberGroup, kind: Kind) -> None:
    """It sends no farewell: its session lapses. What it had not committed comes again, and nothing else does."""
    with Admin(members.bootstrap) as admin:
        with sending(members.bootstrap, PARTITIONS) as sent:
            for _ in range(2):
                members.join(kind, "classic")
            members.wait_until_shared()
            members.join(kind, "consumer")
            members.wait_until_shared()
            dying = members.alive.pop()
            members.wait_until(lambda: dying.commits > 0)
            assert group_type(admin) == "consumer"
            dying.kill()
            members.wait_until_shared()
            wait_for_type(members, admin, "classic")
        members.wait_until(lambda: len(set(members.offsets())) >= len(sent))
        while members.alive:
            members.stop_oldest()
        assert members.failures() == []
        lags = {tp.partition: lag.lag for tp, lag in admin.group_lag(GROUP).items()}
        assert lags == dict.fromkeys(range(PARTITIONS), 0)
    last = {partition: (first, end) for partition, first, end in dying.ranges}
    """The last messages of each partition, which the member may not have committed."""
    doubled = [tp for tp, count in Counter(members.offsets()).items() if count > 1]
    assert [(number, at) for number, at in doubled if not last[number][0] <= at <= last[number][1]] == []
