"""A consumer whose messages are counted: in one transaction the counts are published and the positions kept."""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from ..app.clients.admin.admin import Admin
from ..app.clients.consumer.consumer import Consumer
from ..app.clients.consumer.rebalance_listener import RebalanceListener
from ..app.clients.producer.producer import Producer
from ..app.clients.shared.blocking_shell import logger
from ..core.client.errors import AbortNeeded, ClientTimeout, CommitFailed
from ..core.message.message import Message
from ..ports.errors import ApiError, BarnabasError
from ..ports.types import TopicPartition
from .counting import MessageCounts
from .publishing import ensure_topic, wall_ms
from .reports import BROKER, TOPIC, WINDOW_MS
from .tier import TierReports

if TYPE_CHECKING:
    from types import TracebackType

INTERVAL_S = 10.0
TRANSACTION_MS = 20_000
"""After so long the cluster ends what a reader that was killed has left open."""
_POSITIONS_S = TRANSACTION_MS / 4000
"""For keeping positions: of a topic that was deleted meanwhile nobody takes them, and the transaction must not get too
old meanwhile, which would fence this reader."""
_ADMIN_MS = 5_000
_UNCOUNTED_MAX = 1000


def passes(error: BarnabasError) -> bool:
    """True if trying again may help."""
    if isinstance(error, ApiError):
        return error.retriable or isinstance(error, CommitFailed)
    return isinstance(error, AbortNeeded | ClientTimeout)


class AuditedConsumer:
    """A member of a group whose messages count as passed when, and only when, their positions are committed.

        with AuditedConsumer(bootstrap, group_id="billing") as consumer:
            consumer.subscribe("orders")
            for message in consumer:
                ...

    tier:       its name in the audit; default "consumer:" and the group's.
    after:      the tier that it reads from.
    window_ms:  of the counts; the same in all tiers.
    interval_s: how often iterating commits, between messages that were handed out together.
    settings:   those of `Consumer`, which is `consumer`; it reads what is committed, and never commits by itself.

    Kill it anywhere: what it had not committed comes again and is counted then. One thread. What cannot be committed
    now stays counted, and is committed with the next; `ProducerFenced` says that another one works in its place.
    """

    def __init__(
        self,
        bootstrap: object,
        *,
        group_id: str,
        tier: str | None = None,
        after: str = BROKER,
        window_ms: int = WINDOW_MS,
        interval_s: float = INTERVAL_S,
        **settings: Any,
    ) -> None:
        self.tier = f"consumer:{group_id}" if tier is None else tier
        self._reports = TierReports(self.tier, after)
        self._reaching = self._reports.reaching
        self._width_ms = window_ms
        self._interval_s = interval_s
        self._counts: dict[TopicPartition, MessageCounts] = {}
        self._in_doubt: dict[TopicPartition, MessageCounts] = {}
        """Of a transaction that is under way, or of which it is not known how it ended."""
        self._gone: set[TopicPartition] = set()
        """Partitions in doubt that are others' by now."""
        self._handed: list[Message] = []
        """Not counted yet."""
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
        """As `Consumer.subscribe`."""
        self.consumer.subscribe(topics, pattern=pattern, listener=_Listener(self))

    @property
    def upto_ms(self) -> int:
        """What was in this member's partitions at this time is counted; -1 = not known yet."""
        return self._reaching.reached_ms(self.consumer.assignment)

    def poll_many(self, max_messages: int | None = None, timeout: float = 0.0) -> list[Message]:
        """As `Consumer.poll_many`; they are counted, and pass with the next `commit`."""
        messages = self.consumer.poll_many(max_messages, timeout)
        self._handed += messages
        self._count()
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Messages for ever; what was handed out is committed every `interval_s`."""
        handed = self._handed
        while True:
            for message in self.consumer.messages(timeout=min(1.0, self._interval_s)):
                handed.append(message)
                yield message
                if len(handed) >= _UNCOUNTED_MAX or time.monotonic() >= self._due_s:
                    self._count()
                    self.commit_if_due()
            self.commit_if_due()

    def commit_if_due(self, *, now: bool = False) -> None:
        """Commit when `interval_s` have passed since the last time, or now.

        What fails is told to the log and tried again. Raises what makes this consumer useless.
        """
        if not now and time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._interval_s
        try:
            self.commit()
        except BarnabasError as error:
            if not passes(error):
                raise
            logger.warning("audit of %s: not committed, which is tried again: %s", self.tier, error)

    def commit(self) -> None:
        """Publish what was counted and keep the positions, both or none.

        Raises `AbortNeeded` and `CommitFailed` (neither happened; what was counted stays so), `ClientTimeout` (the next
        commit finds out), and for ever `ProducerFenced`.
        """
        self._end_earlier()
        self._look()
        if self._handed or self._counts or self._reaching.has_news:
            with self.transaction():
                pass

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """The same, with what the block sends by this producer in the same transaction.

        Raises what `commit` raises, and what the block does: then `rewind` has its messages come again.
        """
        self._end_earlier()
        self._producer.begin_transaction()
        self._aborting = True
        try:
            yield self._producer
            self._count()
            self._in_doubt, self._counts = self._counts, {}
            self._producer.send_many(TOPIC, self._messages())
            if self.consumer.assignment:
                self._producer.send_offsets(self.consumer, timeout=_POSITIONS_S)
        except BaseException:
            self._abort()
            raise
        self._aborting, self._committing = False, True
        self._commit()

    def rewind(self) -> None:
        """Go back to what is committed."""
        self._end_earlier()
        for place, at in self.consumer.committed().items():
            self.consumer.seek(place, "earliest" if at is None else at.offset)
        self._handed.clear()
        self._counts.clear()
        self._reaching.forget(self.consumer.assignment)

    def close(self, *, commit: bool = True) -> None:
        """Commit, leave the group, and hang up. Twice is harmless."""
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

    # --- for the listener

    def commit_quietly(self) -> None:
        """Before partitions are given up: that it fails only makes messages come again."""
        if not (self._handed or self._counts or self._committing):
            return
        try:
            self.commit()
        except BarnabasError as error:
            logger.warning("audit of %s: not committed, so that messages come again: %s", self.tier, error)

    def came(self, places: list[TopicPartition]) -> None:
        """Partitions are to be read."""
        if self._latest and places:
            now_ms = wall_ms()
            for place, at in self.consumer.committed(places).items():
                if at is None:
                    self._reaching.begins(place.topic, now_ms)

    def went(self, places: list[TopicPartition]) -> None:
        """Partitions are not this member's any more: whoever reads them counts what was not committed."""
        self._count()
        for place in places:
            self._counts.pop(place, None)
        self._gone |= self._in_doubt.keys() & set(places)
        self._reaching.forget(places)

    # --- inside

    def _count(self) -> None:
        messages, start, now_ms = self._handed, 0, wall_ms()
        for index, message in enumerate(messages):
            last = index + 1 == len(messages)
            if last or messages[index + 1][4:6] != message[4:6]:
                place = TopicPartition(message.topic, message.partition)
                counts = self._counts.get(place)
                if counts is None:
                    counts = self._counts[place] = MessageCounts(self._width_ms)
                counts.add(messages[start : index + 1], now_ms)
                start = index + 1
        messages.clear()

    def _look(self) -> None:
        """See how far the source reaches; it is tried again when it cannot be told."""
        places = self.consumer.assignment
        try:
            wanted = self._reaching.unprobed(places)
            if wanted:
                now_ms = wall_ms()
                found = self._admin.list_offsets(dict.fromkeys(wanted, "latest"))
                self._reaching.probed(now_ms, found)
                topics = sorted({place.topic for place in wanted})
                self._reaching.partitions |= {
                    topic.name or "": len(topic.partitions) for topic in self._admin.describe_topics(topics)
                }
            self._reaching.read_to({place: self.consumer.position(place, 0) for place in places})
        except BarnabasError as error:
            logger.info("audit of %s: the ends of its partitions cannot be looked up now: %s", self.tier, error)

    def _messages(self) -> list[Message]:
        together = MessageCounts(self._width_ms)
        for counts in self._in_doubt.values():
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
        self._in_doubt = {}
        self._gone.clear()

    def _abort(self) -> None:
        self._producer.abort_transaction()
        self._aborting = False
        for place in self._in_doubt.keys() - self._gone:
            self._counts.setdefault(place, MessageCounts(self._width_ms)).absorb(self._in_doubt[place])
        self._in_doubt = {}
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
