"""The schema registry: its reader and its writer."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Condition, Event, Thread
from typing import Any

from attrs import define, field

from ...app.clients.admin.admin import Admin
from ...app.clients.consumer.simple_consumer import SimpleConsumer
from ...app.clients.producer.producer import Producer
from ...app.clients.shared.bootstrap import Bootstrap
from ...app.clients.shared.delivery import DeliveryHandle
from ...core.message.message import Message
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.offsets import EARLIEST, LATEST
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from .errors import RegistryError, invalid_schema, timed_out, unavailable
from .library import Library
from .records import Record, UnknownRecord, decode, encode
from .state import Subjects

TOPIC = "_schemas"
_ATTEMPT_MS = 3000


# The single writer: the registry that began its transactions last, of all registries on a topic.
#
# All registries use the same transactional id. A registry becomes the writer by initializing its transactions, which
# fences the previous writer; then it reads the whole topic. From then on its decisions are based on the topic, since
# a commit succeeds only while it is not fenced. A fenced registry reads, initializes again after a pause, and decides
# again. So versions and ids are assigned once, and registries need not know each other.

logger = logging.getLogger("barnabas.schemas.registry")

Decide = Callable[[Subjects], tuple[Any, list[Record]]]
"""Returns the answer and the records to write, or raises a `RegistryError`."""

_AT_ONCE = 200
_RECORD_BYTES_MAX = 1_000_000
"""The default maximum of brokers, minus room for the batch."""
_REFUSALS = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD)
_TRANSACTION_MS = 15_000
_LAST_WORD_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


@define(eq=False)
class _Wish:
    decide: Decide
    deadline: float = 0.0
    """Set when the writer begins with it: the time of earlier decisions does not count against the brokers."""
    answer: Future[Any] = field(factory=Future)


@define(eq=False)
class _Written:
    """The records of a transaction that may be committed or not."""

    outcomes: list[tuple[_Wish, Any, RegistryError | None]]
    handles: list[DeliveryHandle]

    @property
    def end(self) -> int:
        """The offset after the last record. All are acknowledged."""
        return max(handle.result(0).offset for handle in self.handles) + 1


# Reads the topic continuously: all registries see the same subjects, whichever wrote them.

REPLICAS = 3
_POLL_MS = 500
_PAUSE_S = 0.5
_REMEMBERED = 20_000


class SchemaReader:
    """The reading thread. Other methods may be called from any thread."""

    def __init__(self, bootstrap: Bootstrap, topic: str, *, attempt_ms: int) -> None:
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
                self._apply_messages(messages, fetched.next_offset)

    def _apply_messages(self, messages: list[Message], next_offset: int) -> None:
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


def committed_reader(bootstrap: Bootstrap, attempt_ms: int) -> SimpleConsumer:
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


class SchemaWriter:
    """The writing thread. `submit` may be called from any thread."""

    def __init__(
        self, bootstrap: Bootstrap, topic: str, following: SchemaReader, *, attempt_ms: int, timeout_s: float
    ) -> None:
        """`timeout_s`: how long a change waits for unreachable brokers."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._following = following
        self._attempt_ms = attempt_ms
        self._timeout_s = timeout_s
        self._wishes: SimpleQueue[_Wish | None] = SimpleQueue()
        self._stopping = Event()
        self._producer: Producer | None = None
        self._reader: SimpleConsumer | None = None
        self._mark = (-1, -1)
        self._subjects = Subjects()
        """The read records, followed by those being written."""
        self._thread = Thread(target=self._run, name="registry-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Complete or refuse the current changes; return when the thread has ended."""
        self._stopping.set()
        self._wishes.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, decide: Decide) -> Future[Any]:
        """Decide on the result of all earlier changes, and write the records.

        The answer arrives when this registry has read them; or a `RegistryError`.
        """
        wish = _Wish(decide)
        if self._stopping.is_set():
            wish.answer.set_exception(unavailable("the registry stops"))
        else:
            self._wishes.put(wish)
        return wish.answer

    # --- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            wishes = self._next()
            if wishes:
                self._fulfil(wishes)
        self._let_go()
        for wish in self._rest():
            wish.answer.set_exception(unavailable("the registry stops"))

    def _next(self) -> list[_Wish]:
        first = self._wishes.get()
        return [] if first is None else [*_awaited(first), *self._rest(_AT_ONCE - 1)]

    def _rest(self, most: int = 2**31) -> list[_Wish]:
        found: list[_Wish] = []
        while len(found) < most:
            try:
                wish = self._wishes.get_nowait()
            except Empty:
                break
            if wish is not None:
                found += _awaited(wish)
        return found

    def _fulfil(self, wishes: list[_Wish]) -> None:
        pause = _FIRST_PAUSE_S
        unsure: _Written | None = None
        for wish in wishes:
            wish.deadline = time.monotonic() + self._timeout_s
        while wishes:
            deadline = max(wish.deadline for wish in wishes)
            try:
                written = self._attempt(unsure, wishes, deadline)
            except _Unsure as error:
                unsure, cause = error.written, error.cause
            except BarnabasError as error:
                cause = error
            except Exception as error:
                logger.exception("a change of schemas failed")
                _refuse(wishes, _failure(error))
                self._let_go()
                return
            else:
                _answer(written)
                return
            self._let_go()
            logger.info("writing begins again: %s", cause)
            if _refused_for_good(cause):
                self._one_by_one(wishes, cause)
                return
            wishes = _in_time(wishes, cause, sure=unsure is None, stopping=self._stopping.is_set())
            self._stopping.wait(random.uniform(pause / 2, pause))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _one_by_one(self, wishes: list[_Wish], cause: BarnabasError) -> None:
        """Write the changes one by one, to find the one that the brokers refuse."""
        if len(wishes) == 1:
            _refuse(wishes, RegistryError(50001, f"The brokers refuse the record: {cause}", 500))
            return
        for wish in wishes:
            self._fulfil([wish])

    def _attempt(self, unsure: _Written | None, wishes: list[_Wish], deadline: float) -> _Written:
        """Become the writer if necessary, decide, write, commit, read back. Raises `BarnabasError`, `_Unsure`."""
        try:
            producer, reader = self._begin()
            end = reader.offset_at(self._topic, 0, LATEST)
            mark, read = self._following.read_upto(end, seconds_left(deadline))
        except BarnabasError as error:
            if unsure is not None:
                raise _Unsure(unsure, error) from error
            raise
        if unsure is not None and self._following.has_read(unsure.handles[0].result(0).offset):
            return unsure
        if mark != (self._mark[0], self._subjects.applied) or self._mark[0] < 0:
            self._mark, self._subjects = mark, read.copy()
        outcomes: list[tuple[_Wish, Any, RegistryError | None]] = []
        records: list[tuple[bytes, bytes | None]] = []
        began = time.monotonic()
        for wish in wishes:
            try:
                answer, wanted = _decided(wish, self._subjects)
            except RegistryError as error:
                outcomes.append((wish, None, error))
                continue
            except Exception as error:
                logger.exception("a change of schemas could not be decided")
                outcomes.append((wish, None, _failure(error)))
                continue
            outcomes.append((wish, answer, None))
            for key, value in wanted:
                self._subjects.apply(decode(key, value))
            records += wanted
        spent = time.monotonic() - began
        deadline += spent
        for wish in wishes:
            wish.deadline += spent
        if not records:
            return _Written(outcomes, [])
        return self._commit(producer, records, outcomes, deadline)

    def _commit(
        self, producer: Producer, records: list[tuple[bytes, bytes | None]], outcomes: Any, deadline: float
    ) -> _Written:
        producer.begin_transaction()
        written = _Written(outcomes, [producer.send(self._topic, value, key, partition=0) for key, value in records])
        try:
            producer.commit_transaction()
            self._following.wait_for(written.end, seconds_left(deadline))
        except BarnabasError as error:
            if all(handle.done for handle in written.handles) and _all_there(written.handles):
                raise _Unsure(written, error) from error
            raise
        return written

    def _begin(self) -> tuple[Producer, SimpleConsumer]:
        if self._reader is None:
            self._reader = committed_reader(self._bootstrap, self._attempt_ms)
        if self._producer is None:
            self._producer = Producer(
                self._bootstrap,
                transactional_id=f"barnabas-registry-{self._topic}",
                transaction_timeout_ms=_TRANSACTION_MS,
                client_id="barnabas-registry",
                linger_ms=0,
                allow_auto_create_topics=False,
                request_timeout_ms=self._attempt_ms,
                delivery_timeout_ms=self._attempt_ms,
                default_api_timeout_ms=self._attempt_ms,
                max_block_ms=self._attempt_ms,
                socket_connection_setup_timeout_ms=self._attempt_ms,
            )
            self._producer.init_transactions()
        return self._producer, self._reader

    def _let_go(self) -> None:
        """Drop the connections; the next attempt starts from the topic."""
        self._mark = (-1, -1)
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        producer, self._producer = self._producer, None
        if producer is not None:
            for end in (producer.abort_transaction, producer.close):
                try:
                    end(timeout=_LAST_WORD_S)
                except BarnabasError as error:  # fenced, or no transaction is open
                    logger.debug("letting the producer go: %s", error)


class _Unsure(Exception):
    """The outcome of the commit is unknown."""

    def __init__(self, written: _Written, cause: BarnabasError) -> None:
        super().__init__(str(cause))
        self.written = written
        self.cause = cause


def _awaited(wish: _Wish) -> list[_Wish]:
    """Return the change, which can no longer be cancelled; nothing if it was."""
    return [wish] if wish.answer.set_running_or_notify_cancel() else []


def _decided(wish: _Wish, subjects: Subjects) -> tuple[Any, list[tuple[bytes, bytes | None]]]:
    answer, records = wish.decide(subjects)
    try:
        encoded = [encode(record) for record in records]
    except UnicodeEncodeError as error:
        raise invalid_schema(f"invalid Unicode: {error}") from error
    for key, value in encoded:
        if len(key) + len(value or b"") > _RECORD_BYTES_MAX:
            raise invalid_schema(f"with its references it is larger than {_RECORD_BYTES_MAX} bytes")
    return answer, encoded


def _all_there(handles: list[DeliveryHandle]) -> bool:
    try:
        return all(handle.result(0).offset >= 0 for handle in handles)
    except BarnabasError:
        return False


def _refused_for_good(cause: BaseException | None) -> bool:
    while cause is not None:
        if isinstance(cause, ApiError) and cause.code in _REFUSALS:
            return True
        cause = cause.__cause__
    return False


def _answer(written: _Written) -> None:
    for wish, answer, error in written.outcomes:
        if wish.answer.done():  # the client knows that its outcome is unknown
            continue
        if error is not None:
            wish.answer.set_exception(error)
        else:
            wish.answer.set_result(answer)


def _failure(error: Exception) -> RegistryError:
    return RegistryError(50001, f"The registry failed: {type(error).__name__}: {error}", 500)


def _refuse(wishes: list[_Wish], error: RegistryError) -> None:
    for wish in wishes:
        wish.answer.set_exception(error)


def _in_time(wishes: list[_Wish], cause: BarnabasError, *, sure: bool, stopping: bool) -> list[_Wish]:
    """Return the changes with time for another attempt; refuse the others."""
    now = time.monotonic()
    late = [wish for wish in wishes if stopping or wish.deadline <= now or isinstance(cause, ClosedError)]
    _refuse(late, unavailable(cause) if sure else timed_out(cause))
    return [wish for wish in wishes if wish not in late]


class Registry:
    """A registry over a topic of a cluster. Callable from any thread."""

    def __init__(
        self, bootstrap: Bootstrap, topic: str = TOPIC, *, timeout_s: float = 10.0, validate_defaults: bool = False
    ) -> None:
        """`timeout_s`: how long a change waits for unreachable brokers. `validate_defaults`: see `Library`."""
        self.library = Library(validate_defaults=validate_defaults)
        self.following = SchemaReader(bootstrap, topic, attempt_ms=_ATTEMPT_MS)
        self._writer = SchemaWriter(bootstrap, topic, self.following, attempt_ms=_ATTEMPT_MS, timeout_s=timeout_s)

    def start(self) -> None:
        """Start reading; `following.wait_loaded` waits until everything is read."""
        self.following.start()
        self._writer.start()

    def stop(self) -> None:
        """Stop after the current write."""
        self._writer.stop()
        self.following.stop()

    def subjects(self) -> Subjects:
        """Return the current subjects. Raises `RegistryError` before everything was read once."""
        return self.following.snapshot()

    def change(self, decide: Decide) -> Future[Any]:
        """Submit a change (see `SchemaWriter.submit`)."""
        return self._writer.submit(decide)
