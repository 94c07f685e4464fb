"""What must always hold in a cluster, looked at after everything that happens.

It looks into every broker's logs, and into the tree; what it finds wrong is raised at once, in the middle of the story.
"""

from collections.abc import Iterator, Sequence

from attrs import define, field

from barnabas.core.cluster import layout
from barnabas.core.cluster.topics import NO_LEADER, UNKNOWN_EPOCH, BrokerRegistration, PartitionState
from barnabas.core.log.log import Log
from barnabas.core.message.batch_header import HEADER_SIZE, parse_header
from barnabas.core.replica.partition import Partition
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import StorageError
from barnabas.ports.words import TopicPartition
from barnabas.simulation import SimulatedBroker, World

Key = tuple[bytes, int]
"""A partition of one life of a topic: its id, and the number."""
READ_BYTES = 1 << 20


class Broken(AssertionError):
    """An invariant does not hold. The first word says which."""


@define(frozen=True)
class Entry:
    """A record batch, as whoever compares logs sees it."""

    base: int
    next: int
    epoch: int
    crc: int


@define
class Mirror:
    """What the log of one replica held when it was looked at last."""

    log: Log
    entries: list[Entry] = field(factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    leads: int = -1
    """The epoch in which it was found to lead."""
    broker_epoch: int = UNKNOWN_EPOCH
    """The life of its broker."""

    def ends_at(self, offset: int) -> None:
        while self.entries and self.entries[-1].next > offset:
            self.entries.pop()

    def from_offset(self, offset: int) -> Iterator[Entry]:
        """Those that reach beyond `offset`, in their order."""
        first = len(self.entries)
        while first and self.entries[first - 1].next > offset:
            first -= 1
        yield from self.entries[first:]


@define
class Agreed:
    """What was committed in a partition."""

    name: TopicPartition
    entries: dict[int, Entry] = field(factory=dict)
    end: int = 0
    batches: dict[tuple[int, int], Entry] = field(factory=dict)
    """By base offset and epoch: what any replica ever had there."""
    appenders: dict[int, int] = field(factory=dict)
    """By epoch: the broker that appended."""
    start: int = 0
    """What is before may be gone: records were deleted."""


class ClusterChecker:
    """Attach it with `watch`, and tell it of what was acknowledged."""

    def __init__(self, world: World, topics: Sequence[str], *, min_isr: int) -> None:
        """`topics`: those that it looks at, all with this `min.insync.replicas`."""
        self.world = world
        self.topics = frozenset(topics)
        self.agreed: dict[Key, Agreed] = {}
        self.looks = 0
        self._min_isr = min_isr
        self.elections = 0
        self._mirrors: dict[tuple[int, Key], Mirror] = {}
        self._reached: dict[tuple[int, Key, int], int] = {}
        """How far the log of a replica ever reached in one life of its broker."""
        self._states: dict[Key, PartitionState] = {}
        self._tree_changes = -1
        self._registered: dict[int, BrokerRegistration] = {}
        """By their epochs, also those that are gone: who elects may not have heard of that yet."""

    def watch(self) -> None:
        """From now on, after each callback of the world."""
        self.world.scheduler.after_each = self.look

    def look(self) -> None:
        self.looks += 1
        if self.world.failures:
            raise Broken(_plain(self.world.failures[0]))
        if self._tree_changes != self.world.tree.changes:
            self._tree_changes = self.world.tree.changes
            self._registered |= {each.broker_epoch: each for each in self.world.look.brokers().values()}
            for name in self.topics:
                self._states_changed(name)
        for broker in self.world.brokers.values():
            if not broker.life.ran:
                continue
            broker.life.ran = False
            for (topic, _), partition in broker.partitions.items():
                if topic in self.topics:
                    self._look_at(broker, partition)

    def acknowledged(self, topic_id: bytes, place: TopicPartition, offset: int) -> None:
        """A client was told that its message stands there, and with acks=all."""
        agreed = self.agreed.get((topic_id, place.partition))
        if agreed is None or offset >= agreed.end:
            end = 0 if agreed is None else agreed.end
            raise Broken(f"acknowledged: offset {offset} of {place}, of which {end} is committed")

    # --- logs

    def _look_at(self, broker: SimulatedBroker, partition: Partition) -> None:
        broker_id = broker.broker_id
        log, key = partition.log, (partition.topic_id, partition.topic_partition.partition)
        mirror = self._mirrors.get((broker_id, key))
        if mirror is None or mirror.log is not log:
            mirror = self._mirrors[broker_id, key] = Mirror(log, start=log.log_start_offset, end=log.log_start_offset)
        if mirror.broker_epoch != broker.epoch:
            mirror.broker_epoch = broker.epoch
            self._reached[broker_id, key, broker.epoch] = mirror.end
        leads = partition.leader_epoch if partition.is_leader and _serves(broker, partition) else -1
        high_watermark = partition.high_watermark
        if (
            log.log_end_offset == mirror.end
            and high_watermark == mirror.high_watermark
            and leads == mirror.leads
            and log.log_start_offset == mirror.start
        ):
            return
        agreed = self.agreed.setdefault(key, Agreed(partition.topic_partition))
        where = f"{partition.topic_partition} of broker {broker_id}"
        self._follow_log(broker_id, partition, mirror, agreed, where)
        life = (broker_id, key, mirror.broker_epoch)
        self._reached[life] = max(mirror.end, self._reached.get(life, 0))
        if high_watermark > log.log_end_offset:
            raise Broken(f"high watermark: {where}: {high_watermark}, of a log that ends at {log.log_end_offset}")
        if high_watermark > mirror.high_watermark:
            self._commit(key, mirror, high_watermark, agreed, where, leads=leads >= 0)
            if leads >= 0 and leads == mirror.leads:
                self._count_copies(key, partition, high_watermark, where)
        mirror.high_watermark = high_watermark
        if leads >= 0 and leads != mirror.leads:
            self._begins_to_lead(mirror, agreed, where)
        mirror.leads = leads

    def _follow_log(self, broker_id: int, partition: Partition, mirror: Mirror, agreed: Agreed, where: str) -> None:
        log = partition.log
        start, end = log.log_start_offset, log.log_end_offset
        if start != mirror.start:
            mirror.start = start
            agreed.start = max(agreed.start, start)
        if end < mirror.end:
            if end < min(mirror.high_watermark, agreed.end) and end >= agreed.start:
                raise Broken(f"truncated: {where} to {end}, with a high watermark of {mirror.high_watermark}")
            mirror.ends_at(end)
        elif end > mirror.end:
            grown = bool(mirror.entries) or mirror.end > start
            for entry in _entries(log, max(mirror.end, start), end):
                known = agreed.batches.setdefault((entry.base, entry.epoch), entry)
                if known != entry:
                    raise Broken(f"epoch: {where} has {entry}, where another replica has {known}")
                mirror.entries.append(entry)
                if grown and partition.is_leader and entry.epoch == partition.leader_epoch:
                    leader = agreed.appenders.setdefault(entry.epoch, broker_id)
                    if leader != broker_id:
                        raise Broken(f"two leaders: {where} and broker {leader} append in epoch {entry.epoch}")
        mirror.end = end

    def _commit(
        self, key: Key, mirror: Mirror, high_watermark: int, agreed: Agreed, where: str, *, leads: bool
    ) -> None:
        """The high watermark is higher now: what it passed stands there for ever, on all replicas that are in sync."""
        for entry in mirror.from_offset(max(mirror.high_watermark, mirror.start)):
            if entry.next <= high_watermark:
                known = agreed.entries.setdefault(entry.base, entry)
                if known != entry:
                    raise Broken(f"disagreement: {where} has {entry} below its high watermark, committed is {known}")
        agreed.end = max(agreed.end, high_watermark)
        if leads:
            self._check_in_sync(key, high_watermark, where)

    def _count_copies(self, key: Key, partition: Partition, high_watermark: int, where: str) -> None:
        """Before a message counted as committed, as many members of the ISR as are asked for had it."""
        lives = partition.state.broker_epochs
        ends = [self._reached.get((each, key, lives.get(each, UNKNOWN_EPOCH)), 0) for each in partition.isr]
        if sum(end >= high_watermark for end in ends) < self._min_isr:
            raise Broken(f"commit: {where} commits {high_watermark}, where the ISR {partition.isr} has {ends}")

    def _check_in_sync(self, key: Key, high_watermark: int, where: str) -> None:
        """Who is in the ISR, and lives the life in which it came there, has what is committed."""
        state = self._states.get(key)
        if state is None or state.leader == NO_LEADER:
            return
        for member in state.isr:
            other = self._mirrors.get((member, key))
            if other is None or other.broker_epoch != state.broker_epochs.get(member):
                continue  # another life, which is about to be taken out
            if other.end < high_watermark:
                raise Broken(f"commit: {where} commits {high_watermark}, broker {member} of the ISR has {other.end}")

    def _begins_to_lead(self, mirror: Mirror, agreed: Agreed, where: str) -> None:
        """It has all that was ever committed."""
        if mirror.end < agreed.end:
            raise Broken(f"lost: {where} leads with a log up to {mirror.end}, committed is {agreed.end}")
        for entry in mirror.entries:
            known = agreed.entries.get(entry.base)
            if known is not None and known != entry:
                raise Broken(f"lost: {where} leads with {entry}, committed is {known}")

    # --- elections

    def _states_changed(self, topic: str) -> None:
        data = self.world.node(layout.states_path(topic))
        if data is None:
            return
        topic_id, states = layout.decode_states(data)
        for number, state in states.items():
            key = topic_id, number
            before = self._states.get(key)
            self._states[key] = state
            if before is not None and state != before:
                self._check_change(TopicPartition(topic, number), before, state)

    def _check_change(self, place: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        if after.partition_epoch <= before.partition_epoch:
            raise Broken(f"race: {place} has {after} after {before}")
        if after.leader == before.leader and after.leader_epoch == before.leader_epoch:
            return
        if after.leader_epoch <= before.leader_epoch:
            raise Broken(f"race: {place} has {after} after {before}")
        if after.leader == NO_LEADER:
            return
        self.elections += 1
        if not self._may_lead(after.leader, before, after.broker_epochs.get(after.leader, UNKNOWN_EPOCH)):
            raise Broken(f"election: broker {after.leader} leads {place}, as {after}, after {before}")

    def _may_lead(self, broker_id: int, before: PartitionState, broker_epoch: int) -> bool:
        """This life of it was in sync, or eligible, and has lost nothing since; or enough have told what they have."""
        broker = self._registered.get(broker_epoch)
        known = before.broker_epochs.get(broker_id, UNKNOWN_EPOCH)
        same = broker_epoch == known or (broker is not None and broker.previous_epoch == known)
        if broker_id in before.members and known != UNKNOWN_EPOCH and same:
            return broker_id not in before.suspects
        if before.members == (broker_id,):
            return True
        claims, claim = before.claims, before.claims.get(broker_id)
        if claim is None or sum(each in claims for each in before.members) < min(self._min_isr, len(before.members)):
            return False
        return (claim.last_epoch, claim.log_end) >= max((each.last_epoch, each.log_end) for each in claims.values())


def _serves(broker: SimulatedBroker, partition: Partition) -> bool:
    """False while the lease of the broker is over: what it takes itself for does nobody any harm."""
    if broker.node is None:
        return False
    try:
        broker.node.state.replicas.led(*partition.topic_partition)
    except ApiError:
        return False
    return True


def _plain(text: str) -> str:
    """What the error in a line of the network says."""
    return text.rpartition("Broken: ")[2].rpartition("AssertionError: ")[2]


def _entries(log: Log, start: int, end: int) -> Iterator[Entry]:
    """The batches of a log from an offset on."""
    offset = start
    while offset < end:
        try:
            records = log.read(offset, max_bytes=READ_BYTES, limit=end, whole_first_batch=True).records
        except StorageError:
            return
        data = records.read() if hasattr(records, "read") else bytes(records)
        position, before = 0, offset
        while position + HEADER_SIZE <= len(data):
            header = parse_header(data, position)
            if header.next_offset > offset:
                yield Entry(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
                offset = header.next_offset
            position += header.size
        if offset == before:
            return
