"""Appends of a coordinator to the internal topic that stores its state."""

from collections import deque
from collections.abc import Callable, Sequence

from ...ports.broker_api.produce import ProducePartition, ProduceResultPartition
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.scheduler import Scheduler
from ...ports.types import TopicPartition
from ..log.append_origin import AppendOrigin
from ..message.batch_writer import encode_columns
from ..replica.leader.appender import ALL_IN_SYNC
from ..replica.replica_manager import ReplicaManager

Record = tuple[bytes, bytes | None]
"""Key and value; None is a tombstone."""

Done = Callable[[ErrorCode], None]

ProducerEpoch = tuple[int, int]
"""The id and the epoch of the producer whose transaction records belong to."""

_Append = tuple[Sequence[Record], Done, ProducerEpoch | None]

_TOGETHER_BYTES = 900_000
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 25


class CoordinatorLog:
    """Appends with acks=all to the partitions of one internal topic. Owner thread only.

    Records of one turn of the owner thread share batches, so that a burst of commits costs few of them.
    `failed` gets unexpected errors.
    """

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        *,
        clock: Clock,
        scheduler: Scheduler,
        timeout_ms: float,
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_ms = timeout_ms
        self._failed = failed
        self._waiting: dict[int, list[_Append]] = {}
        self._is_due = self._is_closed = False

    def append(
        self, partition: int, records: Sequence[Record], done: Done, producer: ProducerEpoch | None = None
    ) -> None:
        """Append these records to a partition, in one batch with the others of this turn. Never raises.

        Records of a `producer` belong to its transaction: they share a batch only with records of the same producer
        epoch, and are written at once, since a marker that is written in this turn must not come before them.
        `done` is called exactly once, on the owner thread: with NONE when the in-sync replicas have the records.
        Appends to one partition come into the log in the order of the calls.
        """
        if self._is_closed:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._waiting.setdefault(partition, []).append((records, done, producer))
        if producer is not None:
            self._flush(partition)
        elif not self._is_due:
            self._is_due = True
            self._scheduler.call_soon(self.flush)

    def flush(self) -> None:
        """Write the records that wait."""
        self._is_due = False
        for partition in tuple(self._waiting):
            self._flush(partition)

    def give_up(self, partition: int) -> None:
        """Fail the waiting appends to a partition that this broker no longer leads; they are never written."""
        for _, done, _ in self._waiting.pop(partition, ()):
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def close(self) -> None:
        """Write the records that wait, and refuse later appends."""
        self.flush()
        self._is_closed = True

    def _flush(self, partition: int) -> None:
        for together in self._portions(partition, self._waiting.pop(partition, [])):
            self._write(partition, together)

    def _portions(self, partition: int, appends: list[_Append]) -> list[list[_Append]]:
        """Divide the appends into batches, in the order of the calls."""
        leader = self._replicas.partitions.get(TopicPartition(self._topic, partition))
        most = _TOGETHER_BYTES if leader is None else min(_TOGETHER_BYTES, leader.log.config.max_message_bytes)
        portions: list[list[_Append]] = []
        left = 0
        for append in appends:
            size = sum(len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in append[0])
            if size > left or not portions or append[2] != portions[-1][0][2]:
                portions.append([])
                left = most - _BATCH_OVERHEAD
            portions[-1].append(append)
            left -= size
        return portions

    def _write(self, partition: int, appends: list[_Append]) -> None:
        untold = deque(done for _, done, _ in appends)

        def complete_all(error: ErrorCode) -> None:
            while untold:
                done = untold.popleft()
                try:
                    done(error)
                except Exception as fault:  # noqa: BLE001  reported; the other callbacks still run
                    self._failed(f"reporting the outcome of an append to {self._topic}-{partition}", fault)

        def replied(results: Sequence[ProduceResultPartition] | ApiError) -> None:
            complete_all(results.code if isinstance(results, ApiError) else results[0].error)

        records = [record for portion, _, _ in appends for record in portion]
        producer = appends[0][2]
        producer_id, producer_epoch = producer or (-1, -1)
        try:
            batch = encode_columns(
                [value for _, value in records],
                keys=[key for key, _ in records],
                now_ms=self._clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=producer is not None,
            )
            entry = ProducePartition(self._topic, partition, memoryview(batch))
            self._replicas.append(
                [entry], replied, acks=ALL_IN_SYNC, timeout_ms=self._timeout_ms, origin=AppendOrigin.BROKER
            )
        except ApiError as error:
            complete_all(error.code)
        except Exception as error:  # noqa: BLE001  reported; members wait for an answer
            self._failed(f"appending to {self._topic}-{partition}", error)
            complete_all(ErrorCode.UNKNOWN_SERVER_ERROR)
