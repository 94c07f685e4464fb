"""Changes of the coordination tree by the services: in order, and verified where the outcome is unknown."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from ....core.cluster.change_queue import ChangeQueue, is_unreachable
from ....core.cluster.entity_store import ChangeEntity
from ....core.cluster.layout import EntityKind
from ....core.cluster.registry import ClusterRegistry
from ....ports.broker_api.envelope import Reply
from ....ports.coordination import Coordination, CoordinationError
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError, broker_failed
from ....ports.scheduler import Outcome, Scheduler

T = TypeVar("T")
Reread = Callable[[], Coroutine[Any, Any, None]]

REREAD_MS = 1000.0
REREAD_MS_MAX = 30_000.0


class Changes:
    """The queue of all changes of a broker. Owner thread only.

    A write that fails may have been stored all the same (an unknown outcome): its subject is read again before the next
    change of it, and from time to time without one, so that memory and tree agree once the service can be reached. This
    happens in the queue of its changes: two queues could apply what they have read in the wrong order.
    """

    def __init__(self, scheduler: Scheduler, coordination: Coordination, report: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._queue = ChangeQueue(scheduler, coordination)
        self._report = report
        self._unknown_outcomes: dict[str, tuple[Reread, ChangeQueue]] = {}
        self._rereading: set[ChangeQueue] = set()
        self._reread_ms = REREAD_MS
        self._has_reported = False

    def close(self) -> None:
        """Give up the changes that are not done yet: the broker is about to stop."""
        self._queue.close()

    def submit(
        self,
        what: str,
        make: Callable[[], Coroutine[Any, Any, T]],
        reply: Reply[T],
        queue: ChangeQueue | None = None,
    ) -> None:
        """Run a change and reply with its result. `what` names it in reports; `queue` replaces the common one."""
        queue = queue or self._queue

        def done(outcome: Outcome[T]) -> None:
            error = outcome.error
            if error is None:
                reply(outcome.get())
            elif isinstance(error, BarnabasError):
                if not (queue.is_closed and is_unreachable(error)):  # given up by an orderly stop: no failure
                    self.report_failure(what, error)
                reply(as_api_error(error))
            else:
                self._report(f"{what} failed: {type(error).__name__}: {error}")
                reply(broker_failed())

        queue.run(make, done)

    @contextmanager
    def reread_on_failure(self, subject: str, reread: Reread, queue: ChangeQueue | None = None) -> Iterator[None]:
        """Return the context of writes to one subject: after a failure it is read again, until `reread` succeeds.

        `queue`: the queue of these writes; None: the common one.
        """
        queue = queue or self._queue
        try:
            yield
        except (CoordinationError, ClosedError):
            self._unknown_outcomes[subject] = reread, queue
            self._reread_later(queue)
            raise
        self._has_reported = False

    async def resolve_outcome(self, subject: str) -> None:
        """Return when no write to the subject has an unknown outcome. Raises `CoordinationError`."""
        unknown = self._unknown_outcomes.get(subject)
        if unknown is not None:
            reread, _ = unknown
            await reread()
            self._unknown_outcomes.pop(subject, None)

    def report_failure(self, what: str, error: BarnabasError) -> None:
        """Report a failure of the service: once, until a write has succeeded again."""
        if not is_unreachable(error) or not self._has_reported:
            self._report(f"{what} failed: {type(error).__name__}: {error}")
        self._has_reported = self._has_reported or is_unreachable(error)

    def _reread_later(self, queue: ChangeQueue) -> None:
        if queue not in self._rereading:
            self._rereading.add(queue)
            reread, finished = partial(self._reread_all, queue), partial(self._on_reread_all, queue)
            self._scheduler.call_later(self._reread_ms, lambda: queue.run(reread, finished))

    async def _reread_all(self, queue: ChangeQueue) -> None:
        for subject, (_, queue_of_subject) in tuple(self._unknown_outcomes.items()):
            if queue_of_subject is queue:
                await self.resolve_outcome(subject)

    def _on_reread_all(self, queue: ChangeQueue, outcome: Outcome[None]) -> None:
        self._rereading.discard(queue)
        error = outcome.error
        if isinstance(error, ClosedError):
            return  # the broker stops; its next start reads the subjects
        if error is None:
            self._reread_ms = REREAD_MS
            return
        if isinstance(error, BarnabasError):
            self.report_failure("reading the nodes of a failed change again", error)
        else:
            self._report(f"reading the nodes of a failed change again failed: {type(error).__name__}: {error}")
        self._reread_ms = min(2 * self._reread_ms, REREAD_MS_MAX)
        self._reread_later(queue)


class EntityStore:
    """Changes entities (ACLs, SCRAM credentials, client quotas, delegation tokens, configs of groups) in the tree, then
    in the image. Owner thread only."""

    def __init__(self, registry: ClusterRegistry, changes: Changes, queue: ChangeQueue) -> None:
        self._registry = registry
        self._changes = changes
        self._queue = queue

    def submit(self, what: str, make: Callable[[], Coroutine[Any, Any, T]], reply: Reply[T]) -> None:
        """Run a coroutine that awaits the calls below, after the changes before it, and reply with its result. `what`
        names it in reports."""
        self._changes.submit(what, make, reply, self._queue)

    async def refresh(self) -> None:
        """Read what other brokers have stored before this call into the image. Raises `CoordinationError`."""
        await self._registry.reread_all_entities()

    async def put(self, kind: EntityKind, name: str, change: ChangeEntity, *, replace_unreadable: bool = False) -> None:
        """Change one entity by compare-and-set (see `put_all`)."""
        await self.put_all(kind, {name: change}, replace_unreadable=replace_unreadable)

    async def put_all(
        self, kind: EntityKind, changes: Mapping[str, ChangeEntity], *, replace_unreadable: bool = False
    ) -> None:
        """Change entities of one kind by compare-and-set: each of `changes` is called with the stored value, None for
        a missing one, and returns the value to store, None to remove it. It may be called several times.

        All are changed or none, if there are at most `CHANGES_MAX`; else commit after commit. Raises
        `CoordinationError`, `UnreadableEntity` unless `replace_unreadable`, `ValueError` for an empty name, and what
        the calls raise.
        """
        subject = f"the entities of the kind {kind.value}"
        await self._changes.resolve_outcome(subject)
        with self._changes.reread_on_failure(subject, self._registry.reread_all_entities, self._queue):
            await self._registry.change_entities(kind, changes, replace_unreadable=replace_unreadable)


def as_api_error(error: BarnabasError) -> ApiError:
    """Return the error for a client. At REQUEST_TIMED_OUT, which clients retry, it may be stored (facts C4)."""
    if isinstance(error, ApiError):
        return error
    code = ErrorCode.REQUEST_TIMED_OUT if is_unreachable(error) else ErrorCode.UNKNOWN_SERVER_ERROR
    return ApiError(code, str(error))
