"""The audit tier of a broker or cluster: reads its topics as a consumer group, and counts their messages.

It is separate from the broker, whose request path does not change.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from ..app.clients.admin.admin import Admin
from ..app.clients.consumer.consumer import Consumer
from ..app.clients.consumer.rebalance_listener import RebalanceListener
from ..app.clients.producer.producer import Producer
from ..app.clients.shared.blocking_shell import logger
from ..app.clients.shared.bootstrap import Bootstrap
from ..core.client.errors import AbortNeeded, ClientTimeout, CommitFailed
from ..core.message.message import Message
from ..ports.error_codes import AUTHORIZATION_ERRORS
from ..ports.errors import ApiError, BarnabasError
from ..ports.types import TopicPartition
from .counting import MessageCounts
from .publishing import ensure_topic, wall_ms
from .reports import BROKER, PRODUCER, TOPIC, WINDOW_MS
from .tier import TierReportBuilder

if TYPE_CHECKING:
    from types import TracebackType


ALL_TOPICS = rf"(?!__|{TOPIC}$).*"
"""All but internal topics."""
_POLL_S = 0.5
_AT_ONCE = 5000
_METADATA_MS = 5000
"""Maximum delay before a new topic is counted."""


INTERVAL_S = 10.0
TRANSACTION_MS = 20_000
"""Transaction timeout, after which the cluster aborts the transaction of a killed reader."""
_POSITIONS_S = TRANSACTION_MS / 4000
"""Timeout of an offset commit: one for a deleted topic is never answered, and the transaction must not time out
meanwhile, which would fence this reader."""
_ADMIN_MS = 5_000
_UNCOUNTED_MAX = 1000


def passes(error: BarnabasError) -> bool:
    """Return True for an error after which another attempt may succeed. A missing right is none, also as the cause of
    an abort: the producer learns of it before or after it sends, depending on its metadata."""
    if isinstance(error, ApiError):
        return error.retriable or isinstance(error, CommitFailed)
    if isinstance(error, AbortNeeded):
        return not (isinstance(error.__cause__, ApiError) and error.__cause__.code in AUTHORIZATION_ERRORS)
    return isinstance(error, ClientTimeout)


class AuditedConsumer:
    """A member of a group whose messages are counted exactly when their offsets are committed.

        with AuditedConsumer(bootstrap, group_id="billing") as consumer:
            consumer.subscribe("orders")
            for message in consumer:
                ...

    tier:       its name in the audit; default "consumer:" and the group id.
    after:      the previous tier.
    window_ms:  length of the windows; the same in all tiers.
    interval_s: commit interval while iterating.
    settings:   those of `Consumer`, which is `consumer`; it reads committed messages, and does not auto-commit.

    After a kill, messages without a commit arrive again and are counted then. One thread. Counts of a failed commit are
    committed with the next one; `ProducerFenced` means that another instance has replaced this one.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        *,
        group_id: str,
        tier: str | None = None,
        after: str = BROKER,
        window_ms: int = WINDOW_MS,
        interval_s: float = INTERVAL_S,
        **settings: Any,
    ) -> None:
        self.tier = f"consumer:{group_id}" if tier is None else tier
        self._reports = TierReportBuilder(self.tier, after)
        self._reaching = self._reports.reaching
        self._width_ms = window_ms
        self._interval_s = interval_s
        self._counts: dict[TopicPartition, MessageCounts] = {}
        self._uncommitted: dict[TopicPartition, MessageCounts] = {}
        """Counts of an open transaction, or of one with an unknown outcome."""
        self._gone: set[TopicPartition] = set()
        """Partitions of these counts that now belong to other members."""
        self._handed: list[Message] = []
        """Returned messages that are not counted yet."""
        self._committing = self._aborting = False
        self._due_s = time.monotonic() + interval_s
        ensure_topic(bootstrap)
        settings = {"isolation_level": "read_committed", **settings, "enable_auto_commit": False}
        name = settings.get("group_instance_id") or secrets.token_hex(4)
        self._latest = str(settings.get("auto_offset_reset", "latest")) in ("latest", "largest")
        with ExitStack() as opened:
            self.consumer = opened.enter_context(Consumer(bootstrap, group_id=group_id, **settings))
            self._admin = opened.enter_context(Admin(bootstrap, default_api_timeout_ms=_ADMIN_MS))
            self._producer = Producer(
                bootstrap, transactional_id=f"_audit-{self.tier}-{name}", transaction_timeout_ms=TRANSACTION_MS
            )
            opened.pop_all()

    def subscribe(self, topics: str | Iterable[str] | None = None, *, pattern: str | None = None) -> None:
        """Subscribe like `Consumer.subscribe`."""
        self.consumer.subscribe(topics, pattern=pattern, listener=_Listener(self))

    @property
    def upto_ms(self) -> int:
        """The time up to which all messages of this member's partitions are counted; -1 = unknown."""
        return self._reaching.reached_ms(self.consumer.assignment)

    def poll_many(self, max_messages: int | None = None, timeout: float = 0.0) -> list[Message]:
        """Poll like `Consumer.poll_many`; the messages are counted with the next `commit`."""
        messages = self.consumer.poll_many(max_messages, timeout)
        self._handed += messages
        self._count()
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Yield messages for ever; returned ones are committed every `interval_s`."""
        handed = self._handed
        while True:
            for message in self.consumer.messages(timeout=min(1.0, self._interval_s)):
                handed.append(message)
                yield message
                if len(handed) >= _UNCOUNTED_MAX or time.monotonic() >= self._due_s:
                    self._count()
                    self.commit_if_due()
            self.commit_if_due()

    def commit_if_due(self, *, now: bool = False) -> bool:
        """Commit when `interval_s` have passed since the last commit, or now. Return False after a failure.

        A failure is logged and retried by the next call. Raises permanent errors.
        """
        if not now and time.monotonic() < self._due_s:
            return True
        self._due_s = time.monotonic() + self._interval_s
        try:
            self.commit()
        except BarnabasError as error:
            if not passes(error):
                raise
            logger.warning("audit of %s: commit failed, and is retried: %s", self.tier, error)
            return False
        return True

    def commit(self) -> None:
        """Publish the counts and commit the offsets, both or neither.

        Raises `AbortNeeded` and `CommitFailed` (neither happened; the counts remain), `ClientTimeout` (the next commit
        resolves it), and permanently `ProducerFenced`.
        """
        self._end_earlier()
        self._read_end_offsets()
        if self._handed or self._counts or self._reaching.has_news:
            with self.transaction():
                pass

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Commit as `commit` does, with the messages that the block sends by this producer in the same transaction.

        Raises the errors of `commit`, and of the block: then `rewind` makes its messages arrive again.
        """
        self._end_earlier()
        self._producer.begin_transaction()
        self._aborting = True
        try:
            yield self._producer
            self._count()
            self._uncommitted, self._counts = self._counts, {}
            self._producer.send_many(TOPIC, self._messages())
            if self.consumer.assignment:
                self._producer.send_offsets(self.consumer, timeout=_POSITIONS_S)
        except BaseException:
            self._abort()
            raise
        self._aborting, self._committing = False, True
        self._commit()

    def rewind(self) -> None:
        """Seek to the committed offsets."""
        self._end_earlier()
        for tp, at in self.consumer.committed().items():
            self.consumer.seek(tp, "earliest" if at is None else at.offset)
        self._handed.clear()
        self._counts.clear()
        self._reaching.forget(self.consumer.assignment)

    def close(self, *, commit: bool = True) -> None:
        """Commit, leave the group, and close. A second call has no effect."""
        if not commit:
            self._handed.clear()
            self._counts.clear()
        try:
            self.commit_quietly()
        finally:
            self.consumer.close()
            self._producer.close()
            self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        self.close(commit=kind is None)

    # --- rebalance listener

    def commit_quietly(self) -> None:
        """Commit before partitions are revoked; after a failure messages arrive again."""
        if not (self._handed or self._counts or self._committing):
            return
        try:
            self.commit()
        except BarnabasError as error:
            logger.warning("audit of %s: commit failed, messages will arrive again: %s", self.tier, error)

    def came(self, topic_partitions: list[TopicPartition]) -> None:
        """Handle assigned partitions."""
        if self._latest and topic_partitions:
            now_ms = wall_ms()
            for tp, at in self.consumer.committed(topic_partitions).items():
                if at is None:
                    self._reaching.begins(tp.topic, now_ms)

    def went(self, topic_partitions: list[TopicPartition]) -> None:
        """Handle revoked partitions: their new member counts what was not committed."""
        self._count()
        for tp in topic_partitions:
            self._counts.pop(tp, None)
        self._gone |= self._uncommitted.keys() & set(topic_partitions)
        self._reaching.forget(topic_partitions)

    # --- internals

    def _count(self) -> None:
        messages, start, now_ms = self._handed, 0, wall_ms()
        for index, message in enumerate(messages):
            last = index + 1 == len(messages)
            if last or messages[index + 1][4:6] != message[4:6]:
                tp = TopicPartition(message.topic, message.partition)
                counts = self._counts.get(tp)
                if counts is None:
                    counts = self._counts[tp] = MessageCounts(self._width_ms)
                counts.add(messages[start : index + 1], now_ms)
                start = index + 1
        messages.clear()

    def _read_end_offsets(self) -> None:
        """Look up the end offsets of the source; a failure is retried."""
        topic_partitions = self.consumer.assignment
        try:
            wanted = self._reaching.unprobed(topic_partitions)
            if wanted:
                now_ms = wall_ms()
                found = self._admin.list_offsets(dict.fromkeys(wanted, "latest"))
                self._reaching.probed(now_ms, found)
                topics = sorted({tp.topic for tp in wanted})
                self._reaching.partitions |= {
                    topic.name or "": len(topic.partitions) for topic in self._admin.describe_topics(topics)
                }
            self._reaching.read_to({tp: self.consumer.position(tp, 0) for tp in topic_partitions})
        except BarnabasError as error:
            logger.info("audit of %s: the ends of its partitions cannot be looked up now: %s", self.tier, error)

    def _messages(self) -> list[Message]:
        together = MessageCounts(self._width_ms)
        for counts in self._uncommitted.values():
            together.absorb(counts)
        return self._reports.messages(together)

    def _end_earlier(self) -> None:
        if self._committing:
            self._commit()
        elif self._aborting:
            self._abort()

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except ClientTimeout:
            raise
        except AbortNeeded:
            self._committing, self._aborting = False, True
            self._abort()
            raise
        self._committing = False
        self._uncommitted = {}
        self._gone.clear()

    def _abort(self) -> None:
        self._producer.abort_transaction()
        self._aborting = False
        for tp in self._uncommitted.keys() - self._gone:
            self._counts.setdefault(tp, MessageCounts(self._width_ms)).absorb(self._uncommitted[tp])
        self._uncommitted = {}
        self._gone.clear()


class _Listener(RebalanceListener):
    def __init__(self, audited: AuditedConsumer) -> None:
        self._audited = audited

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        self._audited.came(partitions)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._audited.commit_quietly()
        self._audited.went(partitions)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        self._audited.went(partitions)


class Auditor:
    """Counts the messages of a cluster's topics exactly once, until it is stopped.

    topics:   topics to count; default: all but internal ones, including new ones.
    instance: its name among the auditors of this tier, which share the partitions; a restart under its name causes
              no rebalance. Raises `BarnabasError`.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        *,
        tier: str = BROKER,
        after: str = PRODUCER,
        topics: Sequence[str] = (),
        window_ms: int = WINDOW_MS,
        interval_s: float = INTERVAL_S,
        instance: str = "1",
    ) -> None:
        self._audited = AuditedConsumer(
            bootstrap,
            group_id=f"{TOPIC}-{tier}",
            tier=tier,
            after=after,
            window_ms=window_ms,
            interval_s=interval_s,
            group_instance_id=f"{TOPIC}-{tier}-{instance}",
            group_protocol="classic",  # a member that has joined has all present topics; KIP-848 assigns once a second
            auto_offset_reset="earliest",
            metadata_max_age_ms=_METADATA_MS,
            skip_damaged=True,  # unreadable messages are lost, and reported as such
        )
        self._stopping = threading.Event()
        self.counted = 0
        if topics:
            self._audited.subscribe(list(topics))
        else:
            self._audited.subscribe(pattern=ALL_TOPICS)

    def run(self, on_counted: Callable[[int], object]) -> None:
        """Count until `stop`. `on_counted` receives the number of counted messages. Raises permanent errors."""
        while not self._stopping.is_set():
            self.step()
            on_counted(self.counted)

    def step(self) -> None:
        """Count the available messages, and commit if due."""
        try:
            self.counted += len(self._audited.poll_many(_AT_ONCE, _POLL_S))
        except BarnabasError as error:
            if not passes(error):
                raise
            logger.warning("audit of %s: %s", self._audited.tier, error)
            self._stopping.wait(_POLL_S)
        self._audited.commit_if_due()

    def count_to_end(self) -> None:
        """Count and commit all current messages of this auditor's partitions; others may have the rest."""
        begun_ms = wall_ms()
        consumer = self._audited.consumer
        while not self._stopping.is_set():
            self.step()
            is_committed = consumer.settled and self._audited.commit_if_due(now=True)
            if is_committed and self._audited.upto_ms >= begun_ms:
                return

    def stop(self) -> None:
        """End `run`. Any thread; also a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Commit and leave the group."""
        self._audited.close()
