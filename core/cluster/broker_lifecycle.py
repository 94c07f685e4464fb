"""A broker among others: its registration in the tree, a new one with each session (facts D1, KIP-966)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from attrs import evolve

from ...ports.coordination import BadVersion, Cancel, Coordination, NodeExists, NoNode, SessionState
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ClosedError
from ...ports.report import error, info
from ...ports.scheduler import Outcome, Scheduler, Timer
from ...ports.types import TopicPartition
from ...ports.values import frozen
from . import layout
from .brokers import (
    end_earlier_controller,
    last_registrations,
    next_broker_epoch,
    raise_broker_epoch,
    store_last_registration,
)
from .change_queue import ChangeQueue, elsewhere
from .lease import Lease
from .registry import CoordinationWentBack
from .topics import UNKNOWN_EPOCH, BrokerRegistration, LastRegistration, LifeNote, ReplicaId

RETRY_MS = 200.0
RETRY_MS_MAX = 5000.0
END_MS = 1000.0
"""The longest wait of a stopping broker until its end is noted, which makes a restored tree easier to notice."""


@frozen(kw_only=True)
class LastLife:
    """The broker's previous registration by its data folders: its epoch, and whether the shutdown was clean."""

    broker_epoch: int = UNKNOWN_EPOCH
    in_order: bool = False
    largest_epoch: int = UNKNOWN_EPOCH
    """The largest epoch that any data folder notes, also where they do not agree."""
    seen: tuple[LastRegistration, ...] = ()
    """The registrations that the tree had; empty where an earlier version has written the note."""


class BrokerIdTaken(BarnabasError):
    """Another broker is registered under this number."""


class _Predecessor(BarnabasError):
    """A broker that died in this one's place is registered still."""


class BrokerLifecycleManager:
    """Keeps one broker registered, and finds out whether the tree was restored from a backup. Owner thread only.

    The tree has a persistent node for each broker with its last registration. A broker writes its own before it notes
    the epoch in its data folders, and notes those of others that it has seen there. So a tree that has an earlier one
    than the note, or none, is older than the note, whichever brokers have registered since it was restored.

    own:             the registration without epochs.
    last:            of the process before this one.
    note:            writes a new epoch into the data folders before any other broker can know it, and what this one
                     sees of registrations; may block.
    distrust:        notes in the data folders that what the tree says of the partitions here is not to be trusted; may
                     block.
    registered:      called with each registration: from now on the broker may lead.
    lost:            called when a session has ended: the broker leads nothing until it is registered again.
    failed:          called once, when its id belongs to another broker. The manager does nothing afterwards.
    predecessor_ms:  how long to wait for the end of the session of a broker that died in this one's place, and of
                     which the data folders know nothing.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        coordination: Coordination,
        queue: ChangeQueue,
        lease: Lease,
        *,
        own: BrokerRegistration,
        last: LastLife,
        note: Callable[[LifeNote], None],
        distrust: Callable[[], None],
        registered: Callable[[BrokerRegistration], None],
        lost: Callable[[], None],
        failed: Callable[[BarnabasError], None],
        predecessor_ms: float,
        report: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._coordination = coordination
        self._queue = queue
        self._lease = lease
        self._own = own
        self._last = last
        self._note = note
        self._distrust = distrust
        self._registered = registered
        self._lost = lost
        self._failed = failed
        self._predecessor_ms = predecessor_ms
        self._report = report
        self._session = 0
        self._tried: dict[int, int] = {}
        """Broker epochs of registrations that may be stored though no answer came, each with the session it was in."""
        self._is_busy = self._is_updating = self._is_closed = self._has_registered = False
        self.went_back = False
        """True if the coordination service had forgotten registrations when this broker registered."""
        self._seen = {each.broker_id: each for each in last.seen}
        """The registrations that the tree had, as the data folders note them."""
        self._is_seeing = False
        self._retry_ms = RETRY_MS
        self._waited_ms = 0.0
        self._has_reported = False
        self._timer: Timer | None = None
        self._listening: Cancel | None = None
        self.registration: BrokerRegistration | None = None
        """The registration in the tree; None while there is none."""

    def start(self) -> None:
        """Register as soon as possible."""
        self._listening = self._coordination.add_session_listener(self._session_changed)
        self._lease.start_renewing()
        self._register()

    def close(self) -> None:
        """Stop registering. The node ends with the session. A second call is a no-op."""
        self._is_closed = True
        self._lease.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._listening is not None:
            self._listening()
            self._listening = None

    def update_registration(
        self,
        *,
        leaving: bool = False,
        offline: Iterable[TopicPartition] = (),
        gone: Iterable[TopicPartition] = (),
        cordoned: bool | None = None,
    ) -> None:
        """Add to the registration that the broker is about to stop, that it gets no new
        replicas, or which logs here are out of use; of those that are `gone` it says nothing more: they may come
        again."""
        out_of_use = (self._own.offline | frozenset(offline)) - frozenset(gone)
        if gone and out_of_use == self._own.offline:
            return
        if cordoned is not None and cordoned == self._own.cordoned:
            return
        self._own = evolve(
            self._own,
            leaving=self._own.leaving or leaving,
            offline=out_of_use,
            cordoned=self._own.cordoned if cordoned is None else cordoned,
        )
        if self.registration is not None and not self._is_updating:
            self._is_updating = True
            self._queue.run(self._updating, self._on_updated)

    async def _updating(self) -> None:
        self._is_updating = False
        present = self.registration
        if present is None:
            return  # the next registration says it
        path = layout.broker_path(present.broker_id)
        own = self._own
        updated = evolve(present, leaving=own.leaving, offline=own.offline, cordoned=own.cordoned)
        await elsewhere(partial(self._coordination.set, path, layout.encode_broker(updated)))
        if self.registration is present:
            self.registration = updated

    def _on_updated(self, outcome: Outcome[None]) -> None:
        failure = outcome.error
        if failure is not None and not isinstance(failure, NoNode | ClosedError) and not self._is_closed:
            self._report(f"updating the registration of broker {self._own.broker_id} failed, retrying: {failure}")
            self._timer = self._scheduler.call_later(RETRY_MS_MAX, self.update_registration)

    # --- the session

    def _session_changed(self, state: SessionState) -> None:
        """From a thread of the coordination."""
        with suppress(ClosedError):  # the broker has stopped
            self._scheduler.call_soon(lambda: self._in_session(state))

    def _in_session(self, state: SessionState) -> None:
        if self._is_closed or state is SessionState.SUSPENDED:
            return
        if state is SessionState.EXPIRED:
            self._session += 1
            self._lease.revoke()
            if self.registration is not None:
                self._report(f"the coordination session of broker {self._own.broker_id} expired; registering it again")
                self.registration = None
                self._lost()
        self._register()

    # --- registering

    def _register(self) -> None:
        if self.registration is not None or self._is_busy or self._is_closed:
            return
        self._is_busy = True
        self._queue.run(partial(self._registering, self._session), self._registered_or_not)

    async def _registering(self, session: int) -> tuple[int, BrokerRegistration]:
        standing = await elsewhere(partial(self._stored_before, session)) if self._tried else None
        if standing is not None:
            return session, standing
        epoch = await elsewhere(partial(next_broker_epoch, self._coordination))
        # Read after a write of this session: what the service answers is not older than that.
        asked = sorted({self._own.broker_id, *self._seen})
        stored = await elsewhere(partial(last_registrations, self._coordination, asked))
        last = stored.get(self._own.broker_id)
        floor = max(self._last.broker_epoch, self._last.largest_epoch, *self._tried, UNKNOWN_EPOCH)
        if self._is_restored(epoch, floor, stored):
            await elsewhere(self._distrust)  # before the tree no longer shows that
            self.went_back = True
            self._seen.clear()
        floor = max(floor, UNKNOWN_EPOCH if last is None else last.broker_epoch)
        if epoch <= floor:
            epoch = await elsewhere(partial(raise_broker_epoch, self._coordination, floor))
        is_known = self._last.in_order and not self.went_back
        previous = self._last.broker_epoch if is_known else UNKNOWN_EPOCH
        wanted = evolve(self._own, broker_epoch=epoch, previous_epoch=previous)
        await self._note_seen(LastRegistration(self._own.broker_id, epoch), epoch)
        self._tried[epoch] = session
        await elsewhere(partial(self._take_place, wanted, frozenset({self._last.broker_epoch, *self._tried})))
        return session, wanted

    def _is_restored(self, epoch: int, floor: int, stored: Mapping[int, LastRegistration]) -> bool:
        """Return True if the tree, which gave this broker `epoch` and has `stored`, is older than what is noted of it.

        A process that has registered before knows topics and states that the tree has forgotten. Only a new one goes by
        what the tree says now.
        """
        own = self._own.broker_id
        if epoch <= floor:
            text = f"the coordination service counts broker epochs from {epoch}, but broker {own} has had {floor}"
        elif earlier := [each for each in self._seen.values() if _is_older(stored.get(each.broker_id), each)]:
            was, now = earlier[0], stored.get(earlier[0].broker_id)
            has = "no registration" if now is None else f"{_described(now)} as the last registration"
            text = f"the coordination service has {has} of broker {was.broker_id}, but had {_described(was)}"
        else:
            return False
        text += ": it was restored from a backup, or has lost its data"
        if self._has_registered:
            raise CoordinationWentBack(
                f"{text}. Start this broker again, so that it reads the coordination tree afresh"
            )
        self._report(
            error(
                f"{text}. Partitions of this broker get a leader when all their replicas have claimed what is in their"
                " logs: start all brokers. Topics, configurations and reassignments of after the backup are lost; check"
                " them"
            )
        )
        return True

    async def _note_seen(self, seen: LastRegistration, own_epoch: int) -> None:
        """Let the tree say this of this broker first, if it is its own; then note that it has said so."""
        if seen.broker_id == self._own.broker_id:
            await elsewhere(partial(store_last_registration, self._coordination, seen))
        self._seen[seen.broker_id] = seen
        latest = max(self._seen.values(), key=lambda each: each.progress)
        self._seen = {
            each: self._seen[each] for each in sorted({self._own.broker_id, latest.broker_id} & {*self._seen})
        }
        note = LifeNote(broker_epoch=own_epoch, seen=tuple(self._seen.values()))
        await elsewhere(partial(self._note, note))

    def see(self, brokers: Iterable[BrokerRegistration]) -> None:
        """Note the latest of these registrations, as the tree has it, if it is later than all before."""
        latest = max((each.broker_epoch for each in brokers), default=UNKNOWN_EPOCH)
        known = max((each.broker_epoch for each in self._seen.values()), default=UNKNOWN_EPOCH)
        if latest <= known or self._is_seeing or self.registration is None:
            return
        found = max(brokers, key=lambda each: each.broker_epoch)
        self._is_seeing = True
        self._queue.run(partial(self._see_one, found.broker_id), self._has_seen)

    async def _see_one(self, broker_id: int) -> None:
        self._is_seeing = False
        present = self.registration
        found = await elsewhere(partial(last_registrations, self._coordination, [broker_id]))
        if present is not None and broker_id in found:  # a broker of an earlier version writes none
            await self._note_seen(found[broker_id], present.broker_epoch)

    def _has_seen(self, outcome: Outcome[None]) -> None:
        """Nothing is tried again: the next registration is seen, too."""
        if outcome.error is not None and not isinstance(outcome.error, BarnabasError):
            raise outcome.error

    def end(self, done: Callable[[], None]) -> None:
        """Note that the broker ends its registration in order, then call `done`: in a moment in any case. A tree that
        knows nothing of it is older than this stop."""
        present, is_over = self.registration, False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                done()

        async def ending() -> None:
            if present is not None and present is self.registration:
                ended = LastRegistration(present.broker_id, present.broker_epoch, ended=True)
                await self._note_seen(ended, present.broker_epoch)

        if present is None:
            over()
            return
        self._queue.run(ending, lambda _: over())
        self._scheduler.call_later(END_MS, over)

    def _stored_before(self, session: int) -> BrokerRegistration | None:
        """Return the registration that an earlier try of this session has stored, though its answer was lost."""
        with suppress(NoNode):
            node = self._coordination.get(layout.broker_path(self._own.broker_id))
            found = _decoded(self._own.broker_id, node.data)
            if found is not None and self._tried.get(found.broker_epoch) == session:
                return found
        return None

    def _take_place(self, wanted: BrokerRegistration, own_epochs: Collection[int]) -> None:
        """Create the registration node, in place of one that this broker made before (`own_epochs`)."""
        path = layout.broker_path(wanted.broker_id)
        while True:
            try:
                self._coordination.create(path, layout.encode_broker(wanted), ephemeral=True)
                return
            except NodeExists:
                pass
            with suppress(NoNode, BadVersion):
                node = self._coordination.get(path)
                found = _decoded(wanted.broker_id, node.data)
                if found is not None and found.broker_epoch in own_epochs:
                    end_earlier_controller(self._coordination, ReplicaId(wanted.broker_id, wanted.broker_epoch))
                    self._coordination.delete(path, version=node.version)
                elif found is not None and found.endpoints == wanted.endpoints:
                    raise _Predecessor(f"{path} is of a broker at the same address")
                else:
                    where = "something else" if found is None else f"a broker at {', '.join(found.endpoints)}"
                    raise BrokerIdTaken(f"{path} is of {where}")

    def _registered_or_not(self, outcome: Outcome[tuple[int, BrokerRegistration]]) -> None:
        self._is_busy = False
        if self._is_closed:
            return
        failure = outcome.error
        if failure is None:
            session, registration = outcome.get()
            if session != self._session:
                self._last = LastLife(broker_epoch=registration.broker_epoch, in_order=self._last.in_order)
                self._register()
                return
            self._on_registered(registration)
        elif isinstance(failure, CoordinationWentBack):
            self._is_closed = True
            self._failed(failure)
        elif isinstance(failure, BrokerIdTaken) or (
            isinstance(failure, _Predecessor) and self._waited_ms > self._predecessor_ms
        ):
            self._is_closed = True
            text = f"broker {self._own.broker_id} is registered already: {failure}; give this one another broker.id"
            self._failed(ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text))
        else:
            self._try_again(failure)

    def _on_registered(self, registration: BrokerRegistration) -> None:
        self.registration = registration
        self._has_registered = True
        # A later session of this process loses nothing: what this life has, the next one has.
        self._last = LastLife(broker_epoch=registration.broker_epoch, in_order=True)
        self._tried.clear()
        self._retry_ms, self._waited_ms, self._has_reported = RETRY_MS, 0.0, False
        number, epoch = registration.broker_id, registration.broker_epoch
        self._report(info(f"broker {number} is registered, with the epoch {epoch}", broker=number, epoch=epoch))
        self._lease.grant()
        self._registered(registration)
        sent, own = registration, self._own
        if (sent.leaving, sent.offline, sent.cordoned) != (own.leaving, own.offline, own.cordoned):
            self.update_registration()  # it has changed since this registration was sent

    def _try_again(self, failure: BaseException) -> None:
        is_predecessor = isinstance(failure, _Predecessor)
        if not self._has_reported:
            self._has_reported = True
            if is_predecessor:
                self._report(info(f"broker {self._own.broker_id} waits for the end of another session: {failure}"))
            elif not isinstance(failure, ClosedError):
                text = f"registering broker {self._own.broker_id} failed, it is tried again"
                self._report(f"{text}: {type(failure).__name__}: {failure}")
        self._waited_ms += self._retry_ms if is_predecessor else 0.0
        self._timer = self._scheduler.call_later(self._retry_ms, self._register)
        if not is_predecessor:
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)


def _is_older(stored: LastRegistration | None, noted: LastRegistration) -> bool:
    return stored is None or stored.progress < noted.progress


def _described(last: LastRegistration) -> str:
    return f"the epoch {last.broker_epoch}{', which has ended,' if last.ended else ''}"


def _decoded(broker_id: int, data: bytes) -> BrokerRegistration | None:
    try:
        return layout.decode_broker(str(broker_id), data)
    except ValueError:
        return None
