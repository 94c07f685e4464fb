"""Drives one `ShareGroup`: its log, the topics, and calls of the share coordinator that end when the test wants."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen
from support.memory_persister import MemoryPersister

from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.effects import Answer, CallPersister, Effect, WriteRecords
from barnabas.core.coordinator.group.group_config import GroupConfigManager
from barnabas.core.coordinator.group.modern_group import GroupContext
from barnabas.core.coordinator.group.share_group import ShareGroup
from barnabas.core.coordinator.group.share_group_records import LoadedShareGroup, decode_share_key
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from barnabas.ports.broker_api.share_state import InitializeShareGroupState, StateOutcome
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CALLER = Caller(client_id="c", host="h")


class Topics:
    """The topics of a cluster, by name."""

    def __init__(self) -> None:
        self.version = 0
        self._topics: dict[str, tuple[bytes, int]] = {}
        self._made = 0

    def create(self, name: str, partitions: int) -> bytes:
        self._made += 1
        topic_id = self._made.to_bytes(16, "big")
        self._topics[name] = topic_id, partitions
        self.version += 1
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self._topics[name] = self._topics[name][0], partitions
        self.version += 1

    def delete(self, name: str) -> bytes:
        self.version += 1
        return self._topics.pop(name)[0]

    def names(self) -> frozenset[str]:
        return frozenset(self._topics)

    def topic_id(self, name: str) -> bytes | None:
        return self._topics[name][0] if name in self._topics else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, found in self._topics.items() if found[0] == topic_id), None)

    def num_partitions(self, topic_id: bytes) -> int:
        return next((count for found, count in self._topics.values() if found == topic_id), -1)


@frozen(eq=False)
class Call:
    """A call of the share coordinator on its way."""

    effect: CallPersister
    group: ShareGroup


class ShareGroupDriver:
    """One group and what surrounds it."""

    def __init__(self, group_id: str = "g", **config: Any) -> None:
        self.topics = Topics()
        self.persister = MemoryPersister()
        self.configs = GroupConfigManager()
        self.context = GroupContext(
            config=evolve(GroupCoordinatorConfig(), **config), configs=self.configs, topics=self.topics, assignors={}
        )
        self.group = ShareGroup(group_id, self.context)
        self.now_ms = 1_000_000.0
        self.log: dict[bytes, bytes | None] = {}
        self.calls: list[Call] = []
        self.write_error = ErrorCode.NONE
        self.is_automatic = True
        """Calls of the share coordinator end at once."""

    # --- events

    def heartbeat(
        self, member_id: str, epoch: int, *topics: str, rack_id: str | None = None
    ) -> ShareGroupHeartbeatResult:
        """Send a heartbeat, with topic names if there are some."""
        request = ShareGroupHeartbeat(
            group_id=self.group.group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=topics or None,
        )
        (answer,) = self.ask(lambda to: self.group.heartbeat(request, CALLER, to, self.now_ms, int(self.now_ms)))
        assert isinstance(answer, ShareGroupHeartbeatResult)
        return answer

    def ask(self, event: Callable[[Callable[[Any], None]], list[Effect]]) -> list[Any]:
        """Return the answers to an event."""
        answers: list[Any] = []
        self.apply(event(answers.append))
        return answers

    def tick(self, by_ms: float = 0.0) -> None:
        """Let time pass."""
        self.now_ms += by_ms
        while self.group.next_due_ms is not None and self.group.next_due_ms <= self.now_ms:
            self.apply(self.group.tick(self.now_ms))

    def apply(self, effects: list[Effect]) -> None:
        """Execute effects in their order."""
        for effect in effects:
            if isinstance(effect, WriteRecords):
                self._write(effect)
            elif isinstance(effect, Answer):
                self._answer(effect, ErrorCode.NONE)
        if self.is_automatic:
            self.end_calls()

    def _write(self, effect: WriteRecords) -> None:
        error = self.write_error
        if error is ErrorCode.NONE:
            self.log.update(effect.records)
        self.group.written(effect.keys, error, self.now_ms)
        if effect.answer is not None:
            self._answer(effect.answer, error)
        for call in effect.calls:
            if error is ErrorCode.NONE and not self.group.has_unwritten:
                self.calls.append(Call(call, self.group))
            else:
                self.end(Call(call, self.group), ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _answer(self, answer: Answer, error: ErrorCode) -> None:
        failed = answer.on_written(error) if answer.on_written is not None else None
        answer.to(failed or answer.result)

    # --- the share coordinator

    def end_calls(self) -> None:
        """Let all calls arrive, and end."""
        while self.calls:
            self.end(self.calls.pop(0))

    def end(self, call: Call, error: ErrorCode = ErrorCode.NONE, *, arrives: bool = True) -> None:
        """End a call; with an error it may have arrived or not."""
        outcomes: list[StateOutcome] = []
        request = call.effect.request
        if error is not ErrorCode.NONE:
            outcomes.extend(request.failed(ApiError(error)).partitions)
        elif arrives:
            outcomes.extend(self.arrive(call))
        if call.group is self.group:
            self.apply(call.effect.ended(outcomes, self.now_ms))

    def arrive(self, call: Call) -> list[StateOutcome]:
        """Let a call have its effect at the share coordinator."""
        outcomes: list[StateOutcome] = []
        request = call.effect.request
        if isinstance(request, InitializeShareGroupState):
            self.persister.initialize_state(request, lambda result: outcomes.extend(result.partitions))
        else:
            self.persister.delete_state(request, lambda result: outcomes.extend(result.partitions))
        return outcomes

    # --- another coordinator

    def loaded(self) -> LoadedShareGroup:
        """Return what the log says."""
        loaded = LoadedShareGroup()
        for key, value in self.log.items():
            loaded.add(decode_share_key(key), value)
        return loaded

    def move(self) -> None:
        """Let another coordinator load the group; calls of the former one are still on their way."""
        self.group.die(ErrorCode.NOT_COORDINATOR)
        self.group = ShareGroup.restored(self.group.group_id, self.context, self.loaded(), self.now_ms)
