"""A user's connection to the cluster: its clients, and a snapshot of topics and brokers that a thread refreshes."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any

from .. import Admin, BarnabasError, Producer, SimpleConsumer
from ..app.clients.admin.admin import TransactionListing
from ..app.clients.admin.consumer_lag import GroupSummary
from ..app.tiers import Stored, TierSnapshot, read_tiers
from ..ports.broker_api.cluster import BrokerNode
from ..ports.broker_api.metadata import TopicMetadata
from ..ports.types import TopicPartition
from ..ports.values import frozen

if TYPE_CHECKING:
    from ..audit.reading import AuditReader
    from ..audit.reconcile import Reconciliation

API_TIMEOUT_MS = 8_000
"""The time that a page waits for an answer of the cluster."""
FETCH_BYTES = 1024 * 1024
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
FIRST_S = 4.0
"""The time that a page waits for the first value of a thread; then it says that the cluster is being read."""
INTERVAL_S = 5.0
"""The shortest time from one snapshot to the next."""
SHARE_MAX = 0.05
"""The share of time that snapshots may take: after one that took 1 s, the next begins 20 s later."""
IDLE_S = 120.0
"""Without a look at a page for this long, no further snapshots are taken."""
AUDIT_AGE_MS = 24 * 3_600_000
"""The age of the windows that an audit compares."""
LAGS_MAX = 60
"""The number of lags of each group that are remembered."""
TREND_MS = 300_000
"""The time over which a trend is the mean."""
_NO_LAG = -1
HISTORY_MAX = 240
"""The number of points of a chart of rates."""


@frozen(kw_only=True)
class TopicRow:
    """One topic in a snapshot. `messages`: the number of offsets from the first to the end; `size_bytes`: of all
    replicas; None where it is not known."""

    name: str
    internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    messages: int | None
    size_bytes: int | None
    rate: float | None
    """Messages a second since the snapshot before."""


@frozen(kw_only=True)
class BrokerRow:
    """One broker in a snapshot. `size_bytes` and the volume's bytes: None where they are not known."""

    node: BrokerNode
    leaders: int
    replicas: int
    size_bytes: int | None
    usable_bytes: int | None
    total_bytes: int | None


@frozen(kw_only=True)
class Snapshot:
    """Topics and brokers at one time."""

    taken_ms: int
    took_s: float
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerRow]
    topics: Mapping[str, TopicRow]
    """By name, sorted."""
    partitions: int
    under_replicated: int
    offline: int
    rate: float | None
    ends: Mapping[TopicPartition, int]
    missing_brokers: Sequence[int]
    """Ids of replicas that no living broker has."""


@frozen(kw_only=True)
class GroupSnapshot:
    """The groups at one time, by name."""

    taken_ms: int
    groups: Mapping[str, GroupSummary]


@frozen(kw_only=True)
class TransactionSnapshot:
    """The transactional ids at one time, sorted."""

    taken_ms: int
    listed: Sequence[TransactionListing]


@frozen(kw_only=True)
class GroupTrend:
    """The change of the lag of a group. `rate`: messages a second, negative while it catches up."""

    rate: float
    since_s: float
    gone_in_s: float | None
    """The time until the lag is gone at this rate; None unless it shrinks."""


class LagHistory:
    """The lags of all groups at the last times, in few bytes."""

    def __init__(self) -> None:
        self._times: deque[int] = deque(maxlen=LAGS_MAX)
        self._lags: dict[str, array[int]] = {}

    def add(self, taken_ms: int, lags: Mapping[str, int | None]) -> None:
        """Add the lags of all groups at one time; groups that are missing are forgotten."""
        before = len(self._times)
        self._times.append(taken_ms)
        self._lags = {name: self._lags.get(name, array("q")) for name in lags}
        for name, lag in lags.items():
            own = self._lags[name]
            own.extend([_NO_LAG] * (before - len(own)))
            own.append(_NO_LAG if lag is None else lag)
            del own[: len(own) - len(self._times)]

    def points(self, name: str) -> list[tuple[int, int]]:
        """Return times in ms and lags of a group, the oldest first."""
        own = self._lags.get(name, ())
        return [(ms, lag) for ms, lag in zip(self._times, own, strict=False) if lag != _NO_LAG]

    def trend(self, name: str) -> GroupTrend | None:
        """Return how the lag changed in the last minutes; None unless it is known at two times."""
        points = self.points(name)
        if len(points) < 2:
            return None
        now_ms, lag = points[-1]
        then_ms, then = next(point for point in points if point[0] >= now_ms - TREND_MS)
        since_s = (now_ms - then_ms) / 1000
        if since_s <= 0:
            return None
        rate = (lag - then) / since_s
        return GroupTrend(rate=rate, since_s=since_s, gone_in_s=lag / -rate if rate < 0 and lag else None)


def take_snapshot(admin: Admin, before: Snapshot | None) -> Snapshot:
    """Ask the cluster. `before`: the snapshot before, for rates. Raises `BarnabasError`."""
    started = time.monotonic()
    cluster = admin.describe_cluster()
    topics = [topic for topic in admin.describe_topics() if topic.name is not None]
    topic_partitions = [
        TopicPartition(topic.name or "", each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader >= 0
    ]
    ends = admin.list_offsets(dict.fromkeys(topic_partitions, "latest"), skip_errors=True)
    starts = admin.list_offsets(dict.fromkeys(topic_partitions, "earliest"), skip_errors=True)
    sizes, volumes = _sizes(admin)
    taken_ms = time.time_ns() // 1_000_000
    elapsed_s = (taken_ms - before.taken_ms) / 1000 if before is not None else 0.0
    rows = {
        topic.name or "": _topic_row(topic, ends, starts, sizes, before, elapsed_s)
        for topic in sorted(topics, key=lambda each: each.name or "")
    }
    rates = [row.rate for row in rows.values() if row.rate is not None]
    alive = {node.node_id for node in cluster.brokers}
    known = {broker for topic in topics for each in topic.partitions for broker in each.replicas}
    return Snapshot(
        taken_ms=taken_ms,
        took_s=time.monotonic() - started,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=_broker_rows(cluster.brokers, topics, volumes),
        topics=rows,
        partitions=sum(row.partitions for row in rows.values()),
        under_replicated=sum(row.under_replicated for row in rows.values()),
        offline=sum(row.offline for row in rows.values()),
        rate=sum(rates) if rates else None,
        ends=ends,
        missing_brokers=sorted(known - alive),
    )


_Volume = tuple[int, int | None, int | None]


def _sizes(admin: Admin) -> tuple[dict[str, int] | None, dict[int, _Volume]]:
    """Return the bytes of each topic, and of each broker with its volume's; None where the user may not know them."""
    try:
        described = admin.describe_log_dirs()
    except BarnabasError:
        return None, {}
    sizes: dict[str, int] = {}
    volumes: dict[int, _Volume] = {}
    for node, folders in described.items():
        used, usable, total = 0, 0, 0
        for folder in folders:
            usable += max(0, folder.usable_bytes)
            total += max(0, folder.total_bytes)
            for replica in folder.replicas:
                used += replica.size_bytes
                sizes[replica.topic] = sizes.get(replica.topic, 0) + replica.size_bytes
        volumes[node] = (used, usable or None, total or None)
    return sizes, volumes


def _topic_row(
    topic: TopicMetadata,
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    sizes: Mapping[str, int] | None,
    before: Snapshot | None,
    elapsed_s: float,
) -> TopicRow:
    name = topic.name or ""
    topic_partitions = [TopicPartition(name, each.partition) for each in topic.partitions]
    known = [tp for tp in topic_partitions if tp in ends and tp in starts]
    grown = None
    if before is not None and elapsed_s > 0:
        grown = sum(max(0, ends[tp] - before.ends[tp]) for tp in known if tp in before.ends)
    return TopicRow(
        name=name,
        internal=topic.internal,
        partitions=len(topic_partitions),
        replication_factor=max((len(each.replicas) for each in topic.partitions), default=0),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        offline=sum(each.leader < 0 for each in topic.partitions),
        messages=sum(ends[tp] - starts[tp] for tp in known) if known or not topic_partitions else None,
        size_bytes=None if sizes is None else sizes.get(name, 0),
        rate=None if grown is None else grown / elapsed_s,
    )


def _broker_rows(
    nodes: Sequence[BrokerNode], topics: Sequence[TopicMetadata], volumes: Mapping[int, _Volume]
) -> list[BrokerRow]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in topics:
        for each in topic.partitions:
            leaders[each.leader] = leaders.get(each.leader, 0) + 1
            for broker in each.replicas:
                replicas[broker] = replicas.get(broker, 0) + 1
    rows = []
    for node in sorted(nodes, key=lambda each: each.node_id):
        used, usable, total = volumes.get(node.node_id, (None, None, None))
        row = BrokerRow(
            node=node,
            leaders=leaders.get(node.node_id, 0),
            replicas=replicas.get(node.node_id, 0),
            size_bytes=used,
            usable_bytes=usable,
            total_bytes=total,
        )
        rows.append(row)
    return rows


class StillReading(BarnabasError):
    """The first value is not there yet, and nothing has failed."""


class SnapshotThread:
    """Takes values of a function in a thread while pages look at them: none without a look for `IDLE_S`.

    The time between two of them grows with the time that one takes, see `SHARE_MAX`.
    """

    def __init__(self, name: str, read_value: Callable[[Any], Any]) -> None:
        """`read_value` gets the value before, or None."""
        self._name = name
        self._read_value = read_value
        self._changed = Condition()
        self._value: Any = None
        self._number = 0
        self._wanted = 0
        """The number of the value that a page waits for."""
        self._requested_s = 0.0
        self._closed = False
        self._thread: Thread | None = None
        self.trouble: BarnabasError | None = None
        """The error of the last attempt, None after a success."""

    def current(self) -> Any:
        """Return the newest value; wait for the first one only. Raises `BarnabasError` if there is none."""
        with self._changed:
            self._request_value()
            if self._value is None:
                failed = self.trouble
                self._changed.wait_for(
                    lambda: self._value is not None or self._closed or self.trouble not in (None, failed),
                    FIRST_S,
                )
            if self._value is None:
                raise self.trouble or StillReading("the cluster is being read")
            return self._value

    def wake(self) -> None:
        """Take values from now on, without waiting for one."""
        with self._changed:
            self._request_value()

    def refresh(self, timeout_s: float = 3.0) -> None:
        """Wait for a value that was taken after this call, for so much time at most."""
        with self._changed:
            self._request_value()
            self._wanted = wanted = self._number + 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._number >= wanted or self._closed, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _request_value(self) -> None:
        self._requested_s = time.monotonic()
        if self._thread is None and not self._closed:
            self._thread = Thread(target=self._run, name=f"console-{self._name}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            started = time.monotonic()
            with self._changed:
                number, before = self._wanted, self._value
            try:
                value, trouble = self._read_value(before), None
            except BarnabasError as error:
                value, trouble = before, error
            took_s = time.monotonic() - started
            with self._changed:
                self._value, self.trouble = value, trouble
                self._number = max(self._number, number)
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._closed or self._wanted > self._number, max(INTERVAL_S, took_s / SHARE_MAX)
                )
                self._changed.wait_for(
                    lambda: self._closed or self._wanted > self._number or time.monotonic() - self._requested_s < IDLE_S
                )
                if self._closed:
                    return


class UserConnection:
    """The clients with the rights of one user, or of the settings of the console.

    `settings`: a mapping with `bootstrap.servers` and the security, as every client takes it.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        user: str,
        stored: Callable[[], Stored | None],
        expires_s: float | None = None,
    ) -> None:
        """Connect. `stored` says what is in remote storage; `expires_s`: the time when the user's token ends, in
        seconds since 1970. Raises `BarnabasError`."""
        self.settings = {"default.api.timeout.ms": API_TIMEOUT_MS, "client.id": "barnabas-console", **settings}
        self.user = user
        self._stored = stored
        self._expires_s = expires_s
        self.admin = Admin(self.settings)
        self._lock = Lock()
        self._consumer: SimpleConsumer | None = None
        self._producer: Producer | None = None
        self.rates: deque[tuple[int, float]] = deque(maxlen=HISTORY_MAX)
        """Times in ms, and messages a second of all topics."""
        self.snapshots = SnapshotThread("snapshot", self._snapshot)
        self.groups = SnapshotThread("groups", self._group_snapshot)
        self.transactions = SnapshotThread("transactions", self._transaction_snapshot)
        self.audits = SnapshotThread("audits", self._audit)
        self.tiers = SnapshotThread("tiers", self._tier_snapshot)
        self._lags = LagHistory()
        self._auditor: AuditReader | None = None

    @property
    def is_expired(self) -> bool:
        """Return True after the end of the user's token."""
        return self._expires_s is not None and time.time() >= self._expires_s

    @property
    def consumer(self) -> SimpleConsumer:
        """Return a consumer without a group, which creates no topics. Raises `BarnabasError`."""
        with self._lock:
            if self._consumer is None:
                self._consumer = SimpleConsumer({**self.settings, "max.partition.fetch.bytes": FETCH_BYTES})
            return self._consumer

    @property
    def producer(self) -> Producer:
        """Return a producer. Raises `BarnabasError`."""
        with self._lock:
            if self._producer is None:
                own = {
                    "delivery.timeout.ms": API_TIMEOUT_MS,
                    "request.timeout.ms": API_TIMEOUT_MS,
                    "linger.ms": 0,
                    "max.request.size": MESSAGE_BYTES_MAX,
                }
                self._producer = Producer({**self.settings, **own})
            return self._producer

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot. Raises `BarnabasError` if there is none."""
        found: Snapshot = self.snapshots.current()
        return found

    def group_snapshot(self) -> GroupSnapshot:
        """Return the newest snapshot of the groups. Raises `BarnabasError` if there is none."""
        found: GroupSnapshot = self.groups.current()
        return found

    def transaction_snapshot(self) -> TransactionSnapshot:
        """Return the newest snapshot of the transactions. Raises `BarnabasError` if there is none."""
        found: TransactionSnapshot = self.transactions.current()
        return found

    def tier_snapshot(self) -> TierSnapshot:
        """Return the newest snapshot of the tiered topics. Raises `BarnabasError` if there is none."""
        found: TierSnapshot = self.tiers.current()
        return found

    def trend(self, group_id: str) -> GroupTrend | None:
        """Return how the lag of a group changes; None unless it is known."""
        with self._lock:
            return self._lags.trend(group_id)

    def lag_chart(self, group_id: str) -> list[list[float]]:
        """Return times in seconds and lags of a group, for a chart."""
        self.groups.wake()
        with self._lock:
            points = self._lags.points(group_id)
        return [[ms / 1000 for ms, _ in points], [lag for _, lag in points]]

    def _group_snapshot(self, _before: GroupSnapshot | None) -> GroupSnapshot:
        found = self.admin.list_group_lags(times=True)
        taken = GroupSnapshot(taken_ms=time.time_ns() // 1_000_000, groups={each.group_id: each for each in found})
        with self._lock:
            self._lags.add(taken.taken_ms, {each.group_id: each.lag for each in found})
        return taken

    def _audit(self, _before: object) -> tuple[int, Reconciliation]:
        """Return the time and what the tiers have counted in the last day."""
        from ..app.clients.shared.connect import secured
        from ..audit.reading import AuditReader
        from ..audit.reconcile import reconcile

        now_ms = time.time_ns() // 1_000_000
        since_ms = now_ms - AUDIT_AGE_MS
        if self._auditor is None:
            cluster = secured(str(self.settings["bootstrap.servers"]), self.settings)
            self._auditor = AuditReader([cluster], since_ms=since_ms)
        self._auditor.read()
        return now_ms, reconcile(self._auditor.totals, now_ms=now_ms, since_ms=since_ms)

    def _transaction_snapshot(self, _before: TransactionSnapshot | None) -> TransactionSnapshot:
        listed = self.admin.list_transactions()
        return TransactionSnapshot(taken_ms=time.time_ns() // 1_000_000, listed=listed)

    def _tier_snapshot(self, _before: TierSnapshot | None) -> TierSnapshot:
        topics = [each for each in self.admin.describe_topics() if each.name is not None and not each.internal]
        return read_tiers(self.admin, topics, self._stored())

    def _snapshot(self, before: Snapshot | None) -> Snapshot:
        taken = take_snapshot(self.admin, before)
        if taken.rate is not None:
            self.rates.append((taken.taken_ms, taken.rate))
        return taken

    def close(self) -> None:
        """Close the clients. Twice is harmless."""
        for thread in (self.snapshots, self.groups, self.transactions, self.audits, self.tiers):
            thread.close()
        for client in (self._producer, self._consumer, self._auditor, self.admin):
            if client is not None:
                client.close()
