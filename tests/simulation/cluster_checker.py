"""The guarantees of a cluster, checked after every event. The checker knows the guarantees, not the rules of the
code: the code may elect any replica, but an elected one must have every committed message.

It reads every broker's logs, and the coordination tree; a violation is raised at once, in the middle of the scenario.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from operator import attrgetter

from attrs import define, field

from barnabas.app.broker.state.tiering import read_manifest
from barnabas.core.cluster import layout
from barnabas.core.cluster.topic_store import states_paths
from barnabas.core.cluster.topics import NO_LEADER, UNKNOWN_EPOCH, BrokerRegistration, PartitionState
from barnabas.core.coordinator.group.records import OffsetKey, decode_key, decode_offset
from barnabas.core.coordinator.table import partition_of
from barnabas.core.log.checkpoints import PARTITION_METADATA, parse_partition_metadata
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.segment.damage import OffsetsDamaged
from barnabas.core.message.batch_header import HEADER_SIZE, LENGTH_OVERHEAD, is_crc_valid, parse_header
from barnabas.core.message.message_set import MessageSet
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.tiering.manifest import log_key, partition_folder
from barnabas.core.tree.tree import Change
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError
from barnabas.ports.remote_storage import ObjectMissing, RemoteStorage
from barnabas.ports.storage import StorageError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import SimulatedBroker, World
from barnabas.simulation.world import decode_states

Key = tuple[bytes, int]
"""A partition of one life of a topic: its id, and the number."""
READ_BYTES = 1 << 20
MIN_ISR = "min.insync.replicas"
CONFIG_KNOWN_AFTER_MS = 5_000.0
"""Brokers may use an earlier value of a config for this time."""
LEADERLESS_MAX_MS = 6_000.0
"""A partition has a leader again after so much time in which a controller and a member that may lead both live."""
LOOK_EVERY_MS = 250.0
OFFSETS = "__consumer_offsets"
SHOWN = attrgetter(
    *("log", "log._state.start", "log._state.end", "high_watermark"),
    *("leader", "leader_epoch", "epoch_start_offset"),
)
"""Gives what a look at a partition goes by: fields, as properties are most of the time that a look takes."""
CODECS = builtin_codecs()


class Broken(AssertionError):
    """An invariant does not hold. The first word says which."""


@define(frozen=True)
class Entry:
    """A record batch, as logs are compared."""

    base: int
    next: int
    epoch: int
    crc: int


@define
class Mirror:
    """The contents of the log of one replica at its last check."""

    log: UnifiedLog
    partition: Partition | None = None
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
        """Yield the batches that reach beyond `offset`, in their order."""
        first = len(self.entries)
        while first and self.entries[first - 1].next > offset:
            first -= 1
        yield from self.entries[first:]


@define
class Agreed:
    """The committed batches of a partition."""

    name: TopicPartition
    entries: dict[int, Entry] = field(factory=dict)
    end: int = 0
    batches: dict[tuple[int, int], Entry] = field(factory=dict)
    """By base offset and epoch: what any replica ever had there."""
    appenders: dict[int, int] = field(factory=dict)
    """By epoch: the broker that appended."""
    start: int = 0
    """Batches before this offset may be missing: records were deleted."""

    given_up_before: int = 0
    """An unclean election, in this epoch, has given up what leaders of earlier epochs had committed."""

    def cut_to(self, end: int, epoch: int) -> None:
        """Truncate the batches to the log of a leader that was elected uncleanly, in this epoch."""
        if end < self.end or any(base >= end for base in self.entries):
            self.given_up_before = epoch
            self.end = min(self.end, end)
            self.entries = {base: entry for base, entry in self.entries.items() if entry.next <= end}

    def cut_where_it_differs(self, entries: Iterable[Entry], end: int, epoch: int) -> None:
        """A leader that was elected uncleanly, in this epoch, has these entries up to `end`."""
        others = (entry.base for entry in entries if self.entries.get(entry.base, entry) != entry)
        self.cut_to(next(others, end), epoch)


@define(eq=False)
class Look:
    """The state of a broker's partitions at the last check."""

    partitions: list[Partition]
    shown: Sequence[object]
    epoch: int
    led: Partition | None = None
    """The first one that it takes itself for the leader of."""
    serves: bool = False

    def has_changed(self, broker: SimulatedBroker, differing: Sequence[Partition]) -> bool:
        """Return True if the led partitions may be others now, or if the broker began or ceased to serve them."""
        if self.led is None:
            return any(each.is_leader for each in differing)
        return not self.led.is_leader or _serves(broker, self.led) != self.serves


class RequiredCopies:
    """The number of replicas that a message needed before it counted as committed: `min.insync.replicas` by the
    coordination tree. A broker may use a value that was replaced a moment ago, so the smallest recent one counts."""

    def __init__(self, world: World) -> None:
        self._world = world
        first = next(iter(world.brokers.values()))
        self._static = int(str(first.settings.get("min_insync_replicas", 1)))
        self._history: dict[str, deque[tuple[float, int]]] = {}
        self._smallest: dict[str, int] = {}

    def tree_changed(self, topics: Iterable[str]) -> None:
        for topic in topics:
            known = self._history.setdefault(topic, deque())
            value = self._configured(topic)
            self._smallest[topic] = min(value, self._smallest.get(topic, value))
            if not known or known[-1][1] != value:
                known.append((self._world.clock.monotonic_ms(), value))

    def least(self, topic: str, replicas: int) -> int:
        """Return the smallest number that was in force during the last seconds; at most the number of replicas."""
        known = self._history.get(topic)
        if not known:
            return min(self._static, replicas)
        oldest = self._world.clock.monotonic_ms() - CONFIG_KNOWN_AFTER_MS
        while len(known) > 1 and known[1][0] <= oldest:
            known.popleft()
        return min(replicas, *(value for _, value in known))

    def least_ever(self, topic: str, replicas: int) -> int:
        """Return the smallest number that was ever in force; at most the number of replicas."""
        return min(replicas, self._static, self._smallest.get(topic, self._static))

    def _configured(self, topic: str) -> int:
        own = self._configs(layout.topic_config_path(topic))
        common = self._configs(layout.broker_config_path(None))
        return int(own.get(MIN_ISR) or common.get(MIN_ISR) or self._static)

    def _configs(self, path: str) -> Mapping[str, str]:
        data = self._world.node(path)
        return layout.decode_configs(data) if data else {}


class ClusterChecker:
    """Attach it with `watch`, and report to it what was acknowledged."""

    def __init__(self, world: World, topics: Sequence[str], *, lossy: Collection[str] = ()) -> None:
        """`topics`: those that it looks at; `lossy`: those whose leaders may be elected uncleanly."""
        self.world = world
        self.topics = frozenset(topics)
        self.agreed: dict[Key, Agreed] = {}
        self.looks = 0
        self.elections = 0
        self.required = RequiredCopies(world)
        self.brokers_with_losses: Callable[[], Collection[int]] = lambda: ()
        """Settable: the brokers whose disks have lost something that is not copied again yet."""
        self._lossy = frozenset(lossy)
        self._mirrors: dict[tuple[int, Key], Mirror] = {}
        self._seen: dict[int, dict[tuple[str, int], Mirror]] = {}
        """By broker and partition: the mirror that was compared last."""
        self._last_looks: dict[int, Look] = {}
        self._reached: dict[tuple[int, Key, int], int] = {}
        """The largest log end offset of a replica in one broker epoch."""
        self._states: dict[Key, PartitionState] = {}
        self._replicas: dict[Key, tuple[int, ...]] = {}
        """The assignments in the tree."""
        self._leaders: dict[Key, dict[int, int]] = {}
        """By leader epoch, the broker that the tree gave it to."""
        self._registered: dict[int, BrokerRegistration] = {}
        """By broker id: what is registered now."""
        self._leaderless_ms: dict[Key, float] = {}
        self._looked_ms = 0.0
        self._given_up = 0
        self._behind: dict[tuple[int, int], tuple[int, float, int]] = {}

    def watch(self) -> None:
        """From now on, after each callback of the world, and at each change of the tree."""
        self.world.scheduler.after_each = self.look
        self.world.tree.changed = self._tree_changed
        self._registered = self.world.look.brokers()
        self._looked_ms = self.world.clock.monotonic_ms()
        self._look_for_leaders()

    def look(self) -> None:
        self.looks += 1
        if self.world.failures:
            raise Broken(_plain(self.world.failures[0]))
        if len(self.world.given_up) > self._given_up:
            raise Broken(f"gives up: {self.world.given_up[-1]}")
        for broker in self.world.brokers.values():
            if not broker.life.ran:
                continue
            broker.life.ran = False
            self._look_at_broker(broker)

    def _look_at_broker(self, broker: SimulatedBroker) -> None:
        """Look at the partitions in which something differs from what was there at the last look."""
        broker_id, partitions, epoch = broker.broker_id, broker.partitions, broker.epoch
        here = list(partitions.values())
        shown = list(map(SHOWN, here))
        look, differing = self._last_looks.get(broker_id), here
        if look is not None and look.epoch == epoch and look.partitions == here:
            differing = [each for each, one, another in zip(here, shown, look.shown, strict=True) if one != another]
            look.shown = shown
            if look.has_changed(broker, differing):
                look = None
        else:
            look = None
        if look is None:
            look, differing = Look(here, shown, epoch), here
            self._last_looks[broker_id] = look
        mirrors = self._seen.setdefault(broker_id, {})
        for partition in differing:
            tp = partition.topic_partition
            topic = tp[0]
            if topic in self.topics:
                leads = -1
                if partition.is_leader:
                    if look.led is None:  # it serves all partitions that it leads, or none
                        look.led, look.serves = partition, _serves(broker, partition)
                    if look.serves:
                        leads = partition.leader_epoch
                log, mirror = partition.log, mirrors.get(tp)
                if (
                    mirror is None
                    or mirror.partition is not partition
                    or mirror.log is not log
                    or log.log_end_offset != mirror.end
                    or partition.high_watermark != mirror.high_watermark
                    or leads != mirror.leads
                    or log.log_start_offset != mirror.start
                    or epoch != mirror.broker_epoch
                ):
                    mirrors[tp] = self._look_at(broker_id, partition, epoch, leads)
            if topic == OFFSETS:
                self._note_behind(broker_id, tp[1], partition)
        self._check_lease(broker, epoch, here)

    def _note_behind(self, broker_id: int, number: int, partition: Partition) -> None:
        """Since when the high watermark of a partition of `__consumer_offsets` is below what it began to lead with. One
        that stays the leader while its epoch rises began earlier."""
        key = broker_id, number
        known = self._behind.get(key)
        if known is not None and partition.is_leader and known[0] == partition.led_since:
            if partition.high_watermark >= known[2]:
                del self._behind[key]
            return
        began = partition.is_leader and partition.led_since == partition.leader_epoch
        if began and partition.high_watermark < partition.epoch_start_offset:
            now_ms = self.world.clock.monotonic_ms()
            self._behind[key] = partition.led_since, now_ms, partition.epoch_start_offset
        else:
            self._behind.pop(key, None)

    def check_answer_of_coordinator(self, broker_id: int, number: int, asked_ms: float) -> None:
        """It has answered a question that was asked then: what it has read is committed."""
        _, since_ms, _ = self._behind.get((broker_id, number), (-1, inf, 0))
        if since_ms < asked_ms:
            raise Broken(f"stale position: broker {broker_id} answers by uncommitted records of {OFFSETS}-{number}")

    def acknowledged(self, topic_id: bytes, tp: TopicPartition, offset: int) -> None:
        """A client got the answer that its message is at this offset, and with acks=all."""
        agreed = self.agreed.get((topic_id, tp.partition))
        if agreed is None or offset >= agreed.end:
            end = 0 if agreed is None else agreed.end
            raise Broken(f"acknowledged: offset {offset} of {tp}, of which {end} is committed")

    def acknowledged_position(self, group: str, tp: TopicPartition, position: int) -> None:
        """A group got the answer that this new position is committed: the record is committed in
        `__consumer_offsets`."""
        broker = next(iter(self.world.brokers.values()))
        number = partition_of(group, int(str(broker.settings["offsets_topic_num_partitions"])))
        replicas = [self.world.partition(broker_id, OFFSETS, number) for broker_id in self.world.brokers]
        logs = [each for each in replicas if each is not None]
        ends = [agreed.end for key, agreed in self.agreed.items() if agreed.name == TopicPartition(OFFSETS, number)]
        end = max(ends, default=0)

        def has(partition: Partition, start: int, limit: int) -> bool:
            found = offsets_in(partition.log, max(start, partition.log.log_start_offset), limit)
            return any(key == (group, *tp) and offset >= position for key, offset in found)

        if any(has(each, end, each.log.log_end_offset) for each in logs) and not any(
            has(each, 0, end) for each in logs
        ):
            raise Broken(
                f"acknowledged: position {position} of {tp} for {group}; {OFFSETS}-{number} is committed up to {end}"
            )

    def forgive_giving_up(self) -> None:
        """Accept all brokers that have stopped so far."""
        self._given_up = len(self.world.given_up)

    def tree_restored(self) -> None:
        """An operator has restored an earlier content of the tree: its states may be older than those before, and an
        epoch of which no log has a batch may be given to another leader."""
        self._states.clear()
        for key, given in self._leaders.items():
            used = {epoch for _, epoch in self.agreed[key].batches} if key in self.agreed else set()
            self._leaders[key] = {epoch: leader for epoch, leader in given.items() if epoch in used}
        self._registered = self.world.look.brokers()

    # --- leases

    def _check_lease(self, broker: SimulatedBroker, epoch: int, partitions: Iterable[Partition]) -> None:
        """A broker serves only while others can see that it lives. One whose session the service ended at once, with
        no outage before, hears of it a moment later."""
        registered = self._registered.get(broker.broker_id)
        if not self.world.shared or epoch < 0 or (registered and registered.broker_epoch == epoch):
            return
        if any(session.ended_without_outage for session in broker.sessions):
            return
        for partition in partitions:
            if partition.is_leader and _serves(broker, partition):
                where = f"{partition.topic_partition} in epoch {partition.leader_epoch}"
                raise Broken(f"lease: {broker.name} serves {where}; its registration {epoch} has ended")

    # --- logs

    def _look_at(self, broker_id: int, partition: Partition, broker_epoch: int, leads: int) -> Mirror:
        """Compare a replica with what it was, and with the others. `leads`: the epoch in which it serves as leader."""
        log, key = partition.log, (partition.topic_id, partition.topic_partition.partition)
        mirror = self._mirrors.get((broker_id, key))
        if mirror is None or mirror.log is not log:
            mirror = self._mirrors[broker_id, key] = Mirror(log, start=log.log_start_offset, end=log.log_start_offset)
        mirror.partition = partition
        if mirror.broker_epoch != broker_epoch:
            mirror.broker_epoch = broker_epoch
            self._reached[broker_id, key, broker_epoch] = mirror.end
        high_watermark = partition.high_watermark
        if (
            log.log_end_offset == mirror.end
            and high_watermark == mirror.high_watermark
            and leads == mirror.leads
            and log.log_start_offset == mirror.start
        ):
            return mirror
        agreed = self.agreed.setdefault(key, Agreed(partition.topic_partition))
        where = f"{partition.topic_partition} of broker {broker_id}"
        may_lack = leads >= 0 and leads != mirror.leads and partition.topic_partition.topic in self._lossy
        if may_lack:
            agreed.cut_to(log.log_end_offset, leads)
        self._follow_log(broker_id, partition, mirror, agreed, where)
        if may_lack:  # a log of the same length may have what an earlier unclean election has given up
            agreed.cut_where_it_differs(mirror.entries, mirror.end, leads)
        life = (broker_id, key, mirror.broker_epoch)
        self._reached[life] = max(mirror.end, self._reached.get(life, 0))
        if high_watermark > log.log_end_offset:
            raise Broken(f"high watermark: {where}: {high_watermark}, of a log that ends at {log.log_end_offset}")
        if high_watermark > mirror.high_watermark:
            # With or without the lease: what a deposed leader commits has to be what its successor has.
            self._commit(key, mirror, high_watermark, agreed, where, leads=partition.is_leader)
            if leads >= 0 and leads == mirror.leads:
                self._count_copies(key, partition, high_watermark, where)
        mirror.high_watermark = high_watermark
        if mirror.leads > leads and high_watermark < mirror.end and partition.topic_partition.topic == OFFSETS:
            self.world.reached["log: a coordinator resigns above its high watermark"] += 1
        if leads >= 0 and leads != mirror.leads:
            self._begins_to_lead(mirror, agreed, leads, where)
            if high_watermark < mirror.end:
                what = "a coordinator" if partition.topic_partition.topic == OFFSETS else "a leader"
                self.world.reached[f"log: {what} begins above its high watermark"] += 1
        mirror.leads = leads
        return mirror

    def _follow_log(self, broker_id: int, partition: Partition, mirror: Mirror, agreed: Agreed, where: str) -> None:
        log = partition.log
        start, end = log.log_start_offset, log.log_end_offset
        if start != mirror.start:
            mirror.start = start
            agreed.start = max(agreed.start, start)
        if end < mirror.end:
            is_given_up = _is_given_up(mirror, agreed)
            if end < min(mirror.high_watermark, agreed.end) and end >= agreed.start and not is_given_up:
                raise Broken(f"truncated: {where} to {end}, with a high watermark of {mirror.high_watermark}")
            mirror.ends_at(end)
            self.world.reached["log: cut by a follower"] += 1
            if agreed.start <= end < mirror.high_watermark:  # only after an unclean election, or it is refused above
                self.world.reached["log: cut below the high watermark"] += 1
        elif end > mirror.end:
            grown = bool(mirror.entries) or mirror.end > start
            is_compacted = partition.topic_partition.topic == OFFSETS
            for found in entries_of(log, max(mirror.end, start), end):
                entry = agreed.batches.setdefault((found.base, found.epoch), found)
                # In a log that is read again after a restart, or was copied from the beginning, records may be missing.
                if entry != found and not (is_compacted and entry.next == found.next):
                    raise Broken(f"epoch: {where} has {found}, where another replica has {entry}")
                mirror.entries.append(entry)
                self._check_epoch(entry, partition, where)
                if grown and partition.is_leader and entry.epoch == partition.leader_epoch:
                    self._check_appender(broker_id, entry, partition, agreed, where)
        mirror.end = end

    def _check_epoch(self, entry: Entry, partition: Partition, where: str) -> None:
        """Nothing stands in a log with an epoch that the tree has not given to a leader."""
        given = self._leaders.get((partition.topic_id, partition.topic_partition.partition))
        if given and entry.epoch > max(given):
            raise Broken(f"epoch: {where} has {entry}; the last epoch that the tree gave is {max(given)}")

    def _check_appender(self, broker_id: int, entry: Entry, partition: Partition, agreed: Agreed, where: str) -> None:
        """An epoch has one appender, the one that the tree gave it to."""
        leader = agreed.appenders.setdefault(entry.epoch, broker_id)
        if leader != broker_id:
            raise Broken(f"two leaders: {where} and broker {leader} append in epoch {entry.epoch}")
        given = self._leaders.get((partition.topic_id, partition.topic_partition.partition), {})
        chosen = given.get(entry.epoch, broker_id)
        if chosen != broker_id:
            raise Broken(f"two leaders: {where} appends in epoch {entry.epoch}, which is of broker {chosen}")

    def _commit(
        self, key: Key, mirror: Mirror, high_watermark: int, agreed: Agreed, where: str, *, leads: bool
    ) -> None:
        """The high watermark is higher now: what it passed stands there for ever, on all replicas that are in sync."""
        if not leads and _is_given_up(mirror, agreed):
            return  # a replica that was away during an unclean election, and has not heard of its leader yet
        for entry in mirror.from_offset(max(mirror.high_watermark, mirror.start)):
            if entry.next <= high_watermark:
                known = agreed.entries.setdefault(entry.base, entry)
                if known != entry:
                    raise Broken(f"disagreement: {where} has {entry} below its high watermark, committed is {known}")
        agreed.end = max(agreed.end, high_watermark)
        state = self._states.get(key)
        if leads and state is not None and state.leader != NO_LEADER:
            self._check_in_sync(key, state, high_watermark, f"{where} commits {high_watermark}")

    def _count_copies(self, key: Key, partition: Partition, high_watermark: int, where: str) -> None:
        """Before a message counted as committed, as many members of the ISR as are asked for had it."""
        lives = partition.state.broker_epochs
        ends = [self._reached.get((each, key, lives.get(each, UNKNOWN_EPOCH)), 0) for each in partition.isr]
        required = self.required.least(partition.topic_partition.topic, len(partition.replicas))
        if sum(end >= high_watermark for end in ends) < required:
            raise Broken(f"commit: {where} commits {high_watermark}, where the ISR {partition.isr} has {ends}")

    def _check_in_sync(self, key: Key, state: PartitionState, committed: int, what: str) -> None:
        """A member of the ISR, in the life in which it came there, has what is committed."""
        for member in state.isr:
            other = self._mirrors.get((member, key))
            if other is None or other.broker_epoch != state.broker_epochs.get(member):
                continue  # another life, which is about to be taken out
            if other.end < committed:
                raise Broken(f"commit: {what}, broker {member} of the ISR has {other.end}")

    def _begins_to_lead(self, mirror: Mirror, agreed: Agreed, epoch: int, where: str) -> None:
        """It has all that was ever committed, but for what later leaders have: a broker that was stuck may learn of its
        epoch only after that."""
        of_later = [each.base for each in agreed.entries.values() if each.epoch > epoch]
        committed = min([agreed.end, *of_later])
        if mirror.end < committed:
            raise Broken(f"lost: {where} leads with a log up to {mirror.end}, committed is {committed}")
        for entry in mirror.entries:
            known = agreed.entries.get(entry.base)
            if known is not None and known != entry and known.epoch <= epoch:
                raise Broken(f"lost: {where} leads with {entry}, committed is {known}")

    # --- the tree

    def _tree_changed(self, changes: Sequence[Change]) -> None:
        """Every change is looked at, also one that the next one of the same callback replaces."""
        above = {change.path.rpartition("/")[0] for change in changes}
        if layout.BROKER_IDS in above:
            self._registered = self.world.look.brokers()
        if layout.TOPIC_CONFIGS in above or layout.BROKER_CONFIGS in above or layout.TOPICS in above:
            self.required.tree_changed(self.topics)
        if layout.TOPICS in above or any(path.startswith(layout.STATES) for path in above):
            for name in self.topics:
                self._states_changed(name)

    def _states_changed(self, topic: str) -> None:
        found = self.world.look.topics().get(topic)
        if found is None:
            return
        states: dict[int, PartitionState] = {}
        for path in states_paths(found):
            data = self.world.node(path)
            topic_id, some = decode_states(data) if data else (found.topic_id, {})
            if topic_id != found.topic_id:
                raise Broken(f"names: the states of {topic} are of another topic of that name")
            states |= some
        for number, replicas in found.partitions.items():
            before_move = self._replicas.get((found.topic_id, number), replicas)
            self._replicas[found.topic_id, number] = replicas
            if set(before_move) - set(replicas):
                self._check_removal(found.topic_id, TopicPartition(topic, number), before_move, replicas)
        for number, state in states.items():
            key = found.topic_id, number
            before = self._states.get(key)
            self._states[key] = state
            if state != before:
                self._check_change(key, TopicPartition(topic, number), before, state)

    def _check_removal(self, topic_id: bytes, tp: TopicPartition, before: Sequence[int], after: Sequence[int]) -> None:
        """Replicas are removed, and delete their logs: what is committed is on as many others as it needs."""
        key = topic_id, tp.partition
        agreed = self.agreed.get(key)
        if agreed is None or tp.topic in self._lossy:
            return
        lost = set(self.brokers_with_losses())
        copies = [each for each in before if each not in lost and self._has_all(each, key, agreed)]
        stay = [each for each in copies if each in after]
        required = self.required.least_ever(tp.topic, len(after)) - len(lost & set(after))
        if len(stay) < required and len(stay) < len(copies):
            what = f"the replicas {copies} have all that is committed of {tp}, up to {agreed.end}"
            raise Broken(f"copies: {what}; the assignment changes from {list(before)} to {list(after)}")

    def _has_all(self, broker_id: int, key: Key, agreed: Agreed) -> bool:
        mirror = self._mirrors.get((broker_id, key))
        if mirror is None or mirror.end < agreed.end:
            return False
        return all(agreed.entries.get(each.base, each) == each for each in mirror.entries)

    def _check_change(self, key: Key, tp: TopicPartition, before: PartitionState | None, after: PartitionState) -> None:
        if after.leader != NO_LEADER:
            given = self._leaders.setdefault(key, {}).setdefault(after.leader_epoch, after.leader)
            if given != after.leader:
                raise Broken(f"race: {tp} has {after}; epoch {after.leader_epoch} was of broker {given}")
        agreed = self.agreed.get(key)
        if agreed is not None and after.leader != NO_LEADER and tp.topic not in self._lossy:
            self._check_in_sync(key, after, agreed.end, f"{tp} has {after}, committed is {agreed.end}")
        if before is None:
            return
        if after.partition_epoch <= before.partition_epoch:
            raise Broken(f"race: {tp} has {after} after {before}")
        self._count_members(before, after)
        if after.leader == before.leader and after.leader_epoch == before.leader_epoch:
            return
        if after.leader_epoch <= before.leader_epoch:
            raise Broken(f"race: {tp} has {after} after {before}")
        self.elections += after.leader != NO_LEADER
        self._count_election(before, after)

    def _count_members(self, before: PartitionState, after: PartitionState) -> None:
        happened = {
            "isr: a replica joins": set(after.isr) - set(before.isr),
            "isr: a replica leaves": set(before.isr) - set(after.isr),
            "isr: a member in doubt": set(after.suspects) - set(before.suspects),
            "isr: an eligible replica outside": set(after.elr) - set(before.elr),
            "claim: of a log that lost something": {
                each for each, claim in after.claims.items() if claim.lost and before.claims.get(each) != claim
            },
        }
        self.world.reached.update(state for state, brokers in happened.items() if brokers)

    def _count_election(self, before: PartitionState, after: PartitionState) -> None:
        leader, reached = after.leader, self.world.reached
        if leader == NO_LEADER:
            reached["election: no replica can lead"] += 1
        elif leader in before.isr and not before.claims:
            reached["election: a member of the ISR"] += 1
        elif leader in before.elr and not before.claims:
            reached["election: an eligible replica that is not in the ISR"] += 1
        elif leader in before.members:
            reached["election: by claims"] += 1
            if len(before.claims) > 1 and len({each.log_end for each in before.claims.values()}) > 1:
                reached["election: by claims that differ"] += 1
        else:
            reached["election: uncleanly"] += 1

    # --- partitions without leader

    def _look_for_leaders(self) -> None:
        now_ms = self.world.clock.monotonic_ms()
        passed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        self.world.scheduler.call_later(LOOK_EVERY_MS, self._look_for_leaders)
        if not self.world.shared:
            return
        may_elect = self.works(self.world.look.controller())
        for topic in self.world.look.topics().values():
            for number, state in self.world.look.states(topic.name).items():
                key = topic.topic_id, number
                if not (may_elect and topic.name in self.topics and self._could_lead(state, topic.partitions[number])):
                    self._leaderless_ms.pop(key, None)
                    continue
                without_ms = self._leaderless_ms[key] = self._leaderless_ms.get(key, 0.0) + passed_ms
                if without_ms > LEADERLESS_MAX_MS:
                    raise Broken(f"leaderless: {topic.name}-{number} for {without_ms:.0f} ms, {state}")

    def _could_lead(self, state: PartitionState, replicas: Sequence[int]) -> bool:
        """Return True if the partition has no live leader, but an intact replica on a working broker."""
        leader = self._registered.get(state.leader)
        if leader is not None and state.broker_epochs.get(state.leader) == leader.broker_epoch:
            return False
        for member in (*state.isr, *state.elr):
            life, known = self._registered.get(member), state.broker_epochs.get(member, UNKNOWN_EPOCH)
            if life is None or member not in replicas or life.leaving or life.offline or not self.works(member):
                continue
            if known != UNKNOWN_EPOCH and known in (life.broker_epoch, life.previous_epoch):
                return True
        return False

    def works(self, broker_id: int) -> bool:
        """Return True if this broker runs, is not suspended, and reaches the coordination service."""
        broker = self.world.brokers.get(broker_id)
        if broker is None or self.world.service_is_down:
            return False
        reaches = broker.sessions and not any(session.is_away for session in broker.sessions)
        return broker.running and not broker.life.still and bool(reaches)


def _is_given_up(mirror: Mirror, agreed: Agreed) -> bool:
    """Return True if the log ends before an unclean election that has given up something."""
    return bool(mirror.entries) and mirror.entries[-1].epoch < agreed.given_up_before


def _serves(broker: SimulatedBroker, partition: Partition) -> bool:
    """Return False after the lease of the broker has expired: its view of its role is harmless then."""
    if broker.node is None:
        return False
    try:
        broker.node.state.replicas.led(*partition.topic_partition)
    except ApiError:
        return False
    return True


def _plain(text: str) -> str:
    """Return the error text in a line of the network."""
    return text.rpartition("Broken: ")[2].rpartition("AssertionError: ")[2]


def offsets_in(log: UnifiedLog, start: int, end: int) -> Iterator[tuple[tuple[str, str, int], int]]:
    """Yield the commits in a log of `__consumer_offsets` between two offsets: group, topic, partition, and offset.

    Batches that compaction has left empty, and those with bit rot, are passed.
    """
    offset = start
    while offset < end:
        try:
            records = log.read(offset, max_bytes=READ_BYTES, limit=end, whole_first_batch=True).records
        except OffsetsDamaged as damage:
            offset = damage.next_offset
            continue
        except StorageError:
            return
        data = records.read() if hasattr(records, "read") else bytes(records)
        before = offset
        for entry in _batches(data, before):
            offset = entry.next
        with suppress(ApiError):  # it has rotten
            for message in MessageSet(data, CODECS, from_offset=before):
                key = decode_key(message.key) if message.key else None
                if isinstance(key, OffsetKey) and message.value is not None:
                    yield (key.group_id, *key.partition), decode_offset(message.value).offset
        if offset == before:
            return


def entries_of(log: UnifiedLog, start: int, end: int) -> Iterator[Entry]:
    """Yield the batches of a log from an offset on, without those that have bit rot."""
    offset = start
    while offset < end:
        if log.log_start_offset <= offset < log.local_log_start_offset:
            data = read_remote(log, offset)
            if not data:
                return
            before = offset
            for entry in _batches(data, offset):
                yield entry
                offset = entry.next
            if offset == before:
                return
            continue
        try:
            records = log.read(offset, max_bytes=READ_BYTES, limit=end, whole_first_batch=True).records
        except OffsetsDamaged as damage:
            offset = damage.next_offset
            continue
        except StorageError:
            return
        data = records.read() if hasattr(records, "read") else bytes(records)
        before = offset
        for entry in _batches(data, offset):
            yield entry
            offset = entry.next
        if offset == before:
            return


def _batches(data: bytes, offset: int) -> Iterator[Entry]:
    """Yield the batches that end above the offset."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            header = parse_header(data, position)
        except ApiError:  # a byte of it has rotten; where the batch ends is not below the checksum
            position += LENGTH_OVERHEAD + int.from_bytes(data[position + 8 : position + LENGTH_OVERHEAD], "big")
            continue
        if header.next_offset > offset and is_crc_valid(data, header, position):
            yield Entry(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
        position += header.size


TIERS: list[RemoteStorage] = []
"""The remote storage of the world that is played, without its faults."""


def read_remote(log: UnifiedLog, offset: int) -> bytes:
    """Return the remote segment with this offset; nothing if it has expired. Raises `Broken` if it is missing."""
    topic_id = parse_partition_metadata(log.folder.read_small(PARTITION_METADATA))
    try:
        folder = partition_folder(log.topic_partition, topic_id)
        manifest = read_manifest(TIERS[-1], folder)
        segment = manifest.find(offset)
        if segment is not None:
            return TIERS[-1].read(log_key(folder, segment)).content
        if offset < manifest.log_start:
            return b""
    except ObjectMissing as missing:
        raise Broken(f"tier: offset {offset} of {log.topic_partition}: {missing}") from None
    raise Broken(f"tier: offset {offset} of {log.topic_partition} is in no tier")
