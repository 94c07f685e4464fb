"""The manager that stores ISR changes of leaders in the coordination tree (Kafka: `AlterPartitionManager`)."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ...ports.broker_api.envelope import Reply
from ...ports.errors import BarnabasError
from ...ports.scheduler import Scheduler
from ...ports.types import TopicPartition
from ..cluster.election import Brokers, ElectionRules, later, may_join, with_isr
from ..cluster.image import ClusterImage
from ..cluster.registry import ClusterRegistry
from ..cluster.topics import UNKNOWN_EPOCH, PartitionState, ReplicaId, Topic
from .partition.isr_state import AlterPartition

RETRY_MS = 500.0

SubmitChange = Callable[[str, Callable[[], Coroutine[Any, Any, None]], Reply[None]], None]
"""Runs a change of the tree after the earlier ones; the text names it in reports."""


class AlterPartitionManager:
    """Stores the ISRs that leaders request, many in one commit, each by compare-and-set. Owner thread only.

    own:           returns this broker with its present broker epoch; nothing is stored while that is unknown.
    rules:         returns the election rules of a topic.
    submit_change: runs a change of the coordination tree.
    """

    def __init__(
        self,
        registry: ClusterRegistry,
        scheduler: Scheduler,
        *,
        own: Callable[[], ReplicaId],
        rules: Callable[[Topic], ElectionRules],
        submit_change: SubmitChange,
    ) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._own = own
        self._rules = rules
        self._submit_change = submit_change
        self._unsent: dict[TopicPartition, tuple[AlterPartition, Callable[[], None]]] = {}
        self._is_due = self._is_closed = False

    def submit(self, change: AlterPartition, on_rejected: Callable[[], None]) -> None:
        """Store another ISR, together with others that are submitted meanwhile.

        A stored change arrives as a new partition state in the image. `on_rejected` is called when it is certain that
        the change was not stored and never will be. After an error the outcome is unknown: the change is sent again.
        """
        self._unsent[change.topic_partition] = change, on_rejected
        self._send_soon()

    def close(self) -> None:
        """Stop sending changes."""
        self._is_closed = True

    def _send_soon(self) -> None:
        if self._unsent and not self._is_due and not self._is_closed:
            self._is_due = True
            self._submit_change("changing in-sync replicas", self._send, self._on_sent)

    async def _send(self) -> None:
        self._is_due = False
        sent, self._unsent = self._unsent, {}
        changes = {tp: change for tp, (change, _) in sent.items()}
        try:
            names = dict.fromkeys(tp.topic for tp in changes)
            stored = set(await self._registry.change_states(names, partial(self._decide, changes)))
        except BaseException:
            # The change may have been stored; the next attempt notices that.
            self._unsent = {**sent, **self._unsent}
            raise
        for tp, (_, on_rejected) in sent.items():
            if tp not in stored:
                on_rejected()

    def _on_sent(self, error: BarnabasError | None) -> None:
        if error is not None and not self._is_closed:
            self._scheduler.call_later(RETRY_MS, self._send_soon)

    def _decide(
        self, changes: Mapping[TopicPartition, AlterPartition], topic: Topic, image: ClusterImage
    ) -> Mapping[int, PartitionState]:
        decided = {}
        for number, assigned in topic.partitions.items():
            tp = TopicPartition(topic.name, number)
            change, known = changes.get(tp), image.state(tp)
            if change is None or not self._is_valid(change, topic, known):
                continue
            brokers, replicas = image.brokers_with(tp), known.replicas_in(assigned)
            isr = [each for each in change.new_isr if _may_be_member(each, replicas, brokers, known)]
            after = with_isr(known, isr, replicas, brokers, self._rules(topic))
            if after != known:
                decided[number] = later(after, known)
        return decided

    def _is_valid(self, change: AlterPartition, topic: Topic, known: PartitionState) -> bool:
        own = self._own()
        return (
            change.topic_id == topic.topic_id
            and known.leader == own.broker_id
            and change.is_for(known)
            and own.broker_epoch != UNKNOWN_EPOCH
        )


def _may_be_member(member: ReplicaId, replicas: Sequence[int], brokers: Brokers, known: PartitionState) -> bool:
    """Return True for a member of the known ISR in the same broker epoch, and for a live replica that may join."""
    stays = member.broker_id in known.isr and known.broker_epochs.get(member.broker_id) == member.broker_epoch
    return stays or (member.broker_id in replicas and may_join(member, brokers))
