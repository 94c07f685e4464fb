"""Keeps assigned partitions fetched ahead of their reader (facts C6, Fetch and ListOffsets)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ....ports.broker_api.fetch import DivergingEpoch, Fetch, FetchPartition, FetchResult, FetchResultPartition
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.broker_api.offsets import (
    EARLIEST_LOCAL,
    LATEST,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ...message.codec import Codecs
from ...message.corrupt_record import CorruptRecord
from ...message.message_set import MessageSet
from ..cluster_view import ClusterView
from ..effects import NEVER, Poll, Send, backoff_ms
from ..errors import LogTruncated, NoOffset, no_partition, silent, topic_error
from .fetch_position import CheckedRecords, FetchPosition, local_start
from .subscription_state import (
    AtOffset,
    AtTime,
    CompletedFetch,
    FetcherSettings,
    Reset,
    StartPosition,
    TopicPartitionState,
)

FULL_BUFFERS_WAIT_MS = 50
"""The longest wait of a fetch at the broker while other partitions of it are left out for full buffers."""
FENCED_MAX = 3
"""The number of FENCED_LEADER_EPOCH errors in a row after which requests name no epoch: metadata of brokers before 2.4
may have old epochs for ever."""
_BEHIND = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE)
"""The errors of a broker that has just become the leader, or is about to."""


class Fetcher:
    """Positions, lookups and fetches of the assigned partitions; one fetch per broker at a time.

    Used under one lock. The reader calls `next_completed_fetch` and sets the `read_offset` of each partition.
    """

    def __init__(
        self,
        view: ClusterView,
        entropy: Entropy,
        settings: FetcherSettings,
        codecs: Codecs,
        surfaced: Callable[[], None] = lambda: None,
    ) -> None:
        """`surfaced` is called when there is an error for the reader, also in `poll`."""
        self._view = view
        self._surfaced = surfaced
        self._entropy = entropy
        self.settings = settings
        self._codecs = codecs
        self.partitions: dict[TopicPartition, TopicPartitionState] = {}
        self._order: list[TopicPartition] = []
        self._fetching: set[int] = set()

    def assign(self, positions: Mapping[TopicPartition, StartPosition]) -> None:
        """Read these partitions, and no others, from these positions."""
        self.remove(list(self.partitions))
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, StartPosition | None]) -> None:
        """Read these partitions, too; None: as soon as `seek` says from where."""
        for tp, position in positions.items():
            self.partitions[tp] = TopicPartitionState(tp, FetchPosition(tp, self.settings.rules, self._codecs))
            if position is not None:
                self.seek(tp, position)
        self._order = list(self.partitions)
        self._view.add_topics(sorted({tp.topic for tp in positions}))

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions, and drop what was fetched of them."""
        for tp in partitions:
            self.partitions.pop(tp, None)
        self._order = [tp for tp in self._order if tp in self.partitions]

    def seek(self, tp: TopicPartition, position: StartPosition) -> None:
        """Continue at this position. Raises `KeyError` for a partition that is not assigned."""
        state = self.partitions[tp]
        if isinstance(position, AtTime):
            state.jump(position)
        elif isinstance(position, AtOffset):
            state.jump(None, position.offset, position.leader_epoch, position.topic_id)
        else:
            state.jump(None, position)

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Stop or resume fetching and delivering these. Raises `KeyError` for a partition that is not assigned."""
        for state in [self.partitions[tp] for tp in partitions]:
            state.paused = paused
            if not paused:
                state.stopped = False

    def surface(self, tp: TopicPartition, error: BarnabasError) -> None:
        """Let the reader raise the error when it gets there, once; the partition then waits for `seek` or `resume`."""
        self._surface(self.partitions[tp], error)

    def why(self, state: TopicPartitionState) -> str:
        """Return the reason why the partition makes no progress, as the end of a text."""
        waits_for = silent(self._view.address(state.tried[0])) if state.busy else state.last_error
        return self._view.why if waits_for is None else f"; last: {waits_for}"

    def next_completed_fetch(self, *, may_go_back: bool = True) -> CompletedFetch | None:
        """Return the next completed fetch for the reader, partitions in turn; None when there is none yet.

        `may_go_back` False: leave one that makes the reader go back for a later call, and return None.
        """
        for turn, tp in enumerate(self._order):
            state = self.partitions[tp]
            if state.completed_fetches and not state.paused:
                if not may_go_back and state.completed_fetches[0].go_back is not None:
                    return None
                self._order = [*self._order[turn + 1 :], *self._order[: turn + 1]]
                return state.completed_fetches.popleft()
        return None

    def poll(self, now_ms: float) -> Poll:
        sends: list[Send] = []
        wake = NEVER
        lookups: dict[int, list[TopicPartitionState]] = {}
        checks: dict[int, list[TopicPartitionState]] = {}
        fetches: dict[int, list[TopicPartitionState]] = {}
        full: set[int] = set()
        no_room = self._buffered() >= self.settings.max_bytes
        for tp in self._order:
            state = self.partitions[tp]
            if state.busy or state.stopped or (state.paused and state.lookup is None):
                continue
            if state.lookup is not None and state.completed_fetches:
                continue  # out of range, but what was fetched before is still to be read
            if state.lookup is None and state.fetch_offset < 0:
                continue  # it has no start position yet
            if now_ms < state.not_before_ms and not self._has_moved(state):
                wake = min(wake, state.not_before_ms)
                continue
            node = self._node_of(state, now_ms)
            if node is None:
                continue
            if state.lookup is not None:
                lookups.setdefault(node, []).append(state)
            elif state.fetch_position.awaits_local_start(self._asked(state, node)):
                checks.setdefault(node, []).append(state)
            elif no_room or len(state.completed_fetches) >= self.settings.fetches_per_partition:
                full.add(node)
            elif self._is_another(state):
                self._replaced(state)
            elif node not in self._fetching:
                fetches.setdefault(node, []).append(state)
        sends += [self._lookup(node, states) for node, states in lookups.items()]
        sends += [self._look_up_local_start(node, states) for node, states in checks.items()]
        sends += [self._fetch(node, states, node in full) for node, states in fetches.items()]
        return Poll(sends, wake)

    def _buffered(self) -> int:
        """Return the bytes that wait to be read; those of paused partitions do not count, and so block no others."""
        return sum(
            fetch.messages.size for s in self.partitions.values() if not s.paused for fetch in s.completed_fetches
        )

    def _has_moved(self, state: TopicPartitionState) -> bool:
        """Return True if the metadata has a leader of a later epoch, so that a retry need not wait (KIP-951)."""
        node, epoch = self._view.leadership(*state.tp)
        return state.failures > 0 and node >= 0 and epoch > state.tried[1]

    def _node_of(self, state: TopicPartitionState, now_ms: float) -> int | None:
        topic, partition = state.tp
        if state.near >= 0 and state.lookup is None:
            is_silent = state.fetch_position.awaits_local_start(self._asked(state, state.near))
            if now_ms < state.near_until_ms and self._view.address(state.near) is not None and not is_silent:
                return state.near
            state.near = -1
        node = self._view.leader(topic, partition)
        if node is None:
            error = self._view.topic_errors.get(topic)
            view = self._view.topic(topic)
            if error is not None:
                state.last_error = topic_error(error, topic)
                if not error.retriable:
                    self._surface(state, state.last_error)
            elif view is not None and partition >= len(view.leaders):
                state.last_error = no_partition(topic, len(view.leaders), partition)
            self._view.request_refresh()
        return node

    def _is_another(self, state: TopicPartitionState) -> bool:
        """Return True if the topic was deleted and created since the position was set: its id is another one."""
        there = self._topic_id(state)
        if state.topic_id == NO_TOPIC_ID:
            state.topic_id = there
        return there not in (NO_TOPIC_ID, state.topic_id)

    def _topic_id(self, state: TopicPartitionState) -> bytes:
        """Return the id of the topic that exists now; NO_TOPIC_ID if it is not known, or brokers have no topic ids."""
        return self._view.topic_id(state.tp.topic)

    def _begin(self, state: TopicPartitionState) -> int:
        """Mark the partition as busy, and return the leader epoch for the request."""
        state.busy = True
        state.tried = self._view.leadership(*state.tp)
        return state.tried[1] if state.fenced < FENCED_MAX else -1

    def _lookup(self, node: int, states: Sequence[TopicPartitionState]) -> Send:
        for state in states:
            state.topic_id = self._topic_id(state)
        timestamps = [state.lookup.timestamp_ms for state in states if state.lookup is not None]
        return self._list_offsets(node, states, timestamps, self._found)

    def _look_up_local_start(self, node: int, states: Sequence[TopicPartitionState]) -> Send:
        return self._list_offsets(node, states, [EARLIEST_LOCAL] * len(states), self._local_start_found)

    def _list_offsets(
        self,
        node: int,
        states: Sequence[TopicPartitionState],
        timestamps: Sequence[int],
        found: Callable[[TopicPartitionState, ListOffsetsResultPartition | BarnabasError, float], None],
    ) -> Send:
        asked = [(state, state.version) for state in states]
        request = ListOffsets(
            partitions=[
                ListOffsetsPartition(
                    topic=state.tp.topic,
                    partition=state.tp.partition,
                    timestamp=timestamp,
                    current_leader_epoch=self._begin(state),
                )
                for state, timestamp in zip(states, timestamps, strict=True)
            ],
            isolation_level=self.settings.isolation_level,
        )

        def answered(result: Any, now_ms: float) -> None:
            outcomes: Sequence[ListOffsetsResultPartition | BarnabasError] = (
                result.partitions if isinstance(result, ListOffsetsResult) else [result] * len(asked)
            )
            for (state, version), outcome in zip(asked, outcomes, strict=True):
                if state.version == version:
                    state.busy = False
                    found(state, outcome, now_ms)

        return Send(node, request, answered)

    def _found(
        self, state: TopicPartitionState, outcome: ListOffsetsResultPartition | BarnabasError, now_ms: float
    ) -> None:
        if isinstance(outcome, BarnabasError):
            self._failed(state, outcome, now_ms, refresh=True)
        elif outcome.error is not ErrorCode.NONE:
            self._refused(state, ApiError(outcome.error, f"offset of {state.tp}"), now_ms)
        elif outcome.offset < 0 and state.lookup == AtTime(LATEST):
            error = ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the leader of {state.tp} returned no end offset")
            self._failed(state, error, now_ms, refresh=True)
        elif outcome.offset < 0:  # all records are older: continue at the end
            state.lookup = AtTime(LATEST)
        else:
            state.jump(None, outcome.offset, topic_id=state.topic_id)

    def _local_start_found(
        self, state: TopicPartitionState, outcome: ListOffsetsResultPartition | BarnabasError, now_ms: float
    ) -> None:
        """Handle the beginning of the leader's local log, after several answers without records."""
        begin = local_start(outcome)
        if isinstance(begin, BarnabasError):
            self._failed(state, begin, now_ms, refresh=True)
            return
        self._keep(state, lambda: state.fetch_position.on_local_start(begin), now_ms)

    def _asked(self, state: TopicPartitionState, node: int) -> tuple[int, int]:
        return node, self._view.leadership(*state.tp)[1]

    def _fetch(self, node: int, states: Sequence[TopicPartitionState], others_full: bool) -> Send:
        states = sorted(states, key=lambda state: not state.fetch_position.urgent)
        asked = [(state, state.version) for state in states]
        settings = self.settings
        is_leader_needed = any(state.leader_only_at == state.fetch_position.position for state in states)
        self._fetching.add(node)
        request = Fetch(
            partitions=[self._question(state, node) for state in states],
            max_wait_ms=min(settings.max_wait_ms, FULL_BUFFERS_WAIT_MS) if others_full else settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation_level,
            rack_id="" if is_leader_needed else settings.rack,
        )

        def answered(result: Any, now_ms: float) -> None:
            self._fetching.discard(node)
            outcomes: Sequence[FetchResultPartition | BarnabasError]
            if isinstance(result, FetchResult):
                if result.throttle_ms > 0 and not result.partitions:  # beyond its quota; the link waits
                    for state, version in asked:
                        if state.version == version:
                            state.busy = False
                    return
                refused = ApiError(result.error, "fetch") if result.error is not ErrorCode.NONE else None
                outcomes = result.partitions if refused is None else [refused] * len(asked)
            else:
                outcomes = [result] * len(asked)
            for turn, ((state, version), outcome) in enumerate(zip(asked, outcomes, strict=True)):
                if state.version != version:
                    continue
                state.busy = False
                if isinstance(result, FetchResult) and isinstance(outcome, FetchResultPartition):
                    self._view.update_leader(state.tp, outcome.current_leader, result.nodes)
                self._fetched(state, outcome, now_ms, first=turn == 0)

        return Send(node, request, answered)

    def _question(self, state: TopicPartitionState, node: int) -> FetchPartition:
        offset, size = state.fetch_position.ask(self._asked(state, node))
        return FetchPartition(
            *state.tp,
            offset,
            size,
            current_leader_epoch=self._begin(state),
            last_fetched_epoch=state.fetch_position.asked_epoch,
            topic_id=self._topic_id(state),
        )

    def _fetched(
        self, state: TopicPartitionState, outcome: FetchResultPartition | BarnabasError, now_ms: float, *, first: bool
    ) -> None:
        fetch_position = state.fetch_position
        fetch_position.from_follower = state.near >= 0
        if isinstance(outcome, BarnabasError):
            state.near = -1
            self._failed(state, outcome, now_ms, refresh=True)
        elif state.near >= 0 and (outcome.error is not ErrorCode.NONE or outcome.diverging is not None):
            if outcome.error is ErrorCode.CORRUPT_MESSAGE:
                state.leader_only_at = fetch_position.position
            state.near = -1  # the leader knows better
            state.not_before_ms = now_ms + self.settings.retry_backoff_ms
        elif outcome.error is ErrorCode.CORRUPT_MESSAGE:
            self._keep(state, lambda: fetch_position.refused("the broker cannot read it: CORRUPT_MESSAGE"), now_ms)
        elif outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE and fetch_position.exploring:
            self._keep(state, lambda: fetch_position.refused("", out_of_range=True), now_ms)
        elif outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state)
        elif outcome.error is not ErrorCode.NONE:
            error = ApiError(outcome.error, f"fetch of {state.tp} from {state.fetch_offset}")
            self._refused(state, error, now_ms)
        elif outcome.diverging is not None:
            self._truncated(state, outcome.diverging)
        elif outcome.preferred_read_replica >= 0:
            state.near, state.near_until_ms = outcome.preferred_read_replica, now_ms + self.settings.near_ms
        else:
            state.failures = state.fenced = 0
            state.last_error = self._late(state) if fetch_position.is_remote else None
            state.high_watermark = outcome.high_watermark
            stable = self.settings.isolation_level and outcome.last_stable_offset >= 0
            state.end_offset = outcome.last_stable_offset if stable else outcome.high_watermark
            state.log_start_offset = outcome.log_start_offset
            self._keep(state, lambda: fetch_position.answered(outcome, first=first), now_ms)

    def _late(self, state: TopicPartitionState) -> BarnabasError:
        text = f"remote storage does not bring offset {state.fetch_offset} of {state.tp} in time"
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    def _keep(self, state: TopicPartitionState, take: Callable[[], CheckedRecords | None], now_ms: float) -> None:
        """Queue the records that `take` returns, if any, for the reader."""
        try:
            piece = take()
        except CorruptRecord as error:
            if state.near < 0:
                self._surface(state, error)
                return
            # The leader may have an intact copy, and gives it to a consumer without a rack.
            fetch_position = state.fetch_position
            state.near, state.leader_only_at = -1, fetch_position.position
            fetch_position.jump(fetch_position.position, fetch_position.epoch)
            piece = None
        if state.fetch_position.pause:
            state.not_before_ms = now_ms + self.settings.retry_backoff_ms
        if piece is not None:
            messages = MessageSet(
                piece.records,
                self._codecs,
                topic=state.tp.topic,
                partition=state.tp.partition,
                from_offset=piece.from_offset,
                check_crc=False,  # it is checked
                batches=piece.batches,
                next_offset=piece.next_offset,
            )
            state.completed_fetches.append(CompletedFetch(state.tp, messages, piece.next_offset, damage=piece.damage))

    def _out_of_range(self, state: TopicPartitionState) -> None:
        reset = self.settings.reset
        if reset is not Reset.NONE:
            state.lookup = AtTime(reset.value)
            return
        text = f"{state.tp} has no offset {state.fetch_offset}, and auto.offset.reset is none: seek"
        self._surface(state, NoOffset(text))

    def _truncated(self, state: TopicPartitionState, diverging: DivergingEpoch) -> None:
        """Handle a log that lost the records from there on: a leader was elected that did not have them (KIP-320)."""
        here, end = state.fetch_offset, diverging.end_offset
        text = f"{state.tp} was read up to offset {here}, and its log has lost what it had from {end} on"
        error = LogTruncated(f"{text}, and auto.offset.reset is none: seek", here, end)
        self._go_back(state, text, AtOffset(end, diverging.epoch), error)

    def _replaced(self, state: TopicPartitionState) -> None:
        """Deliver what was fetched before; then read the new topic from the position by `auto.offset.reset`."""
        text = f"topic {state.tp.topic} was deleted and made again, so that {state.tp} is another log"
        go_back = AtTime(self.settings.reset.value)
        self._go_back(state, text, go_back, NoOffset(f"{text}, and auto.offset.reset is none: seek"))

    def _go_back(self, state: TopicPartitionState, text: str, where: AtOffset | AtTime, error: NoOffset) -> None:
        """Make the reader continue at `where` after earlier fetches; without a reset policy it gets the error."""
        resets = self.settings.reset is not Reset.NONE
        self._surface(state, BarnabasError(text) if resets else error)
        state.completed_fetches[-1].go_back = where if resets else None

    def _refused(self, state: TopicPartitionState, error: ApiError, now_ms: float) -> None:
        state.fenced = state.fenced + 1 if error.code is ErrorCode.FENCED_LEADER_EPOCH else 0
        self._failed(state, error, now_ms, refresh=error.code.refresh_metadata or error.code in _BEHIND)

    def _failed(self, state: TopicPartitionState, error: BarnabasError, now_ms: float, *, refresh: bool) -> None:
        if refresh:
            self._view.request_refresh()
        state.last_error = error
        state.failures += 1
        settings = self.settings
        state.not_before_ms = now_ms + backoff_ms(
            state.failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._entropy.fraction()
        )
        if isinstance(error, ApiError) and not error.retriable:
            self._surface(state, error)

    def _surface(self, state: TopicPartitionState, error: BarnabasError) -> None:
        state.last_error = error
        state.stopped = True
        nothing = MessageSet(b"", self._codecs, from_offset=state.fetch_offset)
        state.completed_fetches.append(CompletedFetch(state.tp, nothing, state.fetch_offset, error))
        self._surfaced()
