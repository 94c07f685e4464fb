"""The start of an etcd member without data: it founds the cluster or joins as a new member, never as an old one.

What a member of Raft has acknowledged is in its log. One that has lost its log and votes under its old id may elect a
leader without an entry that a majority once had. So no member starts without data under an id that it may have had.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any
from uuid import uuid4

from ...core.tree.service_url import Endpoint
from ...ports.coordination import CoordinationError
from ...ports.report import Report
from ...ports.values import frozen
from .link import OUTCOME, Link

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
    """True if a member has its log, with its id and what it has acknowledged."""
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
        self, own: Endpoint, members: Mapping[Endpoint, Endpoint], address: str, data: Path, report: Report
    ) -> None:
        """`members`: where clients reach each member → where the other members do."""
        self._own = own
        self._members = members
        self._address = address
        self._data = data
        self._report = report
        self._others = sorted((each for each in members if each != own), key=str)
        self._names = sorted(map(str, members))

    def find_entrance(self, until_s: float, stopping: Event) -> Entrance:
        """Raises `CoordinationError` when there is none in time."""
        with closing(_Sign(self._address, self._own.port, self._members[self._own].port, self._names)):
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
        own_url = f"http://{self._members[self._own]}"
        with closing(Link(other)) as link:
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
        """True if another member says that it has no data. Raises `CoordinationError` if it names other servers."""
        peer = self._members[other]
        with closing(HTTPConnection(peer.host, peer.port, timeout=ANSWER_S)) as connection:
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

    def __init__(self, address: str, client_port: int, peer_port: int, names: Sequence[str]) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._client = socket.socket(family)
        try:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._client.bind((address, client_port))
            self._server = _server(family, (address, peer_port), json.dumps({"members": names}).encode())
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
    return own_name if own_url in member.peerURLs else str(member.name or member.peerURLs[0].removeprefix("http://"))


def _endpoint_of(url: str) -> Endpoint:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return Endpoint(host=host.strip("[]"), port=int(port))
