"""A broker in the registries: its id, then its topics, and all of it again after its session expired (facts A7).

The nodes are ephemeral. One with our id that another broker wrote is a clash, and final; but if it names our own
address, a dead broker in our place left it, and it goes when that one's session ends.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from attrs import field

from ....ports.coordination import Cancel, Coordination, CoordinationError, NoNode, SessionState
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.values import frozen
from . import layout
from .layout import ClassicBroker
from .offload import run
from .registries import NodeTaken, create_ephemeral

BACK_OFF_MS = 100.0
BACK_OFF_MAX_MS = 5000.0
LOOK_AGAIN_MS = 200.0
"""The interval of checks whether a predecessor's node is gone."""
TAKEN_AGAIN_MS = 30_000.0
"""The wait before another attempt at a topic's node that another process wrote."""


@frozen(kw_only=True)
class IdNode:
    """A node that shows the broker as alive. `is_our_place` is true for another node that holds this broker's address.

    `clash` makes the error when it is not; by default the broker's id is taken.
    """

    path: str
    data: bytes
    is_our_place: Callable[[bytes], bool]
    clash: Callable[[bytes], BarnabasError] | None = None


def classic_id_node(broker: ClassicBroker) -> IdNode:
    """Return the node that registers a broker in `/brokers/ids`."""

    def is_our_place(data: bytes) -> bool:
        try:
            found = layout.decode_broker(str(broker.broker_id), data)
        except ValueError:
            return False
        return (found.host, found.port) == (broker.host, broker.port)

    path = layout.broker_path(broker.broker_id)
    return IdNode(path=path, data=layout.encode_broker(broker), is_our_place=is_our_place)


@frozen(kw_only=True)
class _Changes:
    """The changes to make, in this order."""

    ids: Mapping[str, bytes]
    topics: Mapping[str, bytes]
    replaced: frozenset[str]
    """The topics whose node is ours already and holds something else."""
    removed: Iterable[str]

    def __bool__(self) -> bool:
        return bool(self.ids or self.topics or self.removed)


@frozen
class _Applied:
    """The changes that were made, and the errors that stopped the others."""

    made: dict[str, bytes] = field(factory=dict)
    removed: set[str] = field(factory=set)
    taken: dict[str, NodeTaken] = field(factory=dict)
    """The nodes of topics that another process wrote; the others were made."""
    errors: list[BarnabasError] = field(factory=list)


class BrokerRegistrar:
    """Keeps the nodes of one broker standing. Owner thread only.

    broker_id:      for the text of errors.
    ids:            made first; topics wait for them.
    predecessor_ms: how long to wait for the end of the session of a broker that died in our place.
    ready:          called once, when all that was wanted before stands; not when `begin` says so itself.
    failed:         called once, when there is no hope: the id is another broker's. The registrar does nothing then.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        coordination: Coordination,
        *,
        broker_id: int,
        ids: Iterable[IdNode],
        predecessor_ms: float,
        report: Callable[[str], None],
        ready: Callable[[], None],
        failed: Callable[[BarnabasError], None],
    ) -> None:
        self._scheduler = scheduler
        self._coordination = coordination
        self._broker_id = broker_id
        self._ids = {node.path: node for node in ids}
        self._predecessor_ms = predecessor_ms
        self._report = report
        self._ready = ready
        self._failed = failed
        self._wanted: dict[str, bytes] = {}
        self._present: dict[str, bytes] = {}
        """The nodes that were made in this session."""
        self._taken: set[str] = set()
        self._session = 0
        self._is_ready = False
        self._busy = False
        self._closed = False
        self._back_off_ms = BACK_OFF_MS
        self._has_reported = False
        self._timer: Timer | None = None
        self._giving_up: Timer | None = None
        self._patience_over = False
        self._listening: Cancel | None = None

    @property
    def is_ready(self) -> bool:
        """True once everything stood; it stays so when the session is lost."""
        return self._is_ready

    def want(self, topic: str, partitions: int) -> None:
        """Show a topic of this broker with its number of partitions, from now on."""
        path = layout.topic_broker_path(topic, self._broker_id)
        self._wanted[path] = layout.encode_number(partitions)
        self._step()

    def forget(self, topic: str) -> None:
        """Remove the node of a topic that the broker no longer has."""
        if self._wanted.pop(layout.topic_broker_path(topic, self._broker_id), None) is not None:
            self._step()

    def register(self) -> bool:
        """Register here and now, which may block. False: a predecessor's session must end first; `ready` follows.

        Raises `ApiError(DUPLICATE_BROKER_REGISTRATION)`, what the `clash` of a node makes, and `CoordinationError`.
        """
        self._listening = self._coordination.add_session_listener(self._session_changed)
        self._busy = True
        applied = _apply(self._coordination, self._changes())
        self._busy = False
        self._note(applied)
        if applied.errors:
            error = applied.errors[0]
            if not isinstance(error, NodeTaken):
                raise error
            if not self._is_predecessor(error):
                raise self._clash(error)
            self._wait_for_predecessor(error)
            return False
        self._is_ready = True
        self._reset_back_off()
        return True

    def close(self) -> None:
        """Stop registering. The nodes go with the session. Twice is harmless."""
        self._closed = True
        for timer in (self._timer, self._giving_up):
            if timer is not None:
                timer.cancel()
        if self._listening is not None:
            self._listening()
            self._listening = None

    # --- the session

    def _session_changed(self, state: SessionState) -> None:
        """Take a session state, from a thread of the coordination."""
        with suppress(ClosedError):  # the broker has stopped
            self._scheduler.call_soon(lambda: self._in_session(state))

    def _in_session(self, state: SessionState) -> None:
        if self._closed or state is SessionState.SUSPENDED:
            return
        if state is SessionState.EXPIRED:
            self._session += 1
            self._present.clear()
            self._taken.clear()
            self._report(f"the coordination session of broker {self._broker_id} expired; registering it again")
        self._step_now()

    # --- what is to be done

    def _changes(self) -> _Changes:
        present = self._present
        topics = {
            path: data for path, data in self._wanted.items() if present.get(path) != data and path not in self._taken
        }
        return _Changes(
            ids={path: node.data for path, node in self._ids.items() if path not in present},
            topics=topics,
            replaced=frozenset(topics.keys() & present.keys()),
            removed=[path for path in present if path not in self._wanted and path not in self._ids],
        )

    def _step(self) -> None:
        if self._busy or self._closed or self._timer is not None or self._listening is None:
            return
        changes = self._changes()
        if not changes:
            return
        self._busy = True
        session, coordination = self._session, self._coordination
        run(
            self._scheduler,
            coordination,
            lambda: _apply(coordination, changes),
            lambda outcome: self._applied(session, outcome),
        )

    def _step_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._step()

    def _step_later(self, delay_ms: float) -> None:
        if self._timer is None:
            self._timer = self._scheduler.call_later(delay_ms, self._step_now)

    # --- what came of it

    def _applied(self, session: int, outcome: Outcome[_Applied]) -> None:
        self._busy = False
        if self._closed:
            return
        if session != self._session:
            self._step_now()  # what was made may have gone with the session before
            return
        try:
            applied = outcome.get()
        except Exception as error:  # noqa: BLE001  reported, and tried again
            self._retry(error)
            return
        self._note(applied)
        if applied.errors:
            self._deal_with(applied.errors[0])
            return
        self._reset_back_off()
        if not self._is_ready:
            self._is_ready = True
            self._ready()
        self._step()

    def _note(self, applied: _Applied) -> None:
        self._present.update(applied.made)
        for path in applied.removed:
            self._present.pop(path, None)
        if applied.taken:
            self._taken.update(applied.taken)
            for error in applied.taken.values():
                self._report(f"broker {self._broker_id} cannot show a topic in the registry: {error}")
            self._scheduler.call_later(TAKEN_AGAIN_MS, self._try_taken_again)

    def _try_taken_again(self) -> None:
        self._taken.clear()
        self._step()

    def _reset_back_off(self) -> None:
        """Reset the back-off, since everything has worked."""
        self._back_off_ms = BACK_OFF_MS
        self._has_reported = False
        self._patience_over = False
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _deal_with(self, error: BarnabasError) -> None:
        if not isinstance(error, NodeTaken):
            self._retry(error)
        elif self._is_predecessor(error):
            self._wait_for_predecessor(error)
        else:
            self._fail(self._clash(error))

    def _retry(self, error: BaseException) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._report(f"broker {self._broker_id} cannot be registered; retrying: {error}")
        self._step_later(self._back_off_ms)
        self._back_off_ms = min(BACK_OFF_MAX_MS, self._back_off_ms * 2)

    def _is_predecessor(self, taken: NodeTaken) -> bool:
        return self._ids[taken.path].is_our_place(taken.content)

    def _wait_for_predecessor(self, taken: NodeTaken) -> None:
        if self._patience_over:
            text = f"{taken.path} says {_shown(taken.content)} and does not go away; is another broker running there?"
            self._fail(ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text))
            return
        if self._giving_up is None:
            self._report(f"{taken.path} is left from a broker that died here; waiting for the end of its session")
            self._giving_up = self._scheduler.call_later(self._predecessor_ms, self._lose_patience)
        self._step_later(LOOK_AGAIN_MS)

    def _lose_patience(self) -> None:
        self._patience_over = True

    def _clash(self, taken: NodeTaken) -> BarnabasError:
        clash = self._ids[taken.path].clash
        if clash is not None:
            return clash(taken.content)
        text = (
            f"broker.id {self._broker_id} is taken: {taken.path} says {_shown(taken.content)}; "
            "give this broker another broker.id, or stop the other one"
        )
        return ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)

    def _fail(self, error: BarnabasError) -> None:
        self.close()
        self._failed(error)


def _apply(coordination: Coordination, changes: _Changes) -> _Applied:
    """Runs where it may block: nothing of the registrar is touched."""
    applied = _Applied()
    try:
        for path, data in changes.ids.items():
            create_ephemeral(coordination, path, data)
            applied.made[path] = data
        for path in changes.removed:
            with suppress(NoNode):
                coordination.delete(path)
            applied.removed.add(path)
        for path, data in changes.topics.items():
            _show_topic(coordination, path, data, applied, ours=path in changes.replaced)
    except (CoordinationError, ClosedError) as error:
        applied.errors.append(error)
    return applied


def _show_topic(coordination: Coordination, path: str, data: bytes, applied: _Applied, *, ours: bool) -> None:
    if ours:
        with suppress(NoNode):
            coordination.set(path, data)
            applied.made[path] = data
            return
    try:
        create_ephemeral(coordination, path, data)
    except NodeTaken as error:
        applied.taken[path] = error
    else:
        applied.made[path] = data


def _shown(content: bytes) -> str:
    return repr(content[:200].decode(errors="replace"))
