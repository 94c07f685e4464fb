"""How the group coordinator's records come into `__consumer_offsets`."""

from collections.abc import Callable, Sequence

from ...core.coordinator.group.runtime import Record
from ...core.message.batch_writer import encode_columns
from ...ports.broker_api import Produce, ProducePartition, ProduceResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.words import TopicPartition
from .internal_topics import ITSELF, OFFSETS_TOPIC
from .produce import ProduceService
from .state import BrokerState

Done = Callable[[ErrorCode], None]
_Append = tuple[Sequence[Record], Done]

_TOGETHER_BYTES = 900_000
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 25


class OffsetsWriter:
    """Appends with acks=all; what is to be written in one turn of the owner thread goes together, so that a burst of
    commits costs few batches. Owner thread only."""

    def __init__(self, state: BrokerState, produce: ProduceService) -> None:
        self._state = state
        self._produce = produce
        self._timeout_ms = state.settings.static.offsets_commit_timeout_ms
        self._waiting: dict[int, list[_Append]] = {}
        self._is_closed = False

    def append(self, partition: int, records: Sequence[Record], done: Done) -> None:
        """See `core.coordinator.group.runtime.Append`."""
        if self._is_closed:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not self._waiting:
            self._state.scheduler.call_soon(self.flush)
        self._waiting.setdefault(partition, []).append((records, done))

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, {}
        for partition, appends in waiting.items():
            for together in self._portions(partition, appends):
                self._write(partition, together)

    def close(self) -> None:
        """Write what waits; nothing comes after it."""
        self.flush()
        self._is_closed = True

    def _portions(self, partition: int, appends: list[_Append]) -> list[list[_Append]]:
        """What goes into one batch each, in the order of the calls."""
        leader = self._state.replicas.partitions.get(TopicPartition(OFFSETS_TOPIC, partition))
        most = _TOGETHER_BYTES if leader is None else min(_TOGETHER_BYTES, leader.log.config.max_message_bytes)
        portions: list[list[_Append]] = []
        left = 0
        for append in appends:
            size = sum(len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in append[0])
            if size > left or not portions:
                portions.append([])
                left = most - _BATCH_OVERHEAD
            portions[-1].append(append)
            left -= size
        return portions

    def _write(self, partition: int, appends: list[_Append]) -> None:
        told = False

        def tell(error: ErrorCode) -> None:
            nonlocal told
            told = True
            for _, done in appends:
                done(error)

        def replied(result: ProduceResult | BarnabasError) -> None:
            tell(ErrorCode.UNKNOWN_SERVER_ERROR if isinstance(result, BarnabasError) else result.partitions[0].error)

        records = [record for portion, _ in appends for record in portion]
        try:
            batch = encode_columns(
                [value for _, value in records],
                keys=[key for key, _ in records],
                now_ms=self._state.clock.now_ms(),
            )
            entry = ProducePartition(OFFSETS_TOPIC, partition, memoryview(batch))
            self._produce.handle(Produce(partitions=[entry], acks=-1, timeout_ms=self._timeout_ms), ITSELF, replied)
        except ApiError as error:
            tell(error.code)
        except Exception as error:  # noqa: BLE001  reported; members wait for an answer
            self._state.failed(f"appending to {OFFSETS_TOPIC}-{partition}", error)
            if not told:
                tell(ErrorCode.UNKNOWN_SERVER_ERROR)
