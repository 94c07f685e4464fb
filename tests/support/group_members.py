"""Members of a consumer group, each with a thread of its own that asks for messages all the time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.waiting import PATIENCE_S

from barnabas import Consumer, Message
from barnabas.ports.types import TopicPartition

from .waiting import wait_for

QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": 10_000,
    "retry_backoff_ms": 10,
    "fetch_max_wait_ms": 20,
}


class RunningMember:
    """A consumer in a thread. `events` has ("assigned" | "revoked" | "lost", partitions) in their order."""

    def __init__(self, bootstrap: Any, topics: Any = "t", **settings: Any) -> None:
        pattern = settings.pop("pattern", None)
        self.consumer = Consumer(bootstrap, **{**QUICK, "group_id": "g", **settings})
        self.messages: list[Message] = []
        self.events: list[tuple[str, list[TopicPartition]]] = []
        self.threads: set[threading.Thread] = set()
        self.errors: list[BaseException] = []
        self.hold = threading.Event()
        """While it is not set, the thread asks for nothing."""
        self.hold.set()
        self._stopping = False
        self.consumer.subscribe(
            None if pattern else topics,
            pattern=pattern,
            on_assigned=self._recorder_of("assigned"),
            on_revoked=self._recorder_of("revoked"),
            on_lost=self._recorder_of("lost"),
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _recorder_of(self, what: str) -> Callable[[list[TopicPartition]], None]:
        def observed(partitions: list[TopicPartition]) -> None:
            self.threads.add(threading.current_thread())
            self.events.append((what, partitions))

        return observed

    def _run(self) -> None:
        while not self._stopping:
            self.hold.wait()
            try:
                self.messages += self.consumer.poll_many(timeout=0.02)
            except Exception as error:  # noqa: BLE001  # looked at by the test
                self.errors.append(error)

    @property
    def partitions(self) -> list[int]:
        return sorted(tp.partition for tp in self.consumer.assignment)

    @property
    def values(self) -> list[bytes]:
        return [message.value or b"" for message in self.messages]

    def wait_until_owned(self, *partitions: int) -> None:
        wait_for(lambda: self.consumer.settled and self.partitions == list(partitions))

    def stop(self, **how: Any) -> None:
        """Let the thread end, then close."""
        self._stopping = True
        self.hold.set()
        self.thread.join(PATIENCE_S)
        self.consumer.close(**how)


@contextmanager
def member(bootstrap: Any, topics: Any = "t", **settings: Any) -> Iterator[RunningMember]:
    running = RunningMember(bootstrap, topics, **settings)
    try:
        yield running
    finally:
        running.stop()
    assert not running.errors, running.errors
