"""The settings of replication between brokers (facts D9). Their Kafka keys are in `app.config`."""

from collections.abc import Callable

from ...ports.values import frozen
from .partition.replication_quota import UNTHROTTLED


def _unthrottled() -> int:
    return UNTHROTTLED


def _never() -> bool:
    return False


@frozen(kw_only=True)
class ReplicationSettings:
    """`replica.lag.time.max.ms`, `replica.fetch.*`, `*.replication.throttled.rate`; times in ms."""

    lag_time_max_ms: float = 30_000
    fetch_wait_max_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1_048_576
    """The limit for each partition."""
    fetch_response_max_bytes: int = 10_485_760
    fetch_backoff_ms: float = 1000
    """The wait after an error; the first attempts come sooner."""
    hastens_high_watermark: bool = False
    """True if followers get a new high watermark at once, as consumers read from them (`replica.selector.class`). Else
    they get it with the next records, at the latest when their fetch has waited: the answer for it alone would double
    the fetches of a partition with acks=all (KAFKA-9731)."""
    leader_rate: Callable[[], int] = _unthrottled
    """The bytes per second of throttled replicas that others may fetch here now; see `ReplicationQuotaManager`."""
    follower_rate: Callable[[], int] = _unthrottled
    """The bytes per second of throttled replicas that this broker may fetch now."""

    begins_in_tier: Callable[[], bool] = _never
    """True if a new follower begins at the end of what is in remote storage (KIP-1023)."""

    @property
    def isr_silence_max_ms(self) -> float:
        """A follower fetches at least once in `replica.fetch.wait.max.ms`. One that has not fetched for this long may
        follow another leader, as far as a leader without the lease can know."""
        return max(2000.0, 4.0 * self.fetch_wait_max_ms)


DEFAULT_SETTINGS = ReplicationSettings()
