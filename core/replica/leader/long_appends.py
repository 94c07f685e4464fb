"""Produce requests whose records take long to decompress: they are validated in turns with other work.

The reasons are in docs/design/log.md, 'Long appends'.

Requests that are validated quickly never come here. Records are decompressed where a topic requires it: compaction,
log-append time of messages without a timestamp, a compression of the topic, `record.validation`.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any

from attrs import evolve

from ....ports.broker_api.produce import ProducePartition, ProduceResultPartition
from ....ports.clock import Clock
from ....ports.scheduler import Outcome, Scheduler
from ...log.append_origin import AppendOrigin
from ...log.formats.validation import DecompressedTooLarge
from ...log.producers.producer_state import ProducerStates
from ...message.codec import DECOMPRESSED_BYTES_MAX
from ...traffic.steps import StepRunner

COPIED_BYTES_MAX = 256 << 20
"""The limit for the records of all such requests; a single request may exceed it."""
_OVERHEAD_BYTES = 1_000
"""The memory of a request in addition to its records."""


class LongAppend:
    """A produce request that is being appended, with its own copy of the records."""

    def __init__(
        self,
        entries: Sequence[ProducePartition],
        results: list[ProduceResultPartition],
        pending: dict[Hashable, Any],
        done: Callable[[Any], None],
        *,
        acks: int,
        timeout_ms: float,
        allows_zstd: bool,
        origin: AppendOrigin,
        owner: Hashable,
        through: Callable[[], None] | None,
    ) -> None:
        self.entries = entries
        self.results = results
        """The results of the first entries, as many as are done."""
        self.pending = pending
        self.done = done
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.allows_zstd = allows_zstd
        self.origin = origin
        self.owner: Hashable = self if owner is None else owner
        self.through = through
        self.size = _OVERHEAD_BYTES + sum(len(each.records) for each in entries[len(results) :])
        self.admitting: tuple[int, ProducerStates] | None = None
        """The transactional entry whose records are being validated, and the producers of its partition."""

    @property
    def rest(self) -> Sequence[ProducePartition]:
        """The entries that are not done."""
        return self.entries[len(self.results) :]

    def keep(self) -> None:
        """Copy the records: the caller will soon reuse their memory."""
        done = len(self.results)
        copies = [evolve(each, records=memoryview(bytearray(each.records))) for each in self.entries[done:]]
        self.entries = [*self.entries[:done], *copies]


class _Lane:
    """Requests whose batches decompress to at most `unpacked_max` bytes; at most `at_a_time` of them run."""

    def __init__(self, unpacked_max: int, at_a_time: int) -> None:
        self.unpacked_max = unpacked_max
        self.free = at_a_time
        self.waiting: deque[LongAppend] = deque()


Steps = Generator[Callable[[], Any] | None, Any, None]


class LongAppends:
    """Runs the requests. Owner thread only.

    One request of an owner is under way at a time; later ones wait behind it, so that the requests of one connection
    are appended in their order. `append_steps` appends the rest of a request; `finish` answers it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        *,
        append_steps: Callable[[LongAppend, int], Steps],
        finish: Callable[[LongAppend, BaseException | None], None],
        report: Callable[[BaseException], None],
    ) -> None:
        self._steps = StepRunner(scheduler, clock, report)
        self._append_steps = append_steps
        self._finish = finish
        self._report = report
        # Batches that decompress to many bytes must not delay the others, nor fill the memory.
        self._large = _Lane(DECOMPRESSED_BYTES_MAX, 2)
        self._small = _Lane(4 << 20, 32)
        self.by_owner: dict[Hashable, deque[LongAppend]] = {}
        """The requests of each owner; the first of each is under way."""
        self.copied_bytes = 0

    def is_busy(self, owner: Hashable) -> bool:
        """Return True while a request of this owner is being validated."""
        return owner in self.by_owner

    def add(self, request: LongAppend) -> bool:
        """Accept a request and copy its records; returns False, and takes nothing, if too many bytes are waiting."""
        if self.copied_bytes and self.copied_bytes + request.size > COPIED_BYTES_MAX:
            return False
        request.keep()
        self.copied_bytes += request.size
        waiting = self.by_owner.get(request.owner)
        if waiting is not None:
            waiting.append(request)
        else:
            self.by_owner[request.owner] = deque((request,))
            self._enter(self._small, request)
        return True

    def _enter(self, lane: _Lane, request: LongAppend) -> None:
        if not lane.free:
            lane.waiting.append(request)
            return
        lane.free -= 1

        def done(outcome: Outcome[None]) -> None:
            lane.free += 1
            if lane.waiting:
                self._enter(lane, lane.waiting.popleft())
            if isinstance(outcome.error, DecompressedTooLarge) and lane is not self._large:
                self._enter(self._large, request)
            else:
                self._end(request, outcome.error)

        self._steps.run(self._append_steps(request, lane.unpacked_max), done)

    def _end(self, request: LongAppend, error: BaseException | None) -> None:
        self.copied_bytes -= request.size
        waiting = self.by_owner[request.owner]
        waiting.popleft()
        try:
            self._finish(request, error)
        finally:
            if waiting:
                self._enter(self._small, waiting[0])
            elif self.by_owner.get(request.owner) is waiting:
                del self.by_owner[request.owner]
            if request.through is not None:
                request.through()
