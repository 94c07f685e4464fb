"""The classic hook points, on the way to the classic wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ....ports.errors import BarnabasError
from ..shared.hooks import HookOwner, HookPath, QueueLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.classic.producer.run import Run
    from ....core.client.producer.handlers import CallbackHandler, EventHandler, ProducerItem
    from ..shared.delivery import DeliveryHandle
    from .producer_settings import ClassicProducerSettings
    from .shell import ClassicShell


class RunOwner(HookOwner, Protocol):
    """The part of a `ClassicProducer` that the hooks use."""

    @property
    def settings(self) -> ClassicProducerSettings: ...

    @property
    def shell(self) -> ClassicShell: ...

    def run_of(self, topic: str, value: Any, key: Any, partition: Any, headers: Any) -> Run: ...

    def adopt(self, run: Run, handle: DeliveryHandle) -> None: ...

    def dispatch(self, runs: Sequence[Run]) -> None: ...

    def has_room(self) -> bool: ...


class ClassicHooks(HookPath):
    """Encodes what an event handler sends on; each batch goes out as one, grouped by broker, topic and partition."""

    def __init__(self, producer: RunOwner, events: EventHandler, callbacks: CallbackHandler | None) -> None:
        settings = producer.settings
        limits = QueueLimits(
            batch_messages=settings.batch_size,
            queue_ms=settings.queue_time,
            queue_messages=settings.queue_size,
            block_ms=settings.queue_enqueue_timeout_ms,
            hurry=settings.producer_type == "sync",
        )
        super().__init__(producer, producer.shell, events, callbacks, limits)
        self._producer = producer
        self._routed: list[Run] = []

    def route(self, item: ProducerItem) -> None:
        handle = self.taken(item)
        try:
            run = self._producer.run_of(item.topic, item.value, item.key, item.partition, item.headers)
        except BarnabasError as error:
            self._producer.fail_handle(handle, error)
            return
        self._producer.adopt(run, handle)
        if not self._routed:
            self._shell.post(self.flush_routed)  # an event handler may send on its own time, too
        self._routed.append(run)

    def flush_routed(self) -> None:
        """Send what has been routed. Reactor only."""
        routed, self._routed = self._routed, []
        if routed:
            self._producer.dispatch(routed)

    def progress(self) -> None:
        self.flush_routed()
        super().progress()

    def has_room(self) -> bool:
        return self._producer.has_room()
