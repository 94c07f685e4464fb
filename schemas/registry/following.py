"""Reads the topic continuously: all registries see the same subjects, whichever wrote them."""

from __future__ import annotations

import logging
import time
from collections import deque
from threading import Condition, Event, Thread

from ...app.clients.admin.admin import Admin
from ...app.clients.consumer.simple_consumer import SimpleConsumer
from ...core.message.message import Message
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.offsets import EARLIEST, LATEST
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from .errors import unavailable
from .records import UnknownRecord, decode
from .state import Subjects

logger = logging.getLogger("barnabas.schemas.registry")

REPLICAS = 3
_POLL_MS = 500
_PAUSE_S = 0.5
_REMEMBERED = 20_000


class SchemaReader:
    """The reading thread. Other methods may be called from any thread."""

    def __init__(self, bootstrap: object, topic: str, *, attempt_ms: int) -> None:
        """`attempt_ms`: timeout of one request to the brokers."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._attempt_ms = attempt_ms
        self._changed = Condition()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="registry-reader", daemon=True)
        # Guarded by `_changed`.
        self._consumer: SimpleConsumer | None = None
        self._subjects = Subjects()
        self._snapshot: Subjects | None = None
        self._snapshot_mark = (-1, -1)
        self._position = 0
        self._topic_id = b""
        self._life = 0
        """Increases when the topic was replaced by another one, which is then read from the beginning."""
        self._lately: deque[int] = deque(maxlen=_REMEMBERED)
        self._loaded_upto: int | None = None
        self._trouble: BarnabasError | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and return when the thread has ended."""
        self._stopping.set()
        with self._changed:
            consumer = self._consumer
            self._changed.notify_all()
        if consumer is not None:
            consumer.close()  # interrupts its wait for records
        if self._thread.is_alive():
            self._thread.join()

    def wait_loaded(self) -> bool:
        """Return True when all records of the start are read; False when that is impossible now."""
        with self._changed:
            self._changed.wait_for(lambda: self._loaded or self._trouble or self._stopping.is_set())
            return self._loaded

    @property
    def trouble(self) -> BarnabasError | None:
        """Return the error of the current read, or None."""
        with self._changed:
            return self._trouble

    def snapshot(self) -> Subjects:
        """Return the immutable subjects. Raises `RegistryError` before everything was read once."""
        with self._changed:
            mark = (self._life, self._subjects.applied)
            if self._loaded and mark != self._snapshot_mark:
                self._snapshot, self._snapshot_mark = self._subjects.copy(), mark
            if self._snapshot is None:
                raise unavailable(self._trouble or "the schemas are still being read")
            return self._snapshot

    def read_upto(self, end: int, timeout: float) -> tuple[tuple[int, int], Subjects]:
        """Wait until everything below the offset is read; return (mark, subjects). Other subjects have another mark.

        Raises `RegistryError`, `ClosedError`.
        """
        with self._changed:
            self.wait_for(end, timeout)
            if not self._loaded:
                raise unavailable("the topic is being read again from the beginning")
            return (self._life, self._subjects.applied), self.snapshot()

    def wait_for(self, offset: int, timeout: float) -> None:
        """Wait until everything below the offset is read. Raises `RegistryError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._position >= offset or self._stopping.is_set(), timeout):
                raise unavailable(
                    self._trouble or f"offset {offset} of {self._topic} was not read within {timeout:g} s"
                )
            if self._stopping.is_set():
                raise ClosedError("the registry is closing")

    def has_read(self, offset: int) -> bool:
        """Return True if a committed record at that offset was read recently."""
        with self._changed:
            return offset in self._lately

    @property
    def _loaded(self) -> bool:
        return self._loaded_upto is not None and self._position >= self._loaded_upto

    # --- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with committed_reader(self._bootstrap, self._attempt_ms) as consumer:
                    with self._changed:
                        self._consumer = consumer
                    self._follow(consumer)
            except BarnabasError as error:
                if not self._stopping.is_set():
                    self._failed(error)
                self._stopping.wait(_PAUSE_S)
            except Exception as error:
                logger.exception("reading %s failed", self._topic)
                self._failed(BarnabasError(f"{type(error).__name__}: {error}"))
                self._stopping.wait(_PAUSE_S)

    def _follow(self, consumer: SimpleConsumer) -> None:
        with Admin(self._bootstrap, client_id="barnabas-registry", default_api_timeout_ms=self._attempt_ms) as admin:
            topic_id = prepare_topic(admin, self._topic)
        first = consumer.offset_at(self._topic, 0, EARLIEST)  # not 0 if the topic was not always compacted
        end = consumer.offset_at(self._topic, 0, LATEST)
        with self._changed:
            if self._topic_id and topic_id and self._topic_id != topic_id:
                self._read_again()
            self._topic_id = topic_id or self._topic_id
            if self._loaded_upto is None:
                self._position, self._loaded_upto = max(self._position, first), end
        while not self._stopping.is_set():
            fetched = consumer.fetch(self._topic, 0, self._position, max_wait_ms=_POLL_MS)
            messages = list(fetched)
            with self._changed:
                self._take(messages, fetched.next_offset)

    def _take(self, messages: list[Message], next_offset: int) -> None:
        for message in messages:
            self._lately.append(message.offset)
            try:
                self._subjects.apply(decode(message.key, message.value))
            except UnknownRecord as error:
                logger.warning("%s, offset %d is ignored: %s", self._topic, message.offset, error)
        if self._trouble is not None:
            logger.warning("%s is readable again", self._topic)
        self._trouble = None
        if next_offset != self._position:
            self._position = next_offset
        self._changed.notify_all()

    def _read_again(self) -> None:
        logger.warning("%s was replaced or lost records; reading it from the beginning", self._topic)
        self._subjects, self._position, self._loaded_upto = Subjects(), 0, None
        self._lately.clear()
        self._life += 1

    def _failed(self, error: BarnabasError) -> None:
        with self._changed:
            if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._read_again()
            if str(error) != str(self._trouble):
                logger.warning("%s cannot be read: %s", self._topic, error)
            self._trouble = error
            self._changed.notify_all()


def committed_reader(bootstrap: object, attempt_ms: int) -> SimpleConsumer:
    """Return a client for committed records, and for their end."""
    return SimpleConsumer(
        bootstrap,
        client_id="barnabas-registry",
        isolation_level="read_committed",
        request_timeout_ms=attempt_ms,
        socket_connection_setup_timeout_ms=attempt_ms,
        default_api_timeout_ms=attempt_ms,
    )


def seconds_left(deadline: float) -> float:
    """Return the seconds until the deadline by the monotonic clock; at least a little."""
    return max(0.001, deadline - time.monotonic())


def prepare_topic(admin: Admin, topic: str) -> bytes:
    """Create the topic if necessary: one partition, compacted; return its id, empty if brokers return none.

    Raises `ConfigError` for an unsuitable topic of that name.
    """
    if not _topic_exists(admin, topic):
        replicas = min(REPLICAS, len(admin.describe_cluster().brokers))
        try:
            admin.create_topic(topic, partitions=1, replication_factor=replicas, configs={"cleanup.policy": "compact"})
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another registry has created it
                raise
    return _check_topic(admin, topic)


def _topic_exists(admin: Admin, topic: str) -> bool:
    try:
        admin.describe_topics([topic])
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        raise
    return True


def _check_topic(admin: Admin, topic: str) -> bytes:
    found = admin.describe_topics([topic])[0]
    partitions = len(found.partitions)
    if partitions != 1:
        raise ConfigError(f"topic {topic} has {partitions} partitions, and schemas need one: use another topic")
    (policy,) = admin.describe_configs(ResourceKind.TOPIC, topic, ["cleanup.policy"])
    if policy.value != "compact":
        why = f"topic {topic} has cleanup.policy={policy.value}, which would delete schemas"
        raise ConfigError(f"{why}: barnabas configs set cleanup.policy=compact --topic {topic}")
    return found.topic_id if any(found.topic_id) else b""
