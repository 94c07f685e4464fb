"""The session: a lease that is kept alive, and a watch of the whole tree, over whichever server answers."""

from collections.abc import Callable
from itertools import cycle
from math import ceil
from threading import Event, Thread
from typing import Any, TypeVar

from ...core.tree.service_url import ServiceUrl
from ...ports.coordination import CoordinationError, SessionExpired, SessionState
from ...ports.report import Report
from ..repeated_failure import RepeatedFailure
from ..session_heartbeat import SessionHeartbeat
from ..watch_delivery import WatchDelivery
from .link import OUTCOME, Link, NoAnswer
from .security import EtcdSecurity, LoginRefused
from .tree_requests import KeySpace, touched_nodes

RECONNECT_PAUSE_S = 0.2
REQUEST_TIMEOUT_MIN_S = 0.5
SHORT_PATIENCE_S = 1.0
"""The longest wait for the first answer of the next server as the session runs out, and for the last one of a stop."""
T = TypeVar("T")


class SessionKeeper:
    """Runs in a thread of its own, and passes changes and session states to `delivery`.

    After a new connection every watch is called, once later changes arrive, so none in between is missed.
    """

    def __init__(
        self,
        where: ServiceUrl,
        keys: KeySpace,
        session_timeout_ms: int,
        delivery: WatchDelivery,
        report: Report,
        security: EtcdSecurity,
    ) -> None:
        self._where = where
        self._security = security
        self._refusal: LoginRefused | None = None
        self._keys = keys
        self._delivery = delivery
        self._failure = RepeatedFailure(report)
        self._ttl_s = max(1, ceil(session_timeout_ms / 1000))
        self._heartbeat = SessionHeartbeat(self._ttl_s * 1000)
        self._link: Link | None = None
        self._lease: int | None = None
        self._owes_expiry = False
        self._wake = Event()
        self._ready = Event()
        self._closing = Event()
        self._why = "no server was asked yet"
        self._thread = Thread(target=self._run, name="coordination-session", daemon=True)

    def start(self, timeout_ms: int) -> None:
        """Return with a session. Raises `CoordinationError`, then nothing is left running."""
        self._thread.start()
        is_settled = self._ready.wait(timeout_ms / 1000)
        if self._refusal is not None:
            self.close()
            raise self._refusal
        if not is_settled:
            self.close()
            servers = self._where.servers
            raise CoordinationError(f"no etcd answers at {servers} within {timeout_ms} ms; last: {self._why}")

    def ask(self, request: Callable[[Link, float], T]) -> T:
        """Make a request, given the server and the seconds that it may take; one that stands still is left.

        A write that is on its way when etcd's leader dies is answered by no one for 7 s, and done by none: it is better
        asked again.
        """
        link = self.link()
        try:
            return request(link, max(REQUEST_TIMEOUT_MIN_S, self._ttl_s / 3))
        except NoAnswer:
            link.close()  # other calls on it fail, too, and the keeper connects to another server
            raise

    @property
    def lease(self) -> int:
        """The current lease, for a new ephemeral node."""
        return self._lease or 0

    def link(self) -> Link:
        """The connection. Raises `CoordinationError` while there is none."""
        link = self._link
        if link is None:
            raise CoordinationError(f"not connected to etcd at {self._where.servers}; last: {self._why}")
        return link

    def heartbeat(self) -> float:
        """Renew the session as `Coordination.keep` promises."""
        self._heartbeat.beat()
        left_s = self.ask(lambda link, timeout_s: link.keep_alive(self.lease, timeout_s))
        if left_s <= 0:
            self.check_now()
        # Checked last: the lease after an expired one counts only once all listeners know of the expiration.
        if left_s <= 0 or self._owes_expiry or self._delivery.owes_an_end:
            raise SessionExpired(f"the session with etcd at {self._where.servers} expired")
        return left_s * 1000.0

    def check_now(self) -> None:
        """Something says that the lease is gone: look at once."""
        self._wake.set()

    def close(self) -> None:
        """End the session: its lease too, if a server can be reached."""
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        for endpoint in cycle(self._where.endpoints):
            if self._closing.is_set():
                return
            link: Link | None = None
            try:
                link = Link(endpoint, self._security, self._keys.below("")[0])
                self._serve(link)
            except CoordinationError as error:
                self._why = str(error)
                if isinstance(error, LoginRefused) and not self._ready.is_set():
                    self._refusal = error
                    self._ready.set()
                    return
            except Exception as error:  # noqa: BLE001  reported as the reason; without this thread no session comes back
                self._why = f"{endpoint}: {type(error).__name__}: {error}"
            else:
                continue  # it is closing
            finally:
                if self._link is not None:
                    self._link = None
                    self._delivery.touch_all(SessionState.SUSPENDED, watches=False)
                if link is not None:
                    link.close()
            if not self._closing.wait(RECONNECT_PAUSE_S):
                self._failure.failed(f"{self._why.removesuffix(OUTCOME)}; it is tried again")

    def _serve(self, link: Link) -> None:
        self._take_lease(link, min(SHORT_PATIENCE_S, self._ttl_s / 3))
        first, end = self._keys.below("")
        stream = link.watch(first, end, self._on_events, self._wake.set, self._ttl_s / 3)
        try:
            stream.wait_ready(self._ttl_s / 3)
            self._link = link
            self._failure.succeeded(f"connected to etcd at {link.endpoint}")
            self._pass_on_state()
            self._ready.set()
            while not self._closing.is_set():
                self._wake.wait(self._ttl_s / 3)
                self._wake.clear()
                if stream.error is not None:
                    raise stream.error
                if self._closing.is_set():
                    break
                self._take_lease(link, self._ttl_s / 3)
                if self._owes_expiry:
                    self._pass_on_state()
            link.revoke(self.lease, min(SHORT_PATIENCE_S, self._ttl_s / 3))
        finally:
            stream.close()

    def _take_lease(self, link: Link, patience_s: float) -> None:
        """Keep the lease alive, or take a new one; not for a user who hangs."""
        if self._lease is not None:
            if self._heartbeat.is_overdue:
                return
            if link.keep_alive(self._lease, patience_s) > 0:
                return
            self._owes_expiry = True
        self._lease = link.grant(self._ttl_s, self._ttl_s / 3).ID

    def _pass_on_state(self) -> None:
        """Pass on a new connection, or the loss of the lease since the last one that was passed on."""
        state = SessionState.EXPIRED if self._owes_expiry else SessionState.CONNECTED
        self._delivery.touch_all(state, watches=True)
        self._owes_expiry = False

    def _on_events(self, events: Any) -> None:
        self._delivery.touch(touched_nodes(self._keys, events))
