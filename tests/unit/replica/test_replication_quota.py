"""Replicas that topics name are copied no quicker than the rate, while they are not in sync."""

import pytest
from support.replica_cluster import KEY, ReplicaCluster

from barnabas.core.log.config import LogConfig
from barnabas.core.replica.partition.replication_quota import UNTHROTTLED
from barnabas.core.replica.settings import ReplicationSettings
from barnabas.ports.error_codes import ErrorCode

SIDES = ("leader", "follower")
VALUE = b"x" * 1000
COUNT = 100


class Throttled:
    """Broker 3 has fallen behind by `COUNT` KB of partition 0, and is about to catch up."""

    def __init__(self, side: str, rate: int, named: str) -> None:
        self.rate = rate
        config = LogConfig(**{f"{side}_replication_throttled_replicas": frozenset({named})})  # type: ignore[arg-type]
        settings = ReplicationSettings(
            lag_time_max_ms=2000,
            fetch_wait_max_ms=100,
            fetch_max_bytes=1000,
            **{f"{side}_rate": lambda: self.rate},  # type: ignore[arg-type]
        )
        self.cluster = cluster = ReplicaCluster(config=config, settings=settings)
        cluster.isolate(3)
        for _ in range(COUNT):
            cluster[1].produce(VALUE)
        cluster.until(lambda: cluster.state.isr == (1, 2))
        cluster.heal()
        self.began_ms = cluster.clock.monotonic_ms()

    @property
    def copied(self) -> int:
        return self.cluster[3].log.log_end_offset

    def caught_up_ms(self) -> float:
        """Return the time until the follower has caught up."""
        self.cluster.until(lambda: self.cluster.state.isr == (1, 2, 3))
        assert self.copied == COUNT
        return self.cluster.clock.monotonic_ms() - self.began_ms


def own(side: str) -> str:
    """Return the topic config that names the throttled replicas of this side."""
    return "0:1" if side == "leader" else "0:3"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("by_name", [True, False])
def test_throttled_replication_takes_time_of_its_rate(side: str, by_name: bool) -> None:
    throttled = Throttled(side, 10_000, own(side) if by_name else "*")
    before = len(throttled.cluster[3].fetches)
    assert throttled.caught_up_ms() == pytest.approx(COUNT * 1070 / 10, rel=0.15)
    asked = len(throttled.cluster[3].fetches) - before
    assert asked < 3 * COUNT, "it does not ask again and again meanwhile"


@pytest.mark.parametrize("side", SIDES)
def test_in_sync_replica_is_not_throttled(side: str) -> None:
    throttled = Throttled(side, 1000, "*")
    cluster = throttled.cluster
    observed = cluster[1].produce(b"now")
    cluster.run(200)
    assert [each.error for each in observed] == [ErrorCode.NONE]
    assert cluster[2].visible[-1] == b"now"
    assert throttled.copied < 10


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("named", ["1:1", "1:3", "0:2", "10:1"])
def test_others_are_not_meant(side: str, named: str) -> None:
    assert Throttled(side, 1000, named).caught_up_ms() < 5000


@pytest.mark.parametrize("side", SIDES)
def test_nothing_at_all_until_the_rate_is_changed(side: str) -> None:
    throttled = Throttled(side, 0, "*")
    throttled.cluster.run(20_000)
    assert throttled.copied == 0
    throttled.rate = UNTHROTTLED
    throttled.began_ms = throttled.cluster.clock.monotonic_ms()
    assert throttled.caught_up_ms() < 3000
    assert throttled.cluster[3].replicas.partitions[KEY].high_watermark == COUNT
