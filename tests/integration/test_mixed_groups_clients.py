"""Apache Kafka's consumers and franz-go in one live group that moves to KIP-848 and back, at a broker process."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.process import BrokerProcess, broker_process
from support.verifiable_members import GROUP, TOPIC, Crew, franz_go_member, java_member, sending

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
def crew(broker: BrokerProcess, tmp_path: Path) -> Iterator[Crew]:
    with Crew(tmp_path, broker.bootstrap, PARTITIONS) as made:
        yield made


def expect_each_once(crew: Crew, admin: Admin, sent: int) -> None:
    """End the members; each message that could be committed was read once, and the last commits are at the ends."""
    crew.wait_until(lambda: len(set(crew.offsets())) >= sent)
    while crew.alive:
        crew.stop_oldest()
    counts = Counter(crew.offsets())
    assert crew.failures() == []
    assert {place for place, count in counts.items() if count > 1} <= crew.uncommitted()
    assert len(counts) == sent
    assert {place.partition: lag.lag for place, lag in admin.group_lag(GROUP).items()} == dict.fromkeys(
        range(PARTITIONS), 0
    )


def group_type(admin: Admin) -> str | None:
    found: str | None = admin.describe_group(GROUP).type
    return found


def wait_for_type(crew: Crew, admin: Admin, expected: str) -> None:
    crew.wait_until(lambda: group_type(admin) == expected)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "kinds",
    [(java_member, java_member), (franz_go_member, franz_go_member), (java_member, franz_go_member)],
    ids=["java", "franz-go", "both"],
)
def test_live_group_moves_to_the_consumer_protocol_and_back(crew: Crew, kinds: Sequence[Kind], strategy: str) -> None:
    with Admin(crew.bootstrap) as admin:
        with sending(crew.bootstrap, PARTITIONS) as sent:
            for kind in kinds:
                crew.join(kind, "classic", strategy)
            crew.wait_until_shared()
            assert group_type(admin) == "classic"
            for protocol, types in (("consumer", ("consumer", "consumer")), ("classic", ("consumer", "classic"))):
                for kind, after in zip(kinds, types, strict=True):
                    crew.join(kind, protocol, strategy)
                    crew.wait_until_shared()
                    assert group_type(admin) == "consumer"
                    crew.stop_oldest()
                    crew.wait_until_shared()
                    wait_for_type(crew, admin, after)
        expect_each_once(crew, admin, len(sent))


@pytest.mark.parametrize("kind", [java_member, franz_go_member], ids=["java", "franz-go"])
def test_classic_members_stay_when_the_last_new_member_dies(crew: Crew, kind: Kind) -> None:
    """It sends no farewell: its session lapses. What it had not committed comes again, and nothing else does."""
    with Admin(crew.bootstrap) as admin:
        with sending(crew.bootstrap, PARTITIONS) as sent:
            for _ in range(2):
                crew.join(kind, "classic")
            crew.wait_until_shared()
            crew.join(kind, "consumer")
            crew.wait_until_shared()
            dying = crew.alive.pop()
            crew.wait_until(lambda: dying.commits > 0)
            assert group_type(admin) == "consumer"
            dying.kill()
            crew.wait_until_shared()
            wait_for_type(crew, admin, "classic")
        crew.wait_until(lambda: len(set(crew.offsets())) >= len(sent))
        while crew.alive:
            crew.stop_oldest()
        assert crew.failures() == []
        lags = {place.partition: lag.lag for place, lag in admin.group_lag(GROUP).items()}
        assert lags == dict.fromkeys(range(PARTITIONS), 0)
    last = {partition: (first, end) for partition, first, end in dying.ranges}
    """The last messages of each partition, which the member may not have committed."""
    doubled = [place for place, count in Counter(crew.offsets()).items() if count > 1]
    assert [(number, at) for number, at in doubled if not last[number][0] <= at <= last[number][1]] == []
