"""Every interleaving of a small scope, breadth first, over the functions that elect leaders in a broker: what a model
checker does, but for the code that runs.

`Situation` is one partition with its assignment and its state in the tree, its brokers and their logs; what changes
them is what `core/cluster/election.py` and `core/cluster/reassignment.py` say. An `Action` is a thing that may happen;
`Scope` says which ones, and how often each in one history. `search` plays all histories, situation by situation, and
stops at the first that loses a message. To add an action, write a function of a situation and a broker that changes the
situation, with one that says for which brokers it can happen now, and name both in `ACTIONS`.

Left out: time, and leases: a deposed leader that serves on must do no harm by itself.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from attrs import define, evolve, frozen

from barnabas.app.broker.lifecycle.cluster_member import ClusterMember
from barnabas.app.clients.admin.draining import BrokerDrain
from barnabas.core.cluster import reassignment
from barnabas.core.cluster.broker_lifecycle import BrokerLifecycleManager
from barnabas.core.cluster.election import (
    Brokers,
    ElectionRules,
    asked_to_elect,
    claimed,
    distrusted,
    later,
    may_join,
    moved_to,
    new_state,
    preferred,
    settled,
    wants_claim,
    with_isr,
)
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.topics import (
    ALONE_EPOCH,
    NO_LEADER,
    UNKNOWN_EPOCH,
    BrokerRegistration,
    LastRegistration,
    PartitionState,
    ReplicaId,
    Topic,
)
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition

_first = itemgetter(0)
Entry = tuple[int, int]
"""The leader epoch of a message, and which message it is."""
LogEntries = tuple[Entry, ...]
CONTROLLER = 0
KEY = TopicPartition("t", 0)
_SHARED = (
    "scope",
    "brokers",
    "moves",
    "rolls_back",
    "topic",
    "replicas",
    "rules",
    "broker_epoch",
    "tree",
    "lossy",
    "committed",
    "used",
    "messages",
    "wanted",
    "backup",
    "registered",
    "forgotten",
    "ahead",
    "retired",
    "cordoned",
    "topic_known",
    "settled_for",
)
"""The attributes that a copy of a situation shares until it changes them."""
K = TypeVar("K", int, tuple[int, int])
V = TypeVar("V")


class Lost(AssertionError):
    """A committed message is lost."""


@frozen(kw_only=True)
class Scope:
    """The possible actions. `most`: each action by its name, with its maximum count in one history; None: any number.

    replicas:  how many brokers have a replica at first.
    spare:     how many more brokers there are.
    targets:   assignments that a reassignment may have as its target, by their place here.
    unclean:   `unclean.leader.election.enable`.
    min_isr:   `min.insync.replicas` at first, and the one that it is set to, over and over, by `configure`.
    stale:     brokers go by an earlier state of the partition until they `see` the present one.
    apart:     brokers, and the controller, `learn` of an assignment apart from the state, earlier or later; and the
               controller decides the election (`decide_election`) whenever it gets to that.
    fewer:     partitions with more replicas than that lose the one on a drained broker without a new one.
    beyond:    more replicas may lose something than the cluster promises to survive. A leader must still have all
               that any disk has of what was committed.
    """

    replicas: int
    min_isr: int
    most: Mapping[str, int | None]
    spare: int = 0
    targets: tuple[tuple[int, ...], ...] = ()
    unclean: bool = False
    other_min_isr: int = 0
    stale: bool = False
    apart: bool = False
    fewer: int | None = None
    beyond: bool = False


@frozen
class Backup:
    """An operator's backup of the coordination tree."""

    topic: Topic
    tree: PartitionState
    broker_epoch: int
    registered: Mapping[int, int]


@frozen
class _Image:
    """The part of a `ClusterImage` that concerns one partition."""

    topic: Topic
    tree: PartitionState
    brokers: Brokers

    @property
    def topics(self) -> Mapping[str, Topic]:
        return {KEY.topic: self.topic}

    def state(self, _key: TopicPartition) -> PartitionState:
        return self.tree

    def brokers_with(self, _key: TopicPartition) -> Brokers:
        return self.brokers


class Situation:
    """One partition at one moment. Broker 1 is the first of its replicas."""

    __slots__ = (
        "ahead",
        "asked",
        "assigned",
        "backup",
        "begun",
        "broker_epoch",
        "brokers",
        "committed",
        "configured",
        "cordoned",
        "ends",
        "forgotten",
        "high_watermarks",
        "images",
        "in_order",
        "last_lives",
        "led",
        "live",
        "logs",
        "lossy",
        "messages",
        "moves",
        "registered",
        "replicas",
        "retired",
        "rolls_back",
        "rules",
        "scope",
        "sent",
        "settled_for",
        "starts",
        "topic",
        "topic_known",
        "tree",
        "uncut",
        "used",
        "wanted",
    )

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.brokers = tuple(range(1, scope.replicas + scope.spare + 1))
        self.moves = bool(scope.targets) or "drain" in scope.most
        self.rolls_back = "restore" in scope.most
        """The tree may be restored; without that nothing of a log is later than the tree."""
        self.replicas = self.brokers[: scope.replicas]
        self.topic = Topic(name=KEY.topic, topic_id=bytes(16), partitions={KEY.partition: self.replicas})
        self.wanted = scope.min_isr
        """`min.insync.replicas` as it is set for all brokers."""
        self.rules = ElectionRules(min_isr=scope.min_isr, unclean=scope.unclean)
        """The rules as the controller knows them."""
        self.configured = dict.fromkeys(self.brokers, scope.min_isr)
        """Each broker's view of it."""
        self.live = {each: _registration(each, each) for each in self.brokers}
        self.last_lives = {each: each for each in self.brokers}
        """The last life of each broker, as its data folders have it."""
        self.begun = dict.fromkeys(self.brokers, 0)
        """The first life of each broker with its present disk; 0 for a disk that was there from the beginning."""
        self.broker_epoch = len(self.brokers)
        """The last one that was drawn."""
        self.tree = new_state(self.replicas, self.live, min_isr=scope.min_isr)
        self.images = dict.fromkeys(self.brokers, self.tree)
        """Each live broker's view of the state in the tree."""
        self.assigned = dict.fromkeys(self.brokers, self.replicas)
        """Each live broker's view of the assignment."""
        self.logs: dict[int, LogEntries] = dict.fromkeys(self.brokers, ())
        self.uncut: dict[int, LogEntries] = {}
        """By broker: its log before the last cut, for as long as that is not flushed."""
        self.high_watermarks = dict.fromkeys(self.brokers, 0)
        self.starts = dict.fromkeys(self.brokers, 0)
        """The end of a leader's log at its election."""
        self.ends: dict[tuple[int, int], tuple[int, int]] = {}
        """By leader and follower: the life in which the follower reported last, and its log end."""
        self.sent: dict[int, tuple[int, int, LogEntries]] = {}
        """By follower: a fetch on its way, with the life and the leader epoch in it, and the log that it speaks of."""
        self.asked: dict[int, tuple[int, ReplicaId]] = {}
        """By leader: whom the tree was asked to have in the ISR, and for which state. It may have that replica there
        although the leader has not seen it."""
        self.in_order: dict[int, int] = {}
        """The lives of brokers that stopped in order, until they start."""
        self.lossy: frozenset[int] = frozenset()
        """Brokers that lost something and have not been in sync since."""
        self.committed: tuple[int, ...] = ()
        self.messages = 0
        """The number of sent messages."""
        self.used: tuple[int, ...] = (0,) * len(scope.most)
        self.registered: Mapping[int, int] = dict(self.last_lives)
        """The last registration of each broker by the nodes of the tree that stay."""
        self.backup: Backup | None = None
        self.forgotten: frozenset[int] = frozenset()
        """Brokers of which the tree had forgotten lives when they registered, and which have not said so yet."""
        self.ahead: frozenset[int] = frozenset()
        """Brokers whose logs have later leader epochs than the state that they know (`Partition.is_ahead`)."""
        self.topic_known = self.topic
        """The assignment as the controller knows it."""
        self.cordoned: frozenset[int] = frozenset()
        """Brokers that get no new replicas."""
        self.retired: frozenset[int] = frozenset()
        """Brokers that were drained, stopped, removed, and scrapped with their disks."""
        self.led: dict[int, tuple[int, int]] = {1: (self.tree.leader_epoch, 1)}
        """The leader epoch, and the life, in which each live broker has led last."""
        self.settled_for: tuple[object, ...] | None = None
        """The arguments of the last call of `settled` that changed nothing: equal ones would change nothing again."""

    def copy(self) -> "Situation":
        new = Situation.__new__(Situation)
        for name in _SHARED:
            setattr(new, name, getattr(self, name))
        new.live, new.images, new.logs, new.ends = dict(self.live), dict(self.images), dict(self.logs), dict(self.ends)
        new.high_watermarks, new.starts = dict(self.high_watermarks), dict(self.starts)
        new.configured, new.asked = dict(self.configured), dict(self.asked)
        new.in_order, new.begun = dict(self.in_order), dict(self.begun)
        new.uncut, new.sent = dict(self.uncut), dict(self.sent)
        new.assigned, new.led, new.last_lives = dict(self.assigned), dict(self.led), dict(self.last_lives)
        return new

    def key(self) -> object:
        """Equal for situations from which the same can happen. Of broker epochs only the order counts."""
        states = [self.tree, *(self.images[each] for each in sorted(self.images))] if self.scope.stale else [self.tree]
        if self.backup is not None:
            states.append(self.backup.tree)
        epochs = {*self.in_order.values()}
        for each in self.live.values():
            epochs.add(each.broker_epoch)
            epochs.add(each.previous_epoch)
        epochs.update(self.begun.values())
        epochs.update([own.broker_epoch for _, own in self.asked.values()])
        epochs.update([life for life, _ in self.ends.values()])
        epochs.update([life for life, _, _ in self.sent.values()])
        if self.rolls_back:
            epochs.update(self.last_lives.values())
            epochs.update(self.registered.values())
            epochs.add(self.broker_epoch)
            if self.backup is not None:
                epochs.add(self.backup.broker_epoch)
                epochs.update(self.backup.registered.values())
        for state in states:
            epochs.update(state.broker_epochs.values())
            epochs.update([claim.broker_epoch for claim in state.claims.values()])
        number = {epoch: order for order, epoch in enumerate(sorted(epochs))}
        return (
            tuple([_state_key(state, number) for state in states]),
            self._assignment_key(),
            self._rollback_key(number),
            (self.wanted, self.rules.min_isr, *(self.configured[each] for each in self.brokers)),
            tuple([(each, number[life.broker_epoch], number[life.previous_epoch]) for each, life in _items(self.live)]),
            tuple([(each, number[life]) for each, life in _items(self.in_order)]),
            tuple([number[self.begun[each]] for each in self.brokers]),
            tuple([self.logs[each] for each in self.brokers]),
            tuple(_items(self.uncut)),
            tuple([self.high_watermarks[each] for each in self.brokers]),
            tuple(self.starts[each] if each == self.images.get(each, self.tree).leader else 0 for each in self.brokers),
            tuple([(pair, number[life], end) for pair, (life, end) in _items(self.ends)]),
            tuple([(each, own.broker_id, number[own.broker_epoch]) for each, (_, own) in _items(self.asked)]),
            tuple([(each, number[life], epoch, log) for each, (life, epoch, log) in _items(self.sent)]),
            self.lossy,
            self.retired,
            self.cordoned,
            self.committed,
            self.messages,
            self.used,
        )

    def _assignment_key(self) -> object:
        if not self.moves:
            return None
        known = tuple(self.assigned[each] for each in sorted(self.assigned)) if self.scope.stale else ()
        former = self.topic.former if self.scope.apart else ()
        return *map(_assignment_key, (self.topic, self.topic_known)), former, known

    def _rollback_key(self, number: Mapping[int, int]) -> object:
        if not self.rolls_back:
            return None
        return (
            None if self.backup is None else number[self.backup.broker_epoch],
            None if self.backup is None else tuple(number[self.backup.registered[each]] for each in self.brokers),
            number[self.broker_epoch],
            tuple(number[self.last_lives[each]] for each in self.brokers),
            tuple(number[self.registered[each]] for each in self.brokers),
            self.forgotten,
            self.ahead,
            tuple(self.led.get(each) == (self.images[each].leader_epoch, self.life_of(each)) for each in self.images),
        )

    # --- what brokers do

    def leads(self, broker: int) -> bool:
        """Return True if the broker acts as the leader."""
        image = self.images.get(broker)
        if image is None or image.leader != broker or broker in self.ahead:
            return False
        return image.broker_epochs.get(broker) == self.live[broker].broker_epoch

    def leader_of(self, follower: int) -> int | None:
        """Return the leader from which the follower fetches: one of the same epoch."""
        image = self.images.get(follower)
        if image is None or image.leader == follower or not self.leads(image.leader):
            return None
        assigned = self.assigned[follower]
        partition = SimpleNamespace(broker_id=follower, assigned=assigned, replicas=image.replicas_in(assigned))
        if follower in self.ahead or not Partition.may_follow.__get__(partition):
            return None
        return image.leader if self.images[image.leader].leader_epoch == image.leader_epoch else None

    def see(self, broker: int) -> None:
        """The broker hears of the state in the tree."""
        before, self.images[broker] = self.images[broker], self.tree
        self.asked.pop(broker, None)
        if not self.scope.apart:
            self.assign(broker)
        self.compare_epochs(broker)
        if before.leader_epoch != self.tree.leader_epoch:
            self.ends = {pair: end for pair, end in self.ends.items() if pair[0] != broker}
            self.starts[broker] = len(self.logs[broker])
        self.raise_high_watermark(broker)

    def assign(self, broker: int) -> None:
        """The broker goes by the present assignment."""
        self.assigned[broker] = self.replicas
        if broker not in self.replicas:
            self.logs[broker], self.high_watermarks[broker] = (), 0  # the replica has moved away
        if self.moves:
            self.ends = {pair: end for pair, end in self.ends.items() if pair[0] != broker or pair[1] in self.replicas}

    def compare_epochs(self, broker: int) -> None:
        """Find out whether the log has later leader epochs than the state, as `Partition.apply_state` does."""
        if not self.rolls_back:
            return
        image, own = self.images[broker], ReplicaId(broker, self.life_of(broker))
        leader, led = image.leader, self.led.get(broker, (-1, -1))
        if leader == broker and image.broker_epochs.get(broker, ALONE_EPOCH) != own.broker_epoch:
            leader = NO_LEADER
        partition = SimpleNamespace(
            leader=leader, leader_epoch=image.leader_epoch, broker_id=broker, log=self.log_of(broker), _led=led
        )
        self.ahead -= {broker}
        if Partition._is_ahead(cast(Any, partition), own):
            self.ahead |= {broker}
        elif leader == broker:
            self.led[broker] = image.leader_epoch, own.broker_epoch

    def log_of(self, broker: int) -> Any:
        log = self.logs[broker]
        return SimpleNamespace(epochs=SimpleNamespace(latest=log[-1][0] if log else -1))

    def has_forgotten(self, broker: int) -> bool:
        """Return True if the tree has lost states of the partition, as this broker finds out."""
        if not self.rolls_back:
            return False
        member = SimpleNamespace(_forgotten={KEY} if broker in self.forgotten else set[TopicPartition]())
        partition = SimpleNamespace(
            topic_partition=KEY, state=self.images[broker], is_ahead=broker in self.ahead, log=self.log_of(broker)
        )
        is_forgotten = ClusterMember._is_forgotten(cast(Any, member), cast(Any, partition), self.tree, self.replicas)
        if not member._forgotten:
            self.forgotten -= {broker}
        return is_forgotten

    def raise_high_watermark(self, leader: int) -> None:
        if not self.leads(leader):
            return
        image = self.images[leader]
        replicas = image.replicas_in(self.assigned[leader])
        if len(image.isr) < image.enough_in_sync(replicas, self.configured[leader]):
            return
        end = len(self.logs[leader])
        counted = [(each, image.broker_epochs.get(each)) for each in image.isr if each != leader]
        if leader in self.asked:
            added = self.asked[leader][1]
            counted.append((added.broker_id, added.broker_epoch))
        for member, epoch in counted:
            life, reported = self.ends.get((leader, member), (-1, -1))
            end = min(end, reported if life == epoch else -1)
        if end > self.high_watermarks[leader]:
            self.high_watermarks[leader] = end
            entries = tuple(message for _, message in self.logs[leader][:end])
            if entries[: len(self.committed)] != self.committed[: len(entries)]:
                raise Lost(f"broker {leader} commits {entries}, committed were {self.committed}")
            if end > len(self.committed):
                self.committed = entries

    def store(self, after: PartitionState | None) -> None:
        """Another state is in the tree."""
        if after is None:
            return
        if self._is_unclean(after):
            self._check_best(after.leader)
        self.tree = after
        self.lossy = frozenset(
            each for each in self.lossy if each not in after.isr or after.broker_epochs[each] != self.life_of(each)
        )
        self.check()
        if not self.scope.stale:
            for broker in self.live:
                self.see(broker)

    def _is_unclean(self, after: PartitionState) -> bool:
        """Return True if a leader is elected where the rules for clean elections elect none."""
        if self.tree.leader != NO_LEADER or after.leader == NO_LEADER:
            return False
        if not (self.scope.unclean or "elect_uncleanly" in self.scope.most):
            return False
        clean = settled(self.tree, self.replicas, self.live, evolve(self.rules, unclean=False))
        return clean is None or clean.leader == NO_LEADER

    def _check_best(self, leader: int) -> None:
        """An unclean election may lose messages, but no live replica has more than the leader."""
        extents = {each: self._extent(each) for each in self.replicas if each in self.live}
        if extents[leader] < max(extents.values()):
            raise Lost(f"broker {leader} leads by an unclean election, the logs of live brokers reach to {extents}")
        self.committed = self.committed[: self._committed_at(leader)]

    def _extent(self, broker: int) -> tuple[int, int]:
        log = self.logs[broker]
        return log[-1][0] if log else -1, len(log)

    def move_to(self, topic: Topic, state: PartitionState) -> None:
        """Another assignment is in the tree, and a state with it: `ClusterRegistry.move`."""
        states = reassignment.states_with_assignment(
            self.topic, topic, {KEY.partition: state}, {KEY.partition: self.tree}
        )
        state = states[KEY.partition]
        self.topic, self.replicas = topic, topic.partitions[KEY.partition]
        if not self.scope.apart:
            self.topic_known = topic
        self.store(state)

    @property
    def image(self) -> ClusterImage:
        """Return the image of the controller, or of the broker that an operator asks."""
        return cast(ClusterImage, _Image(self.topic, self.tree, self.live))

    def life_of(self, broker: int) -> int:
        return self.live[broker].broker_epoch if broker in self.live else -1

    def wish_isr(self, leader: int, isr: Iterable[ReplicaId], added: ReplicaId | None = None) -> None:
        """A leader asks for another ISR: in vain if it does not know the state in the tree. It sees later what came of
        it, where brokers see late; until then it counts whom it wanted to add."""
        known = self.images[leader].partition_epoch
        if known != self.tree.partition_epoch or leader in self.asked:
            return
        rules = ElectionRules(min_isr=self.configured[leader])
        after = with_isr(self.tree, isr, self.tree.replicas_in(self.assigned[leader]), self.live, rules)
        if after != self.tree:
            if added is not None:
                self.asked[leader] = known, added
            self.store(later(after, self.tree))

    def calm(self) -> None:
        """Let the controller settle the state, and brokers claim what they have."""
        while True:
            after = None if self.scope.apart else self._next_state()
            if after is not None:
                self.store(after)
                continue
            for broker, registration in self.live.items():
                if broker not in self.replicas or (self.scope.apart and self.images[broker] is not self.tree):
                    continue
                own, log = ReplicaId(broker, registration.broker_epoch), self.logs[broker]
                if self.has_forgotten(broker):
                    self.store(distrusted(self.tree, self.replicas, own, *self._extent(broker)))
                    break
                if wants_claim(self.tree, self.replicas, own):
                    lost = self.tree.broker_epochs.get(broker, self.broker_epoch) < self.begun[broker]
                    self.store(claimed(self.tree, own, log[-1][0] if log else -1, len(log), lost=lost))
                    break
            else:
                return

    def _next_state(self) -> PartitionState | None:
        settled_for = (self.tree, self.replicas, self.rules, tuple(self.live.items()))
        if settled_for == self.settled_for:
            return None
        after = settled(self.tree, self.replicas, self.live, self.rules)
        if after is None:
            self.settled_for = settled_for
        return after

    def check(self) -> None:
        """A leader has every committed message; `beyond`: every one that is on a disk at all. Without a leader some
        replica has every one."""
        leader = self.tree.leader
        if leader == NO_LEADER or (self.scope.apart and self.life_of(leader) != self.tree.broker_epochs[leader]):
            if not self.scope.beyond and max(map(self._committed_at, self.replicas)) < len(self.committed):
                raise Lost(f"no replica of {self.replicas} has all of {self.committed}, the logs are {self.logs}")
            return
        has = self._committed_at(leader)
        asked = max(map(self._committed_at, self.logs)) if self.scope.beyond else len(self.committed)
        if has < asked:
            raise Lost(
                f"broker {leader} leads in epoch {self.tree.leader_epoch} with {has} of {self.committed}, the logs are"
                f" {self.logs}, the state is {self.tree}"
            )
        self.committed = self.committed[:has]

    def _committed_at(self, broker: int) -> int:
        """Return how many of the committed messages its log has."""
        log = self.logs[broker]
        for offset, message in enumerate(self.committed):
            if offset >= len(log) or log[offset][1] != message:
                return offset
        return len(self.committed)

    def register(self, broker: int, previous_epoch: int = -1) -> None:
        """`BrokerLifecycleManager._registering` and `ClusterMember._registered`."""
        self.broker_epoch += 1
        stored = {broker: LastRegistration(broker, self.registered[broker])}
        noted = {broker: LastRegistration(broker, self.last_lives[broker])}
        membership = SimpleNamespace(_own=SimpleNamespace(broker_id=broker), _seen=noted, _has_registered=False)
        membership._report = str
        restored = cast(Any, membership)
        has_gone_back = BrokerLifecycleManager._is_restored(
            restored, self.broker_epoch, self.last_lives[broker], stored
        )
        if has_gone_back:
            self.broker_epoch = max(self.broker_epoch, self.last_lives[broker] + 1)
            previous_epoch = UNKNOWN_EPOCH
        self.last_lives[broker] = self.broker_epoch
        self.registered = {**self.registered, broker: self.broker_epoch}
        self.live[broker] = _registration(broker, self.broker_epoch, previous_epoch)
        member = SimpleNamespace(_state=SimpleNamespace(image=self.image))
        if has_gone_back and ClusterMember._may_be_distrusted(cast(Any, member), KEY):
            self.forgotten |= {broker}
        if self.begun[broker] < 0:
            self.begun[broker] = self.broker_epoch
        self.images[broker] = self.tree
        self.configured[broker] = self.wanted
        self.starts[broker] = 0
        self.assign(broker)
        self.see(broker)

    def stop(self, broker: int) -> int:
        """Stop the broker; return its last broker epoch."""
        del self.images[broker], self.assigned[broker]
        self.asked.pop(broker, None)
        self.led.pop(broker, None)
        self.ahead -= {broker}
        self.forgotten -= {broker}
        self.ends = {pair: end for pair, end in self.ends.items() if pair[0] != broker}
        return self.live.pop(broker).broker_epoch

    def check_lives_on(self) -> None:
        """Check that the partition has a leader and does not move, when nothing is pending, and all brokers that can
        have started."""
        if self.scope.beyond or (
            self.tree.leader in self.live and not reassignment.is_moving(self.topic, KEY.partition)
        ):
            return
        then = self.copy()
        for broker in _dead(then):
            start(then, broker)
            then.calm()
        before, key = None, then.key()
        while key != before:
            before = key
            for name in ("learn", "see", "hear", "decide_election", "fetch", "finish"):
                action = ACTIONS[name]
                for broker in list(action.brokers(then)):
                    if broker in action.brokers(then):
                        action.happens(then, broker)
                        then.calm()
            key = then.key()
        is_moving = reassignment.is_moving(then.topic, KEY.partition)
        if then.tree.leader not in then.live or is_moving:
            what = "moves" if is_moving else "has no leader"
            raise Lost(f"the partition {what} for ever: {then.tree}, replicas {then.topic}, logs {then.logs}")

    def may_lose(self, broker: int) -> bool:
        least = min(filter(None, (self.scope.min_isr, self.scope.other_min_isr)))
        return self.scope.beyond or len(self.lossy | {broker}) < min(least, len(self.replicas))

    def may_restore(self) -> bool:
        """Return True if no broker runs, and a restore reveals and loses nothing beyond the rules.

        It is revealed to the replicas that have registered since the backup. The log that reaches furthest has every
        committed message where the logs have not diverged.
        """
        backup = self.backup
        if backup is None or self.live or backup.tree == self.tree:
            return False
        replicas = backup.topic.partitions[KEY.partition]
        if any(self.last_lives[each] == backup.registered[each] for each in replicas):
            return False
        logs = sorted(self.logs.values(), key=len)
        return all(longer[: len(log)] == log for log, longer in pairwise(logs))


def _registration(broker: int, broker_epoch: int, previous_epoch: int = -1) -> BrokerRegistration:
    return BrokerRegistration(broker_id=broker, endpoints=(), broker_epoch=broker_epoch, previous_epoch=previous_epoch)


def _items(some: Mapping[K, V]) -> Sequence[tuple[K, V]]:
    return sorted(some.items(), key=_first) if some else ()


def _assignment_key(topic: Topic) -> object:
    number = KEY.partition
    return topic.partitions[number], topic.adding.get(number), topic.removing.get(number)


def _state_key(state: PartitionState, number: Mapping[int, int]) -> object:
    return (
        state.leader,
        state.leader_epoch,
        state.isr,
        state.elr,
        state.suspects,
        state.min_isr,
        state.replicas,
        tuple([(each, number[epoch]) for each, epoch in _items(state.broker_epochs)]),
        tuple([(each, number[c.broker_epoch], c.extent, c.lost) for each, c in _items(state.claims)]),
    )


# --- actions


def _leaders(now: Situation) -> Iterator[int]:
    return (each for each in now.live if now.leads(each))


def _followers(now: Situation) -> Iterator[int]:
    return (each for each in now.live if now.leader_of(each) is not None)


def _live(now: Situation) -> Iterable[int]:
    return tuple(now.live)


def _dead(now: Situation) -> Iterable[int]:
    return [each for each in now.logs if each not in now.live and each not in now.retired]


def _members(now: Situation) -> Iterable[int]:
    return [each for each in now.tree.isr if each != now.tree.leader and now.tree.leader != NO_LEADER]


def _unaware(now: Situation) -> Iterable[int]:
    return [each for each, image in now.images.items() if image.partition_epoch != now.tree.partition_epoch]


def _losing(now: Situation) -> Iterable[int]:
    return [each for each in now.live if now.may_lose(each) and now.logs[each]]


def _of_old_configs(now: Situation) -> Iterator[int]:
    if now.rules.min_isr != now.wanted:
        yield CONTROLLER
    yield from (each for each in now.live if now.configured[each] != now.wanted)


def _waiting(now: Situation) -> Iterable[int]:
    return (CONTROLLER,) if now.live and now.tree.leader == NO_LEADER else ()


def _targets(now: Situation) -> Iterable[int]:
    present = reassignment.target_of(now.topic, KEY.partition)
    return [place for place, target in enumerate(now.scope.targets) if target != present]


def _moving(now: Situation) -> Iterable[int]:
    return (CONTROLLER,) if now.live and reassignment.is_moving(now.topic, KEY.partition) else ()


def _ending(now: Situation) -> Iterable[int]:
    return _moving(now) if now.topic_known is now.topic else ()


def _learning(now: Situation) -> Iterator[int]:
    if now.scope.apart:
        if now.topic_known is not now.topic:
            yield CONTROLLER
        yield from (each for each in now.live if now.assigned[each] != now.replicas)


def _undecided(now: Situation) -> Iterable[int]:
    return (CONTROLLER,) if now.scope.apart and now.live and _settled(now) is not None else ()


def _settled(now: Situation) -> PartitionState | None:
    replicas = now.tree.replicas_in(now.topic_known.partitions[KEY.partition])
    return settled(now.tree, replicas, now.live, now.rules)


def _draining(now: Situation) -> Iterable[int]:
    return now.brokers if now.live else ()


def _drained(now: Situation) -> Iterable[int]:
    return [each for each in now.cordoned if each not in now.replicas and each not in now.retired]


def append(now: Situation, leader: int) -> None:
    """A producer sends a message. No two messages of one leader epoch have one offset."""
    now.messages += 1
    epoch, offset = now.images[leader].leader_epoch, len(now.logs[leader])
    if any(len(log) > offset and log[offset][0] == epoch for log in now.logs.values()):
        raise Lost(f"broker {leader} writes offset {offset} of the leader epoch {epoch} again, the logs are {now.logs}")
    now.logs[leader] += ((epoch, now.messages),)
    now.raise_high_watermark(leader)


def fetch(now: Situation, follower: int) -> None:
    """A follower copies all that its leader has, reports it, and comes into the ISR if it may."""
    leader = now.leader_of(follower)
    assert leader is not None
    own, theirs = now.logs[follower], now.logs[leader]
    same = 0
    while same < min(len(own), len(theirs)) and own[same] == theirs[same]:
        same += 1
    life = now.live[follower].broker_epoch
    if same < len(own) and "untear" in now.scope.most:
        now.uncut[follower] = own
    now.logs[follower] = theirs
    now.high_watermarks[follower] = min(now.high_watermarks[follower], same)
    _count(now, leader, ReplicaId(follower, life), len(theirs))
    now.high_watermarks[follower] = max(now.high_watermarks[follower], now.high_watermarks[leader])


def _count(now: Situation, leader: int, own: ReplicaId, log_end: int) -> None:
    """The leader counts a follower that has everything below `log_end`."""
    follower, life = own.broker_id, own.broker_epoch
    now.ends[leader, follower] = life, log_end
    now.raise_high_watermark(leader)
    image = now.images[leader]
    if follower not in image.isr or image.broker_epochs[follower] != life:
        is_caught_up = log_end >= max(now.high_watermarks[leader], now.starts[leader])
        if is_caught_up and follower in image.replicas_in(now.assigned[leader]) and may_join(own, now.live):
            lives = [ReplicaId(each, image.broker_epochs[each]) for each in image.isr if each != follower]
            now.wish_isr(leader, [*lives, own], own)


def send(now: Situation, follower: int) -> None:
    """A follower sends a fetch that takes its time."""
    now.sent[follower] = now.live[follower].broker_epoch, now.images[follower].leader_epoch, now.logs[follower]


def arrive(now: Situation, follower: int) -> None:
    """The leader takes up a fetch, in which nothing but the life, the leader epoch and the end of a log is said. The
    follower hears nothing of it."""
    life, epoch, log = now.sent.pop(follower)
    leader = now.tree.leader
    if not now.leads(leader) or now.images[leader].leader_epoch != epoch:
        return
    if now.logs[leader][: len(log)] == log and follower in now.images[leader].replicas_in(now.assigned[leader]):
        _count(now, leader, ReplicaId(follower, life), len(log))


def lag(now: Situation, member: int) -> None:
    """A member has been behind for too long: the leader has it taken out of the ISR."""
    leader = now.tree.leader
    if now.leads(leader):
        image = now.images[leader]
        lives = [ReplicaId(each, image.broker_epochs[each]) for each in image.isr if each != member]
        now.wish_isr(leader, lives)


def elect(now: Situation, member: int) -> None:
    """An operator has another member lead."""
    now.store(moved_to(now.tree, member, now.replicas, now.live, now.rules))


def kill(now: Situation, broker: int) -> None:
    """kill -9: the log stays as it is."""
    now.stop(broker)


def tear(now: Situation, broker: int) -> None:
    """The machine loses power, and with it the last message of the log."""
    now.stop(broker)
    now.logs[broker] = now.logs[broker][:-1]
    now.high_watermarks[broker] = min(now.high_watermarks[broker], len(now.logs[broker]))
    now.lossy |= {broker}


def untear(now: Situation, broker: int) -> None:
    """The machine loses power, and with it the last cut of the log: what the cut had removed is back, and what was
    written since is gone."""
    now.stop(broker)
    now.logs[broker] = now.uncut.pop(broker)
    now.high_watermarks[broker] = min(now.high_watermarks[broker], len(now.logs[broker]))
    now.lossy |= {broker}


def lose(now: Situation, broker: int) -> None:
    """The disk is lost: an empty one takes its place."""
    now.stop(broker)
    now.logs[broker], now.high_watermarks[broker], now.begun[broker] = (), 0, -1
    now.lossy |= {broker}


def stop_in_order(now: Situation, broker: int) -> None:
    now.in_order[broker] = now.stop(broker)


def expire(now: Situation, broker: int) -> None:
    """The session ends, and the broker registers again with all that it had."""
    before = now.stop(broker)
    now.calm()
    now.register(broker, before)


def configure(now: Situation, _broker: int) -> None:
    """An operator sets `min.insync.replicas` for all brokers."""
    now.wanted = now.scope.other_min_isr if now.wanted == now.scope.min_isr else now.scope.min_isr


def hear(now: Situation, broker: int) -> None:
    """A broker, or the controller (0), hears of what was set."""
    if broker == CONTROLLER:
        now.rules = evolve(now.rules, min_isr=now.wanted)
    else:
        now.configured[broker] = now.wanted
        now.raise_high_watermark(broker)


def start(now: Situation, broker: int) -> None:
    now.register(broker, now.in_order.pop(broker, -1))


def move(now: Situation, place: int) -> None:
    """An operator reassigns the partition; another reassignment may be on its way."""
    with suppress(ApiError):
        _move(now, now.scope.targets[place])


def _move(now: Situation, target: Sequence[int]) -> None:
    """`ReplicaService._moved`."""
    if tuple(target) == now.replicas and not reassignment.is_moving(now.topic, KEY.partition):
        return
    free = [each for each in now.live if each not in now.cordoned]
    topic = reassignment.begin_move(now.topic, KEY.partition, target, free)
    now.move_to(topic, reassignment.touched(now.tree))


def cancel(now: Situation, _broker: int) -> None:
    """An operator cancels the reassignment."""
    with suppress(ApiError):
        _cancel(now)


def _cancel(now: Situation) -> None:
    topic, states = reassignment.cancel_move(now.topic, KEY.partition, now.image, now.rules)
    now.move_to(topic, states[KEY.partition])


def finish(now: Situation, _broker: int) -> None:
    """The controller ends the reassignment if it may."""
    finished = reassignment.finished_moves(now.topic, now.image, now.rules)
    if finished is not None:
        now.move_to(finished[0], finished[1][KEY.partition])


def learn(now: Situation, broker: int) -> None:
    """A broker, or the controller (0), reads the assignment, and the state with it (`ClusterRegistry.reread`)."""
    if broker == CONTROLLER:
        now.topic_known = now.topic
    else:
        now.assign(broker)
        now.see(broker)


def decide_election(now: Situation, _broker: int) -> None:
    """The controller writes the state that follows from what it knows."""
    now.store(_settled(now))


def drain(now: Situation, broker: int) -> None:
    """An operator begins to drain a broker: `barnabas brokers drain --execute`."""
    drain_of = BrokerDrain(cast(Any, OperatorsView(now)), broker, replication_factor=now.scope.fewer)
    with suppress(ApiError, ConfigError):
        drain_of.start(drain_of.plan())


def advance(now: Situation, broker: int) -> None:
    """The command looks after a drain that it has begun, or is run again."""
    with suppress(ApiError, ConfigError):
        BrokerDrain(cast(Any, OperatorsView(now)), broker, replication_factor=now.scope.fewer).advance()


def undrain(now: Situation, broker: int) -> None:
    """An operator cancels the drain."""
    with suppress(ApiError):
        BrokerDrain(cast(Any, OperatorsView(now)), broker).cancel()


def retire(now: Situation, broker: int) -> None:
    """A drained broker is stopped, removed from the cluster, and scrapped with its disk."""
    if broker in now.live:
        now.stop(broker)
    now.in_order.pop(broker, None)
    now.logs[broker], now.high_watermarks[broker] = (), 0
    now.uncut.pop(broker, None)
    now.retired |= {broker}


class OperatorsView:
    """The part of an `Admin` that `BrokerDrain` calls, over a situation."""

    def __init__(self, now: Situation) -> None:
        self._now = now

    def describe_log_dirs(self, *_: object) -> Mapping[int, Any]:
        now = self._now
        folder = SimpleNamespace(is_cordoned=True, replicas=())
        return {each: [folder] if each in now.cordoned else [] for each in now.live}

    def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=each, rack=None, host="") for each in self._now.live])

    def describe_topics(self, *_: object) -> Any:
        now = self._now
        partition = SimpleNamespace(
            partition=KEY.partition, leader=now.tree.leader, replicas=now.replicas, isr=now.tree.isr
        )
        return [SimpleNamespace(name=KEY.topic, partitions=[partition])]

    def list_topics(self, **_: object) -> Any:
        return []

    def list_reassignments(self) -> Any:
        topic, number = self._now.topic, KEY.partition
        if not reassignment.is_moving(topic, number):
            return []
        target = reassignment.target_of(topic, number)
        return [
            SimpleNamespace(
                topic=topic.name,
                partition=number,
                replicas=topic.partitions[number],
                adding=[each for each in topic.adding.get(number, ()) if each in target],
                removing=topic.removing.get(number, ()),
            )
        ]

    def cordon_broker(self, broker: int, *, cordoned: bool = True) -> None:
        self._now.cordoned = self._now.cordoned - {broker} | ({broker} if cordoned else set())

    def reassign_partitions(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        now = self._now
        for target in wanted.values():
            if target is None:
                _cancel(now)
            else:
                _move(now, target)

    def describe_configs(self, *_: object) -> Any:
        return []

    def elect_leaders(self, _: object) -> None:
        now = self._now
        now.store(preferred(now.tree, now.replicas, now.live, now.rules))


def back_up(now: Situation, _broker: int) -> None:
    now.backup = Backup(now.topic, now.tree, now.broker_epoch, now.registered)


def restore(now: Situation, _broker: int) -> None:
    """All that the coordination service has is as it was when the backup was made."""
    backup = now.backup
    assert backup is not None
    now.topic, now.tree, now.broker_epoch, now.backup = backup.topic, backup.tree, backup.broker_epoch, None
    now.replicas, now.registered = now.topic.partitions[KEY.partition], backup.registered


def end_wait(now: Situation, _broker: int) -> None:
    """The controller has waited long enough for replicas before an unclean election."""
    now.store(settled(now.tree, now.replicas, now.live, now.rules, is_overdue=True))


def elect_uncleanly(now: Situation, _broker: int) -> None:
    """An operator asks for an unclean election."""
    now.store(asked_to_elect(now.tree, now.replicas, now.live, now.rules))


@define(frozen=True)
class Action:
    """`brokers`: for which of them it can happen now."""

    brokers: Callable[[Situation], Iterable[int]]
    happens: Callable[[Situation, int], None]


ACTIONS: dict[str, Action] = {
    "append": Action(_leaders, append),
    "fetch": Action(_followers, fetch),
    "send": Action(lambda now: [each for each in _followers(now) if each not in now.sent], send),
    "arrive": Action(lambda now: tuple(now.sent), arrive),
    "see": Action(_unaware, Situation.see),
    "lag": Action(_members, lag),
    "elect": Action(_members, elect),
    "kill": Action(_live, kill),
    "tear": Action(_losing, tear),
    "untear": Action(lambda now: [each for each in now.uncut if each in now.live and now.may_lose(each)], untear),
    "lose": Action(_losing, lose),
    "stop": Action(_live, stop_in_order),
    "expire": Action(_live, expire),
    "start": Action(_dead, start),
    "configure": Action(lambda _: (CONTROLLER,), configure),
    "hear": Action(_of_old_configs, hear),
    "move": Action(_targets, move),
    "cancel": Action(_moving, cancel),
    "finish": Action(_ending, finish),
    "learn": Action(_learning, learn),
    "decide_election": Action(_undecided, decide_election),
    "drain": Action(lambda now: [each for each in _draining(now) if each not in now.cordoned], drain),
    "advance": Action(lambda now: now.cordoned if now.live else (), advance),
    "undrain": Action(lambda now: now.cordoned if now.live else (), undrain),
    "retire": Action(_drained, retire),
    "back_up": Action(lambda _: (CONTROLLER,), back_up),
    "restore": Action(lambda now: (CONTROLLER,) if now.may_restore() else (), restore),
    "end_wait": Action(_waiting, end_wait),
    "elect_uncleanly": Action(_waiting, elect_uncleanly),
}


# --- the search


@frozen(kw_only=True)
class Found:
    """The result of a search. `lost`: the lost messages, or empty; `history`: the actions before."""

    states: int
    seconds: float
    lost: str = ""
    history: tuple[str, ...] = ()

    def __str__(self) -> str:
        ended = f"LOST by {' | '.join(self.history)}: {self.lost}" if self.lost else "nothing is lost"
        return f"{self.states} states, {self.seconds:.1f} s of CPU: {ended}"


def search(scope: Scope, *, states_max: int = 1_000_000) -> Found:
    """Play every history of the scope; print how it ended. Raises `AssertionError` where there are too many states."""
    began = time.process_time()
    first = Situation(scope)
    actions = [(order, ACTIONS[name], most, name) for order, (name, most) in enumerate(scope.most.items())]
    before: dict[object, tuple[object, str] | None] = {first.key(): None}
    waiting = deque([(first, first.key())])
    lost, history = "", list[str]()
    while waiting and not lost:
        now, key = waiting.popleft()
        for order, action, most, name in actions:
            if most is not None and now.used[order] >= most:
                continue
            for broker in list(action.brokers(now)):
                after, step = now.copy(), f"{name} {broker}"
                if most is not None:
                    after.used = (*now.used[:order], now.used[order] + 1, *now.used[order + 1 :])
                try:
                    action.happens(after, broker)
                    after.calm()
                    after.check()
                    after_key = after.key()
                    if after_key not in before:
                        after.check_lives_on()
                except Lost as error:
                    lost, history = str(error), [*_history(before, key), step]
                    break
                if after_key not in before:
                    before[after_key] = key, step
                    waiting.append((after, after_key))
            if lost:
                break
        assert len(before) <= states_max, f"more than {states_max} states"
    found = Found(states=len(before), seconds=time.process_time() - began, lost=lost, history=tuple(history))
    print(f"{scope}: {found}")
    return found


def play(scope: Scope, history: Iterable[str]) -> Situation:
    """Play one history, as `Found.history` has it. Raises `Lost`."""
    now = Situation(scope)
    for step in history:
        name, broker = step.split()
        action = ACTIONS[name]
        assert int(broker) in action.brokers(now), f"{step} cannot happen"
        action.happens(now, int(broker))
        now.calm()
        now.check()
        now.check_lives_on()
    return now


def _history(before: Mapping[object, tuple[object, str] | None], key: object) -> list[str]:
    steps = []
    while (link := before[key]) is not None:
        key, step = link
        steps.append(step)
    return steps[::-1]
