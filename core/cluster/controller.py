"""The controller, which elects leaders: the broker that created the controller node, while its session lasts (D2).

It applies the rules of `election` to the states as they are when it writes. Its writes are guarded by the controller
epoch, so that a controller which was deposed without noticing changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from ...ports.coordination import BadVersion, NodeExists, NoNode
from ...ports.errors import BarnabasError
from ...ports.report import Line, counted, debug, info, warning
from ...ports.scheduler import Outcome, Scheduler
from ...ports.types import TopicPartition
from . import layout
from .brokers import count_up, end_earlier_controller, is_earlier_controller
from .change_queue import ChangeQueue, elsewhere, is_unreachable
from .deltas import BrokersChanged, ConfigsChanged, ControllerChanged, Delta, StatesChanged, TopicSet
from .election import Brokers, ElectionRules, awaits_unclean_election, describe_loss, preferred, settled
from .image import ClusterImage
from .reassignment import finished_moves, is_moving
from .registry import ClusterRegistry, Deposed
from .topics import NO_LEADER, BrokerRegistration, PartitionState, ReplicaId, Topic

TOPICS_AT_A_TIME = 500
"""The number of topics that are checked in one turn of the owner thread."""
RETRY_MS = 500.0
UNCLEAN_WAIT_MS = 5000.0
"""The time that an unclean election waits for replicas that have not reported their log ends, or are not back yet."""

Rules = Callable[[Topic], ElectionRules]


# The partitions that should get their preferred leader again (facts D2, `leader.imbalance.*`).


def unbalanced(image: ClusterImage, percentage: int) -> Sequence[TopicPartition]:
    """Return the partitions to give back to their preferred leaders: those of live brokers of whose preferred
    partitions others lead more than `percentage` percent."""
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for number, replicas in topic.partitions.items():
            first = replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            key = TopicPartition(topic.name, number)
            state = image.state(key)
            if state.leader != first and first in state.isr and not is_moving(topic, number):
                elsewhere.setdefault(first, []).append(key)
    return [
        key
        for broker, keys in elsewhere.items()
        if broker in image.brokers and 100 * len(keys) > percentage * preferred[broker]
        for key in keys
    ]


JOINED = ("has joined", "have joined")
NAMED_MAX = 5
"""The most partitions that one line of the log names."""


def named(keys: Sequence[TopicPartition]) -> str:
    """Return the names of the first few partitions."""
    more = f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else ""
    return ", ".join(map(str, keys[:NAMED_MAX])) + more


class LeaderChanges:
    """Collects what an event of the cluster changes, for one line of the log: a dead broker may lead thousands of
    partitions. Owner thread only."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._causes: dict[tuple[str, str], dict[int, None]] = {}
        """An event, in singular and plural, and the brokers that it concerns."""
        self._leaders: dict[TopicPartition, int] = {}
        self._losses: dict[str, list[TopicPartition]] = {}

    def clear(self) -> None:
        """Forget what was collected: another broker is the controller, and reports it."""
        self._causes.clear()
        self._leaders.clear()
        self._losses.clear()

    def note_brokers(self, before: Mapping[int, BrokerRegistration], after: Mapping[int, BrokerRegistration]) -> None:
        """Note which brokers have come, have gone, or are about to stop."""
        for number in sorted({*before, *after}):
            was, now = before.get(number), after.get(number)
            if now is None:
                self._causes.setdefault(("is gone", "are gone"), {})[number] = None
            elif was is None:
                self._causes.setdefault(JOINED, {})[number] = None
            elif was.broker_epoch != now.broker_epoch:
                self._causes.setdefault(("is back", "are back"), {})[number] = None
            elif now.leaving and not was.leaving:
                self._causes.setdefault(("is about to stop", "are about to stop"), {})[number] = None

    def note_leader(self, key: TopicPartition, leader: int) -> None:
        """Note the new leader of a partition, -1 for none."""
        self._leaders[key] = leader

    def note_loss(self, key: TopicPartition, loss: str) -> None:
        """Note why a partition has no leader."""
        self._losses.setdefault(loss, []).append(key)

    def flush(self) -> None:
        """Report what was collected, and begin again."""
        causes, leaders, losses = dict(self._causes), dict(self._leaders), dict(self._losses)
        self.clear()
        if causes or leaders:
            self._report(_changes_line(causes, leaders))
        for loss, keys in losses.items():
            has = "has" if len(keys) == 1 else "have"
            self._report(
                f"{named(keys)} {has} no leader: {loss}. Start the brokers that are missing, or accept the loss of"
                " committed messages with 'barnabas cluster elect --unclean', which elects the longest log of the live"
                " replicas"
            )


def _changes_line(causes: Mapping[tuple[str, str], Collection[int]], leaders: Mapping[TopicPartition, int]) -> Line:
    counts = Counter(leaders.values())
    without = [key for key, leader in leaders.items() if leader == NO_LEADER]
    del counts[NO_LEADER]
    changed = counted(sum(counts.values()), "partition changes leader", "partitions change leader")
    parts = [", ".join([changed, *(f"{count} to {leader}" for leader, count in sorted(counts.items()))])]
    if not counts:
        parts = [] if without or JOINED in causes else ["no partition changes leader"]
    if without:
        parts.append(f"{counted(len(without), 'partition has', 'partitions have')} no leader ({named(without)})")
    events = []
    for (one, several), brokers in causes.items():
        numbers = ", ".join(map(str, sorted(brokers)))
        events.append(f"broker {numbers} {one}" if len(brokers) == 1 else f"brokers {numbers} {several}")
    text = ": ".join(filter(None, [", ".join(events), "; ".join(parts)]))
    fields = {"partitions": len(leaders), "leaders": {str(leader): count for leader, count in sorted(counts.items())}}
    return warning(text, **fields) if without else info(text, **fields)


class Controller:
    """The controller's part of one broker: it campaigns, and elects leaders while it is active. Owner thread only."""

    def __init__(
        self,
        registry: ClusterRegistry,
        queue: ChangeQueue,
        scheduler: Scheduler,
        *,
        rules: Rules,
        elected: Callable[[TopicPartition, PartitionState, PartitionState], None],
        report: Callable[[str], None],
    ) -> None:
        """`elected` is called for each partition whose leader changes, with the states before and after."""
        self._registry = registry
        self._queue = queue
        self._scheduler = scheduler
        self._rules = rules
        self._elected = elected
        self._report = report
        self._own: ReplicaId | None = None
        self._epoch: int | None = None
        self._due: dict[str, None] = {}
        self._at_a_time = TOPICS_AT_A_TIME
        """The topics in one change, fewer after a failure: a topic that cannot be written must not leave the others
        without leaders."""
        self._complaint = ""
        self._unclean: dict[TopicPartition, tuple[int, bool]] = {}
        """The partitions that an unclean election may give a leader: the leader epoch in which that was seen, and
        whether the wait is over."""
        self._changes = LeaderChanges(report)
        self._losses: dict[TopicPartition, str] = {}
        """The reported causes for which partitions have no leader."""
        self._is_electing = self._is_campaigning = self._is_closed = False
        registry.listen(self._on_delta)

    @property
    def is_active(self) -> bool:
        """True while this broker is the controller, as far as it knows."""
        return self._epoch is not None

    @property
    def epoch(self) -> int | None:
        """The controller epoch, from 1; None: this broker is not the controller."""
        return self._epoch

    def registered(self, registration: BrokerRegistration) -> None:
        """Campaign for this registration of the broker."""
        self._own = ReplicaId(registration.broker_id, registration.broker_epoch)
        self._resign()
        self._campaign()

    def lost(self) -> None:
        """Resign, since the broker's session has ended."""
        self._own = None
        self._changes.clear()
        self._resign()

    def close(self) -> None:
        """Hold no further elections. The controller node ends with the session."""
        self._is_closed = True
        self._resign()

    def check_leaders(self, names: Iterable[str]) -> None:
        """Check the leaders of these topics, and elect where needed."""
        if self._epoch is None:
            return
        self._due.update(dict.fromkeys(names))
        self._elect_soon()

    def _on_delta(self, delta: Delta, before: ClusterImage) -> None:
        if isinstance(delta, BrokersChanged):
            self._note_brokers(before, delta.brokers)
        match delta:
            case ControllerChanged(controller=None):
                self._campaign()
            case ControllerChanged(controller=controller) if controller != self._own:
                self._changes.clear()
                self._resign()
            case BrokersChanged() | ConfigsChanged(broker_id=None):
                self.check_leaders(self._registry.image.topics)
            case TopicSet(topic=topic):
                self.check_leaders([topic.name])
            case StatesChanged(topic=name):
                self.check_leaders([name])

    def _note_brokers(self, before: ClusterImage, after: Mapping[int, BrokerRegistration]) -> None:
        """Note which brokers have come and gone, unless a live controller reports it, which is another broker."""
        controller = before.controller
        if self._epoch is not None or controller is None or controller.broker_id not in after:
            self._changes.note_brokers(before.brokers, after)
        else:
            self._changes.clear()

    # --- becoming it

    def _campaign(self) -> None:
        if self._own is None or self._is_closed or self._is_campaigning or self._epoch is not None:
            return
        self._is_campaigning = True
        self._queue.run(partial(self._campaigning, self._own), self._campaigned)

    async def _campaigning(self, own: ReplicaId) -> tuple[ReplicaId, int | None]:
        coordination = self._registry.coordination
        node = layout.encode_controller(own)
        while True:
            try:
                await elsewhere(partial(coordination.create, layout.CONTROLLER, node, ephemeral=True))
                break
            except NodeExists:
                stored = await elsewhere(partial(coordination.get, layout.CONTROLLER))
            if stored.data == node:
                break
            if not is_earlier_controller(stored, own):
                await self._registry.reread_controller()
                return own, None
            await elsewhere(partial(end_earlier_controller, coordination, own))
        epoch = await elsewhere(partial(count_up, coordination, layout.CONTROLLER_EPOCH))
        await self._registry.reread_controller()
        return own, epoch

    def _campaigned(self, outcome: Outcome[tuple[ReplicaId, int | None]]) -> None:
        self._is_campaigning = False
        if self._is_closed:
            return
        error = outcome.error
        if isinstance(error, NoNode):  # the other one was gone before it could be looked at
            self._campaign()
            return
        if error is not None:
            self._complain("becoming the controller", error)
            self._scheduler.call_later(RETRY_MS, self._campaign)
            return
        own, epoch = outcome.get()
        if own != self._own:
            self._campaign()
        elif epoch is not None and self._registry.image.controller == own:
            self._epoch = epoch
            text = f"broker {own.broker_id} is the controller, controller epoch {epoch}"
            self._report(info(text, broker=own.broker_id, controller_epoch=epoch))
            self.check_leaders(self._registry.image.topics)
        elif self._registry.image.controller is None:
            self._scheduler.call_later(RETRY_MS, self._campaign)

    def _resign(self) -> None:
        if self._epoch is not None and self._own is not None:
            self._report(info(f"broker {self._own.broker_id} has resigned as the controller"))
        self._epoch = None
        self._due.clear()
        self._unclean.clear()
        self._losses.clear()

    # --- its work

    def _elect_soon(self) -> None:
        if self._is_electing or not self._due or self._epoch is None:
            return
        self._is_electing = True
        self._queue.run(self._elect_due, self._on_elected)

    async def _elect_due(self) -> None:
        some = list(self._due)[: self._at_a_time]
        for name in some:
            del self._due[name]
        if self._epoch is None:
            return
        decided: dict[str, tuple[ClusterImage, Iterable[int]]] = {}

        def decide(topic: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
            states = self._decide(topic, image)
            decided[topic.name] = image, states
            return states

        try:
            try:
                await self._registry.change_states(some, decide, {layout.CONTROLLER_EPOCH: self._epoch})
            finally:
                self._report_elected(decided)
            for name in some:
                await self._finish_moves(name)
        except Exception:
            self._due.update(dict.fromkeys(some))  # last
            self._at_a_time = max(1, len(some) // 2)
            raise
        self._at_a_time = min(TOPICS_AT_A_TIME, 2 * self._at_a_time)

    def _report_elected(self, decided: Mapping[str, tuple[ClusterImage, Iterable[int]]]) -> None:
        """Report the decided leader changes that count now: the others may not have been written."""
        image = self._registry.image
        for name, (before, numbers) in decided.items():
            topic = image.topics.get(name)
            if topic is None:
                continue  # it was deleted while others were written
            for key in [TopicPartition(name, number) for number in numbers if number in topic.partitions]:
                known, now = before.state(key), image.state(key)
                if known.leader != now.leader or known.leader_epoch != now.leader_epoch:
                    self._elected(key, known, now)
                    self._changes.note_leader(key, now.leader)

    async def _finish_moves(self, name: str) -> None:
        image = self._registry.image
        topic = image.topics.get(name)
        if topic is None or not (topic.adding or topic.removing):
            return
        finished = finished_moves(topic, image, self._rules(topic))
        if finished is not None:
            try:
                await self._registry.move(*finished)
            except BadVersion:  # another broker changed it: a delta follows, and the topic is checked again
                return
            after = finished[0]
            moved = [number for number in topic.partitions if topic.partitions[number] != after.partitions[number]]
            keys = [TopicPartition(name, number) for number in moved]
            for key in keys:
                text = f"{key} has moved to the brokers {list(after.partitions[key.partition])}"
                self._report(debug(text, topic=name, partition=key.partition))
            left = len({*after.adding, *after.removing})
            text = f"{counted(len(keys), 'partition has', 'partitions have')} moved ({named(keys)})"
            self._report(info(f"{text}; {left} of topic {name} are moving", topic=name, moved=len(keys), moving=left))

    def balance(self, percentage: int) -> None:
        """Elect preferred leaders again, where too few lead. A no-op unless this broker is the controller."""
        keys = unbalanced(self._registry.image, percentage) if self._epoch is not None else ()
        if not keys:
            return
        numbers: dict[str, set[int]] = {}
        for key in keys:
            numbers.setdefault(key.topic, set()).add(key.partition)
        guards = {layout.CONTROLLER_EPOCH: self._epoch or 0}

        def decide(topic: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
            decided = {}
            for number in numbers[topic.name] & topic.partitions.keys():
                key = TopicPartition(topic.name, number)
                brokers = image.brokers_with(key)
                state = image.state(key)
                replicas = state.replicas_in(topic.partitions[number])
                after = preferred(state, replicas, brokers, self._rules(topic))
                if after is not None:
                    decided[number] = after
            return decided

        async def balancing() -> None:
            changed = await self._registry.change_states(numbers, decide, guards)
            led = counted(len(changed), "partition is led by its", "partitions are led by their")
            self._report(info(f"{led} first replica again"))

        self._queue.run(balancing, self._settled_otherwise)

    def _settled_otherwise(self, outcome: Outcome[None]) -> None:
        if isinstance(outcome.error, Deposed):
            self._depose()
        elif outcome.error is not None:
            self._complain("letting first replicas lead", outcome.error)

    def _decide(self, topic: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
        rules = self._rules(topic)
        decided = {}
        for number, assigned in topic.partitions.items():
            key = TopicPartition(topic.name, number)
            state, brokers = image.state(key), image.brokers_with(key)
            replicas = state.replicas_in(assigned)
            after = settled(state, replicas, brokers, rules, is_overdue=self._is_overdue(key, state, brokers, rules))
            if after is not None:
                decided[number] = after
            else:
                self._report_loss(key, state, replicas, brokers)
        return decided

    def _is_overdue(self, key: TopicPartition, state: PartitionState, brokers: Brokers, rules: ElectionRules) -> bool:
        """Return True if the delay of an unclean election is over; the first call for a partition starts the delay."""
        if not awaits_unclean_election(state, brokers, rules):
            self._unclean.pop(key, None)
            return False
        epoch, is_over = self._unclean.get(key, (-1, False))
        if epoch != state.leader_epoch:
            self._unclean[key] = waiting = state.leader_epoch, False

            def over() -> None:
                if self._unclean.get(key) is waiting:
                    self._unclean[key] = waiting[0], True
                    self.check_leaders([key.topic])

            self._scheduler.call_later(UNCLEAN_WAIT_MS, over)
            return False
        return is_over

    def _report_loss(
        self, key: TopicPartition, state: PartitionState, replicas: Sequence[int], brokers: Brokers
    ) -> None:
        loss = describe_loss(state, replicas, brokers)
        if loss is None:
            self._losses.pop(key, None)
        elif self._losses.get(key) != loss:
            self._losses[key] = loss
            self._changes.note_loss(key, loss)

    def _on_elected(self, outcome: Outcome[None]) -> None:
        self._is_electing = False
        error = outcome.error
        if isinstance(error, Deposed):
            self._depose()
        elif error is not None:
            self._complain("electing leaders", error)
            self._scheduler.call_later(RETRY_MS, self._elect_soon)
        else:
            if not self._due:
                self._complaint = ""
                self._changes.flush()
            self._elect_soon()

    def _depose(self) -> None:
        self._resign()
        self._queue.run(self._registry.reread_controller, lambda _: self._campaign())

    def _complain(self, what: str, error: BaseException) -> None:
        """Report a failure once. An unreachable coordination service is not reported here: the metadata listener's
        readings fail, too, and report it."""
        complaint = f"{what} failed: {type(error).__name__}: {error}"
        if complaint != self._complaint and not is_unreachable(error if isinstance(error, BarnabasError) else None):
            self._complaint = complaint
            self._report(complaint)


def without_leader(image: ClusterImage) -> int:
    """Return the number of partitions without a leader (OfflinePartitionsCount)."""
    return sum(
        image.state(TopicPartition(topic.name, number)).leader == NO_LEADER
        for topic in image.topics.values()
        for number in topic.partitions
    )
