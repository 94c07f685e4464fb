"""Produce requests whose records take long to open: they are checked in turns, while others are served.

The reasons are in docs/design/log.md, 'Long appends'.

What opens quickly never comes here. Records are opened where a topic asks for it: compaction, log-append time of
untimed messages, a compression of the topic, `record.validation`.
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
"""Of the records of all such requests; one request may always."""
_OVERHEAD_BYTES = 1_000
"""What a request costs besides its records."""


class LongAppend:
    """A produce request on its way into the logs, with its own memory."""

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
        """Of the first entries: so many are done."""
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
        """The entry, of a transaction, whose records are being opened, and the producers of its partition."""

    @property
    def rest(self) -> Sequence[ProducePartition]:
        """The entries that are not done."""
        return self.entries[len(self.results) :]

    def keep(self) -> None:
        """Copy the records: their memory is the caller's again soon."""
        done = len(self.results)
        copies = [evolve(each, records=memoryview(bytearray(each.records))) for each in self.entries[done:]]
        self.entries = [*self.entries[:done], *copies]


class _Lane:
    """Requests whose batches decompress to at most so many bytes; a few of them at a time."""

    def __init__(self, unpacked_max: int, at_a_time: int) -> None:
        self.unpacked_max = unpacked_max
        self.free = at_a_time
        self.waiting: deque[LongAppend] = deque()


Steps = Generator[Callable[[], Any] | None, Any, None]


class LongAppends:
    """Owner thread only.

    One request of an owner is under way at a time, those that come meanwhile wait behind it: what one connection sends
    is appended in its order. `append_steps` appends what is left of a request; `finish` answers it.
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
        # A batch that decompresses to much must not hold up those that do not, nor many of them fill the memory.
        self._large = _Lane(DECOMPRESSED_BYTES_MAX, 2)
        self._small = _Lane(4 << 20, 32)
        self.by_owner: dict[Hashable, deque[LongAppend]] = {}
        """The requests of each owner; the first of each is under way."""
        self.copied_bytes = 0

    def is_busy(self, owner: Hashable) -> bool:
        """True while a request of this owner is being opened."""
        return owner in self.by_owner

    def add(self, request: LongAppend) -> bool:
        """Take over a request, whose memory is copied; False if too many are under way: nothing has been taken."""
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
