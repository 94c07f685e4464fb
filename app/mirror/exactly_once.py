"""Copying exactly once: messages, and how far their source is read, go to the target in one transaction (KIP-98).

The positions are those of the source's `group.id`, kept by the target. Each stream reads every n-th partition and has a
transactional id of its own, so that a mirror that was replaced, and does not know it, is fenced.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.consumer.subscription_state import AtOffset
from ...core.client.errors import AbortNeeded, ClientTimeout
from ...core.client.group.events import CommittedOffset
from ...core.message.message import Message
from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.errors import BarnabasError, ConfigError
from ...ports.types import TopicPartition
from ..clients.admin.admin import Admin
from ..clients.producer.producer import Producer
from ..clients.shared.connect import secured
from .assigned import AssignedReader, AssignedSource
from .layout import AS_LAID_OUT, PlacingSender, TopicLayout
from .taken import MirrorReader, Taken, TopicMaker, dotted

ID_PREFIX = "barnabas-mirror"


def check_exactly_once(sources: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> None:
    """Raises `ConfigError` where it cannot be had."""
    for config in (*sources, target):
        if not dotted(config).get("bootstrap.servers"):
            raise ConfigError("exactly once needs bootstrap.servers (the current generation) at both ends")
    groups = [dotted(config).get("group.id") for config in sources]
    if not all(groups):
        raise ConfigError(
            "exactly once keeps the positions with the target: give each source a group.id, the name there"
        )
    if len(set(groups)) < len(groups):
        raise ConfigError("exactly once needs another group.id for each source: the target keeps positions by it")


class TransactionalSource(AssignedSource):
    """A cluster of which the target knows how far it was copied; target topics get as many partitions."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: TopicFilter,
        target: Mapping[str, Any],
        layout: TopicLayout,
        *,
        by_number: bool,
    ) -> None:
        settings = dotted(config)
        self._group = str(settings.pop("group.id"))
        settings["enable.auto.commit"] = False
        super().__init__({"isolation.level": "read_committed", **settings}, topics)
        self._target_config = dotted(target)
        self._target = Admin(secured(self._target_config["bootstrap.servers"], self._target_config))
        self._layout = layout
        self.by_number = by_number
        self.streams: list[TransactionalStream] = []
        self.name = f"{self.bootstrap} (group {self._group} at the target)"

    def open(self, streams: int) -> list[MirrorReader]:
        """Open the streams; older mirrors are fenced before the positions are read."""
        base = f"{self._target_config.get('transactional.id', ID_PREFIX)}-{self._group}"
        for number in range(streams):
            self.streams.append(TransactionalStream(self, number, streams, self._producer(f"{base}-{number}")))
        self._fence_others(base, streams)
        self._readers = list(self.streams)
        return list(self.streams)

    def start_of(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
        found = self._target.group_offsets(self._group, places, require_stable=True)
        return {place: AtOffset(each.offset, topic_id=_topic_id_of(each.metadata)) for place, each in found.items()}

    def partitions(self) -> list[TopicPartition]:
        """The target has them too then: it keeps positions of partitions that it has."""
        places = super().partitions()
        self._layout.provide(Counter(place.topic for place in places))
        return places

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """Do nothing: the target got the positions with the messages."""

    def positions(self, batch: Sequence[Taken]) -> tuple[dict[Hashable, CommittedOffset], str]:
        """Return the source offsets behind this batch, and the group that they belong to.

        Each offset carries its topic id: a topic that was made again under its name is copied from its beginning.
        """
        positions: dict[Hashable, CommittedOffset] = {
            taken.place: CommittedOffset(taken.next_offset, metadata=taken.topic_id.hex()) for taken in batch
        }
        return positions, self._group

    def close(self) -> None:
        super().close()
        for stream in self.streams:
            stream.abort_and_close()
        self._target.close()

    def _producer(self, transactional_id: str) -> Producer:
        known = ("bootstrap.servers", "producer.type", "transactional.id")
        settings = {key: value for key, value in self._target_config.items() if key not in known}
        settings |= {**AS_LAID_OUT, "transactional.id": transactional_id}
        producer = Producer(self._target_config["bootstrap.servers"], config=settings)
        try:
            producer.init_transactions()
        except BaseException:
            producer.close()
            raise
        return producer

    def _fence_others(self, base: str, streams: int) -> None:
        """Streams of an earlier run that had more of them."""
        for listed in self._target.list_transactions():
            number = listed.transactional_id.removeprefix(f"{base}-")
            if number.isascii() and number.isdigit() and int(number) >= streams:
                self._producer(f"{base}-{number}").close()


def _topic_id_of(note: str | None) -> bytes:
    """Return the topic id that `positions` noted. Earlier mirrors noted none, and others may have something else."""
    try:
        topic_id = bytes.fromhex(note or "")
    except ValueError:
        return NO_TOPIC_ID
    return topic_id if len(topic_id) == len(NO_TOPIC_ID) else NO_TOPIC_ID


class TransactionalStream(AssignedReader):
    """One stream of a source, and the producer that copies what it gives. Fulfils `MirrorReader` and `MirrorTarget`."""

    def __init__(self, source: TransactionalSource, number: int, of: int, producer: Producer) -> None:
        super().__init__(source, number, of)
        self._of_source = source
        self._producer = producer
        self._sender = PlacingSender(producer, by_number=source.by_number)
        self._committing = False
        """A transaction is complete, and whether it was committed is not known."""
        self._aborting = False
        """One has failed, and is to be aborted before the next."""

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = (), layout: TopicMaker | None = None) -> None:
        """Returns when the target has the batch and the positions behind it. Raises `BarnabasError`: it has neither, or
        after `ClientTimeout` maybe both, which the next call, with the same batch, finds out."""
        if self._committing:
            self._commit()
            return
        if self._aborting:
            self._producer.abort_transaction()
            self._aborting = False
        self._producer.begin_transaction()
        self._aborting = True
        try:
            self._send(batch, reports, layout)
        except BarnabasError:
            self._sender.forget()
            raise
        self._aborting, self._committing = False, True
        self._commit()

    def _send(self, batch: list[Taken], reports: Sequence[Message], layout: TopicMaker | None) -> None:
        """Send within the transaction timeout: a later commit would be fenced, as after the start of another mirror."""
        limit_s = self._producer.settings.transaction_timeout_ms / 1000
        offsets, group = self._of_source.positions(batch)
        self._sender.send(batch)
        self._sender.report(reports)
        self._sender.await_sends(layout, limit_s / 2)
        self._producer.send_offsets(offsets, group, timeout=limit_s / 4)

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except ClientTimeout:
            raise
        except AbortNeeded as error:
            self._aborting, self._committing = True, False
            if isinstance(error.__cause__, BarnabasError):
                raise error.__cause__ from None
            raise
        self._committing = False

    def abort_and_close(self) -> None:
        """Close the producer, which aborts what was not committed."""
        self._producer.close()
