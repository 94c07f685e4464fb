"""Records of tiered topics (KIP-405) that a reader takes from remote storage, past the brokers.

For readers that hold keys of the store and ask for it: the cluster's ACLs, quotas and audit log do not see these reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from ....core.message.codec import NO_CODECS
from ....core.tiering.manifest import Manifest, decode_manifest, manifest_key, partition_folder
from ....core.tiering.remote_reader import RemoteLogReader, RemoteRecords, RemoteView
from ....core.tree.service_url import redact_url
from ....ports.broker_api.fetch import AbortedTransaction, FetchResultPartition
from ....ports.broker_api.offsets import EARLIEST_LOCAL
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.remote_storage import ObjectMissing, RemoteStorage, RemoteStorageError
from ....ports.scheduler import Outcome
from ....ports.types import TopicPartition
from ..shared.blocking_shell import logger

if TYPE_CHECKING:
    from types import TracebackType

    from ..shared.protocols import AnySimpleConsumer

_PIECE_BYTES = 2_097_152
"""Bytes that are read at once; 16 of them are in memory at most."""
_INDEX_BYTES_MAX = 16_777_216

AbortedAt = Callable[[int], Sequence[AbortedTransaction] | None]
"""Returns the aborted transactions with records from an offset on, as the leader knows them; None: it does not say."""


class RemoteRange:
    """A reader of what a partition has in remote storage, below the local log of its leader. One thread."""

    def __init__(self, storage: RemoteStorage, tp: TopicPartition, view: RemoteView, local_start: int) -> None:
        self._tp = tp
        self._view = view
        self._local_start = local_start
        self._reader = RemoteLogReader(
            storage,
            _at_once,
            NO_CODECS,
            pending_max=1,  # nothing is loaded early: the load would be waited for
            index_bytes_max=_INDEX_BYTES_MAX,
            piece_bytes=_PIECE_BYTES,
        )
        self._failed = False
        self._beyond: dict[int, Sequence[AbortedTransaction] | None] = {}

    def reach(self, start: int, end: int) -> int:
        """Return the end of the offsets from `start` up to `end` that come from remote storage."""
        return max(start, min(end, self._local_start, self._view.manifest.covered_to(start)))

    def fetch(self, offset: int, max_bytes: int, aborted_at: AbortedAt | None) -> FetchResultPartition | None:
        """Return what a leader would answer; None: ask the leader. `aborted_at`: for a reader of committed records."""
        if self._failed or offset >= self._local_start or self._view.manifest.find(offset) is None:
            return None
        outcomes: list[Outcome[RemoteRecords | None]] = []
        self._reader.read(
            self._view, offset, max_bytes=max_bytes, committed=aborted_at is not None, done=outcomes.append
        )
        try:
            found = outcomes[0].get()
        except (RemoteStorageError, ApiError, ValueError) as error:
            # Retention deletes segments while they are read, and the leader knows what is there now.
            logger.warning("%s: from offset %d on through the brokers: %s", self._tp, offset, error)
            self._failed = True
            return None
        if found is None:
            return None
        aborted = None if aborted_at is None else self._aborted(found, offset, aborted_at)
        if aborted_at is not None and aborted is None:
            self._failed = True
            return None
        end = self._view.manifest.covered_to(offset)
        start = self._view.manifest.log_start
        return FetchResultPartition(
            *self._tp,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=start,
            records=found.records,
            aborted=aborted,
        )

    def _aborted(self, found: RemoteRecords, offset: int, aborted_at: AbortedAt) -> Sequence[AbortedTransaction] | None:
        """Return the aborted transactions; a marker may be behind all that is in remote storage."""
        pairs = {(each.producer_id, each.first_offset) for each in found.aborted}
        if not found.is_complete:
            end = self._view.manifest.covered_to(offset)
            if end not in self._beyond:
                self._beyond[end] = aborted_at(end)
            beyond = self._beyond[end]
            if beyond is None:
                return None
            pairs |= {(each.producer_id, each.first_offset) for each in beyond if each.first_offset < end}
        return [AbortedTransaction(*pair) for pair in sorted(pairs)]


class RemoteRanges:
    """A remote storage that a reader opens with its own keys. A context manager; one thread."""

    def __init__(self, url: str) -> None:
        """`url`: s3://BUCKET/PREFIX or file:///PATH, that of the brokers. Raises `ConfigError`."""
        from ...compose.remote_storage import open_for_reader

        self.name = redact_url(url)
        self._storage = open_for_reader(url)

    def find(
        self, consumer: AnySimpleConsumer, tp: TopicPartition, start: int, topic_id: Callable[[], bytes]
    ) -> RemoteRange | None:
        """Return what a partition has from `start` on in this storage only, for `SimpleConsumer.read`; None for
        nothing. `topic_id` is called only if the leader does not have all locally.

        Raises `ApiError`, `RemoteStorageError` if the store does not answer, `ConfigError` for a manifest of another
        topic.
        """
        try:
            local_start = consumer.offset_at(*tp, EARLIEST_LOCAL)
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:  # from before tiered storage
                return None
            raise
        if local_start <= start:
            return None
        known = topic_id()
        if not any(known):
            return None
        key = manifest_key(tp, known)
        try:
            manifest = decode_manifest(self._storage.read(key).content)
        except ObjectMissing:
            return None
        except ValueError as error:
            raise ConfigError(f"{self.name}: {key}: {error}") from error
        _check_owner(manifest, tp, known, f"{self.name}: {key}")
        view = RemoteView(folder=partition_folder(tp, known), manifest=manifest)
        return RemoteRange(self._storage, tp, view, local_start)

    def close(self) -> None:
        """Release the connections."""
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def plan_line(place: object, start: int, middle: int, end: int, name: str) -> str:
    """Return the text for a read of [start, end) of which [start, middle) comes from remote storage."""
    parts = [f"offsets {start} to {middle} from {name}"] if middle > start else []
    parts += [f"offsets {middle} to {end} through the brokers"] if end > middle else []
    return f"{place}: {', '.join(parts)}"


def _check_owner(manifest: Manifest, tp: TopicPartition, topic_id: bytes, where: str) -> None:
    if bytes(manifest.topic.topic_id) != bytes(topic_id) or manifest.partition != tp.partition:
        owner = f"partition {manifest.partition} of the topic with id {manifest.topic.topic_id.hex()}"
        raise ConfigError(f"{where} is the manifest of {owner}, not of {tp} with id {topic_id.hex()}")


def _at_once(work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
    done(Outcome.of(work))
