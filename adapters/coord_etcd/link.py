"""A connection to one etcd server. gRPC's exceptions end here."""

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic
from typing import Any

import grpc
from aetcd import rpc

from ...core.tree.service_url import Endpoint
from ...ports.coordination import CoordinationError, SessionExpired
from .security import EtcdSecurity, Login, call_with_token

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # the children of a large tree
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel inherits the pause after another one's failure
    ("grpc.enable_http_proxy", 0),
]
_Metadata = tuple[tuple[str, str], ...]
_HAS_LEADER: _Metadata = (("hasleader", "true"),)
"""A member that lost its quorum ends such a stream, instead of staying silent."""
_FIRST_KEY = b"\0"
_OPEN = EtcdSecurity()
_SESSION = "the session"
OUTCOME = "; whether the service has done it is not known"


class NoAnswer(CoordinationError):
    """A call took longer than it may; the server may stand still, or be cut off."""


def to_coordination_error(error: Exception, what: str, endpoint: Endpoint) -> CoordinationError:
    """Return the port's error for a failed call."""
    if not isinstance(error, grpc.Call):
        return CoordinationError(f"{what}: lost the connection to etcd at {endpoint}{OUTCOME}")
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.NOT_FOUND and "lease" in details:
        return SessionExpired(f"{what}: the session with etcd at {endpoint} expired")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return NoAnswer(f"{what}: no answer from etcd at {endpoint} in time{OUTCOME}")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return CoordinationError(f"{what}: etcd at {endpoint} cannot be reached ({details}){OUTCOME}")
    return CoordinationError(f"{what}: etcd at {endpoint} refused: {code.name} {details}")


class Link:
    """Calls with a deadline. Every method raises `CoordinationError`; any thread may call."""

    def __init__(self, endpoint: Endpoint, security: EtcdSecurity = _OPEN, own_key: bytes = _FIRST_KEY) -> None:
        """`own_key`: a key that the user may read, whether it exists or not. Raises `CoordinationError`."""
        self.endpoint = endpoint
        self._channel = security.open_channel(endpoint, _OPTIONS)
        self._linearizable_read = rpc.RangeRequest(key=own_key, count_only=True)
        self._login: Login | None = None
        if security.user and security.password is not None:
            self._login = Login(self._channel, endpoint, security.user, security.password)
        self._kv = rpc.KVStub(self._channel)
        self._lease = rpc.LeaseStub(self._channel)
        self._watch = rpc.WatchStub(self._channel)
        self._maintenance = rpc.MaintenanceStub(self._channel)
        self._cluster = rpc.ClusterStub(self._channel)

    def transact(self, path: str, request: Any, timeout_s: float) -> Any:
        return self._call(path, self._kv.Txn, request, timeout_s)

    def range(self, path: str, request: Any, timeout_s: float) -> list[Any]:
        """Return the KeyValues of a linearizable read."""
        return list(self._call(path, self._kv.Range, request, timeout_s).kvs)

    def grant(self, ttl_s: int, timeout_s: float) -> Any:
        """Return a new lease; the answer has its `ID` and the `TTL` in seconds that the service gave."""
        return self._call("a new session", self._lease.LeaseGrant, rpc.LeaseGrantRequest(TTL=ttl_s), timeout_s)

    def keep_alive(self, lease: int, timeout_s: float) -> int:
        """Renew a lease; the seconds that it has from the beginning of this call, 0 or less when it is gone.

        Before etcd 3.5.10 a leader that hangs in fdatasync answers keep-alives for as long as it hangs, while another
        one leads and ends the lease (etcd issue 15247). So a linearizable read comes after the keep-alive: it needs
        a quorum that follows the leader. If the term of the last applied entry is the same in both answers, the
        leader of that read is the one that has renewed the lease, and it led when it did.
        """
        until_s = monotonic() + timeout_s
        while True:
            request = rpc.LeaseKeepAliveRequest(ID=lease)
            answers = self._call(_SESSION, self._keep_alive, request, max(0.0, until_s - monotonic()))
            if not answers:
                raise CoordinationError(f"etcd at {self.endpoint} does not keep the session alive")
            ttl_s = int(answers[0].TTL)
            if ttl_s <= 0:
                return ttl_s
            left_s = max(0.0, until_s - monotonic())
            confirmed = self._call(_SESSION, self._kv.Range, self._linearizable_read, left_s)
            if confirmed.header.raft_term == answers[0].header.raft_term:
                return ttl_s

    def revoke(self, lease: int, timeout_s: float) -> None:
        """End the lease and remove its keys."""
        self._call("the end of the session", self._lease.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease), timeout_s)

    def watch(
        self, first: bytes, end: bytes, changed: Callable[[Any], None], lost: Callable[[], None], timeout_s: float
    ) -> "WatchStream":
        """Watch a range. The user's token counts at the beginning only; `timeout_s` bounds a request for it."""
        request = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=first, range_end=end))
        metadata = _HAS_LEADER
        if self._login is not None:
            metadata = (*metadata, ("token", self._token("the watch", self._login, timeout_s)))
        return WatchStream(self._watch, request, self.endpoint, changed, lost, metadata)

    def status(self, timeout_s: float) -> Any:
        """Return what the server reports of itself: `leader` (0: no majority), `isLearner`, `header.member_id`."""
        return self._call("the status", self._maintenance.Status, rpc.StatusRequest(), timeout_s)

    def members(self, timeout_s: float) -> list[Any]:
        """Return the members of the cluster, as a majority of it knows them."""
        request = rpc.MemberListRequest(linearizable=True)
        return list(self._call("the members", self._cluster.MemberList, request, timeout_s).members)

    def remove_member(self, member_id: int, timeout_s: float) -> None:
        request = rpc.MemberRemoveRequest(ID=member_id)
        self._call("the removal of a member", self._cluster.MemberRemove, request, timeout_s)

    def add_learner(self, peer_url: str, timeout_s: float) -> list[Any]:
        """Add a member with a new id that has no vote yet; returns all members."""
        request = rpc.MemberAddRequest(peerURLs=[peer_url], isLearner=True)
        return list(self._call("a new member", self._cluster.MemberAdd, request, timeout_s).members)

    def promote_member(self, member_id: int, timeout_s: float) -> None:
        """Give a learner its vote; refused before it has about all data."""
        request = rpc.MemberPromoteRequest(ID=member_id)
        self._call("the vote of a new member", self._cluster.MemberPromote, request, timeout_s)

    def close(self) -> None:
        """Calls in flight fail."""
        self._channel.close()

    def _keep_alive(self, request: Any, *, timeout: float, metadata: _Metadata = ()) -> list[Any]:
        return list(self._lease.LeaseKeepAlive(iter([request]), timeout=timeout, metadata=metadata))

    def _token(self, what: str, login: Login, timeout_s: float) -> str:
        try:
            return login.token(timeout_s)
        except (grpc.RpcError, ValueError) as error:
            raise to_coordination_error(error, what, self.endpoint) from error

    def _call(self, what: str, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
        try:
            if self._login is not None:
                return call_with_token(self._login, method, request, timeout_s)
            return method(request, timeout=timeout_s)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            raise to_coordination_error(error, what, self.endpoint) from error


class WatchStream:
    """The events of a range from `wait_ready` on: each list goes to `changed`, on a thread of the stream.

    When it ends, `error` says why and `lost` is called.
    """

    def __init__(
        self,
        stub: Any,
        request: Any,
        endpoint: Endpoint,
        changed: Callable[[Any], None],
        lost: Callable[[], None],
        metadata: _Metadata,
    ) -> None:
        self.error: CoordinationError | None = None
        self._endpoint = endpoint
        self._changed = changed
        self._lost = lost
        self._ready = Event()
        try:
            # The stream of requests ends after the first one; the stream of events stays open.
            self._call = stub.Watch(iter([request]), metadata=metadata)
        except (grpc.RpcError, ValueError) as error:
            raise to_coordination_error(error, "the watch", endpoint) from error
        self._thread = Thread(target=self._run, name="coordination-watch", daemon=True)
        self._thread.start()

    def wait_ready(self, timeout_s: float) -> None:
        """Return once the service watches. Raises `CoordinationError`."""
        if not self._ready.wait(timeout_s):
            raise CoordinationError(f"etcd at {self._endpoint} does not watch in time")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self._call.cancel()
        self._thread.join()

    def _run(self) -> None:
        try:
            for answer in self._call:
                if answer.canceled:
                    raise CoordinationError(f"etcd at {self._endpoint} ended the watch: {answer.cancel_reason}")
                self._changed(answer.events)
                self._ready.set()
            raise CoordinationError(f"etcd at {self._endpoint} ended the watch")
        except CoordinationError as error:
            self.error = error
        except grpc.RpcError as error:
            self.error = to_coordination_error(error, "the watch", self._endpoint)
        finally:
            if self.error is None:  # an unexpected exception, which the thread raises
                self.error = CoordinationError(f"the watch of etcd at {self._endpoint} failed")
            self._ready.set()
            self._lost()
