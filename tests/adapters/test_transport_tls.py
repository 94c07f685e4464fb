"""TCP with TLS fulfils the contract of a transport, and refuses what does not prove its identity."""

import datetime
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Timer

import pytest
import trustme
from attrs import evolve
from cryptography import x509
from support.certificates import authority, certificate, chain, client_settings, pem, server_settings, write_pem
from support.tcp_harness import TcpHarness
from support.waiting import PATIENCE_S

from barnabas.adapters.transport_tcp.tcp import TcpTransport
from barnabas.adapters.transport_tls import CertificateReloading, TlsServer, client_tls, server_tls
from barnabas.adapters.transport_tls.contexts import TlsSocket
from barnabas.core.security.ssl_settings import SslSettings
from barnabas.ports.errors import ConfigError
from barnabas.ports.transport import (
    Address,
    AuthenticationError,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    TransportError,
)
from barnabas.testing.contracts.transport import (
    LIMITS,
    RecordingHandler,
    ServerSide,
    TransportContract,
    echo,
    pair,
)

Outcome = Connection | TransportError


class TlsTransport:
    """Fulfils `Transport`: TLS on every connection of a TCP transport."""

    def __init__(self, inner: TcpTransport) -> None:
        self.inner = inner
        self.server: TlsServer | None = server_tls(server_settings())
        self.client: SslSettings | None = client_settings()

    @property
    def open_connections(self) -> int:
        return self.inner.open_connections

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: object = None,
    ) -> Listener:
        return self.inner.listen(address, accept, limits, self.server)

    def connect(
        self,
        address: Address,
        opened: Callable[[Outcome], ConnectionHandler | None],
        *,
        timeout_ms: float,
        limits: Limits,
        tls: object = None,
    ) -> None:
        mine = None if self.client is None else client_tls(self.client)
        self.inner.connect(address, opened, timeout_ms=timeout_ms, limits=limits, tls=mine)


class TlsHarness(TcpHarness):
    transport: TlsTransport  # type: ignore[assignment]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.transport = TlsTransport(TcpTransport(self.reactor, self.reports.append))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TlsHarness]:
    harness = TlsHarness(tmp_path)
    yield harness
    harness.close()


class TestTlsTransport(TransportContract):
    many_connections = 200
    """A handshake takes 3 ms of CPU time."""


@pytest.mark.slow
class TestTls12Transport(TransportContract):
    @pytest.fixture(autouse=True)
    def _tls12(self, harness: TlsHarness) -> None:
        harness.transport.server = server_tls(server_settings(enabled_protocols=("TLSv1.2",)))


def attempt(harness: TlsHarness, address: Address, timeout_ms: float = 5000) -> list[object]:
    """Connect, send a frame, and return what came of it: the answer, or the error."""
    results: list[object] = []

    class Client(RecordingHandler):
        def on_frame(self, content: memoryview) -> None:
            results.append(bytes(content))

        def on_closed(self, error: TransportError | None) -> None:
            super().on_closed(error)
            results.append(error)

    def opened(outcome: Outcome) -> ConnectionHandler | None:
        if isinstance(outcome, TransportError):
            results.append(outcome)
            return None
        outcome.send([b"hello"])
        return Client(outcome)

    harness.transport.connect(address, opened, timeout_ms=timeout_ms, limits=LIMITS)
    harness.run_until(lambda: bool(results))
    return results


def refused(harness: TlsHarness, server: ServerSide) -> str:
    """Return why the connection was refused; nothing was served, and a neighbour still is."""
    result = attempt(harness, server.listener.address)[0]
    assert isinstance(result, TransportError), result
    assert not [frame for handler in server.handlers for frame in handler.frames]
    return str(result)


def expired_certificate() -> trustme.LeafCert:
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    return authority().issue_cert("127.0.0.1", not_before=past, not_after=past + datetime.timedelta(days=1))


# --- who is who


def test_the_subject_of_the_client_is_known_with_mutual_tls(harness: TlsHarness) -> None:
    harness.transport.server = server_tls(server_settings("required"))
    harness.transport.client = client_settings(certificate("alice", common_name="alice"))
    client, server = pair(harness, echo)
    assert server.connection.peer_subject is not None
    assert server.connection.peer_subject.startswith("CN=alice,")
    assert client.connection.is_encrypted
    assert server.connection.is_encrypted


def test_requested_certificate_may_be_missing(harness: TlsHarness) -> None:
    harness.transport.server = server_tls(server_settings("requested"))
    _, server = pair(harness)
    assert server.connection.peer_subject is None


def test_required_certificate_missing_refuses_the_client(harness: TlsHarness) -> None:
    harness.transport.server = server_tls(server_settings("required"))
    server = ServerSide(harness, echo)
    assert "requires a client certificate" in refused(harness, server)
    assert "ssl.client.auth=required" in harness.reports[0]


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_foreign_client_certificate_is_refused(harness: TlsHarness, client_auth: str) -> None:
    harness.transport.server = server_tls(server_settings(client_auth))
    harness.transport.client = client_settings(certificate("mallory", of="foreign"))
    server = ServerSide(harness, echo)
    refused(harness, server)
    assert "the client's certificate is refused" in harness.reports[0] or "client's certificate" in " ".join(
        harness.reports
    )


def test_foreign_server_certificate_is_refused(harness: TlsHarness) -> None:
    server = ServerSide(harness, echo)
    harness.transport.client = client_settings(of="foreign")
    result = attempt(harness, server.listener.address)[0]
    assert isinstance(result, AuthenticationError)
    assert "ssl.truststore" in str(result)
    harness.run_until(lambda: bool(harness.reports))
    assert "does not trust the authority" in harness.reports[0]


def test_expired_server_certificate_is_refused(harness: TlsHarness) -> None:
    harness.transport.server = server_tls(server_settings(leaf=expired_certificate()))
    assert "expired" in refused(harness, ServerSide(harness, echo))


def test_certificate_for_another_host_is_refused_unless_allowed(harness: TlsHarness) -> None:
    harness.transport.server = server_tls(server_settings(leaf=certificate("elsewhere.example")))
    server = ServerSide(harness, echo)
    assert "127.0.0.1" in refused(harness, server)
    harness.transport.client = client_settings(endpoint_identification_algorithm="")
    assert attempt(harness, server.listener.address) == [b"hello"]


def test_unverified_client_accepts_every_certificate(harness: TlsHarness) -> None:
    harness.transport.client = SslSettings(verify_peer=False)
    assert attempt(harness, ServerSide(harness, echo).listener.address) == [b"hello"]


# --- protocols and cipher suites


def old_client(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_protocols_are_refused_and_neighbours_undisturbed(harness: TlsHarness, version: ssl.TLSVersion) -> None:
    client, _ = pair_of_held_listener(harness)
    address = client.connection.peer
    with socket.create_connection(address) as sock:
        sock.setblocking(False)
        with old_client(version).wrap_socket(sock, do_handshake_on_connect=False) as old:
            with pytest.raises(ssl.SSLWantReadError):
                old.do_handshake()
            harness.run_until(lambda: bool(harness.reports))
            with pytest.raises(OSError):
                old.do_handshake()
    assert "no TLS protocol in common" in harness.reports[0]
    client.connection.send([b"still here"])
    harness.run_until(lambda: bool(client.frames))


def test_common_protocol_is_the_newest_of_both(harness: TlsHarness) -> None:
    harness.transport.client = client_settings(enabled_protocols=("TLSv1.3",))
    harness.transport.server = server_tls(server_settings(enabled_protocols=("TLSv1.2",)))
    refused(harness, ServerSide(harness, echo))


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="the system delays acknowledgements as it likes")
def test_first_request_of_a_client_with_nagle_does_not_wait_for_a_delayed_acknowledgement(harness: TlsHarness) -> None:
    """A delayed one comes after 40 ms, at each of the connections."""
    address = ServerSide(harness, echo).listener.address

    def first_answer_s(_number: int) -> float:
        with (
            socket.create_connection(address) as sock,
            old_client(ssl.TLSVersion.TLSv1_3).wrap_socket(sock) as client,
        ):
            started = time.monotonic()
            client.sendall(struct.pack(">i", 5) + b"hello")
            assert client.recv(9)
            return time.monotonic() - started

    with ThreadPoolExecutor(1) as pool:
        taken = [pool.submit(first_answer_s, number) for number in range(20)]
        harness.run_until(lambda: all(each.done() for each in taken))
    assert min(each.result() for each in taken) < 0.035


def pair_of_held_listener(harness: TlsHarness) -> tuple[RecordingHandler, ServerSide]:
    server = ServerSide(harness, echo)
    result: list[RecordingHandler] = []

    def opened(outcome: Outcome) -> ConnectionHandler | None:
        assert not isinstance(outcome, TransportError), outcome
        result.append(RecordingHandler(outcome))
        return result[0]

    harness.transport.connect(server.listener.address, opened, timeout_ms=5000, limits=LIMITS)
    harness.run_until(lambda: bool(result))
    return result[0], server


# --- the other side speaks something else


class SlowTls:
    """The TLS of a listener whose handshakes compute until they are released."""

    handshake_timeout_ms = 10_000.0
    handshakes_max = 10

    def __init__(self) -> None:
        self.released = Event()
        self._tls = server_tls(server_settings())

    def wrap(self, sock: socket.socket, host: str) -> "SlowSocket":
        return SlowSocket(sock, self._tls._context, self.released)


class SlowSocket(TlsSocket):
    __slots__ = ("_released",)

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, released: Event) -> None:
        super().__init__(sock, context, server_hostname=None)
        self._released = released

    def compute_handshake(self) -> None:
        assert self._released.wait(PATIENCE_S)
        super().compute_handshake()


def test_handshake_that_computes_for_long_holds_up_no_other_connection(harness: TlsHarness) -> None:
    client, _ = pair(harness, echo)
    slow = SlowTls()
    harness.transport.server = slow  # type: ignore[assignment]
    server = ServerSide(harness, echo)
    waiting: list[Outcome] = []

    def opened(outcome: Outcome) -> ConnectionHandler | None:
        waiting.append(outcome)
        return None if isinstance(outcome, TransportError) else RecordingHandler(outcome)

    harness.transport.connect(server.listener.address, opened, timeout_ms=20_000, limits=LIMITS)
    for number in range(3):
        client.connection.send([b"%d" % number])
        harness.run_until(lambda number=number: len(client.frames) > number)  # type: ignore[misc]
    assert not waiting
    slow.released.set()
    harness.run_until(lambda: bool(waiting))
    assert not isinstance(waiting[0], TransportError)


def test_handshake_that_times_out_while_it_computes_is_closed_at_once(harness: TlsHarness) -> None:
    slow = SlowTls()
    slow.handshake_timeout_ms = 50
    harness.transport.server = slow  # type: ignore[assignment]
    server = ServerSide(harness, echo)
    assert isinstance(attempt(harness, server.listener.address, timeout_ms=20_000)[0], TransportError)
    assert "not complete within 50 ms" in harness.reports[0]
    slow.released.set()
    slow.handshake_timeout_ms = 10_000
    harness.transport.server = server_tls(server_settings())
    assert attempt(harness, ServerSide(harness, echo).listener.address) == [b"hello"]


def test_transport_that_stops_ends_handshakes_that_wait_for_their_turn(harness: TlsHarness) -> None:
    slow = SlowTls()
    harness.transport.server = slow  # type: ignore[assignment]
    server = ServerSide(harness, echo)
    for _ in range(3):
        harness.transport.connect(server.listener.address, lambda _: None, timeout_ms=20_000, limits=LIMITS)
    for _ in range(5):
        harness.reactor.turn(10)
    Timer(0.05, slow.released.set).start()
    harness.reactor.stop()
    assert not harness.transport.open_connections


def test_plain_client_at_a_tls_listener_gets_one_line_that_says_what_to_change(harness: TlsHarness) -> None:
    server = ServerSide(harness, echo)
    harness.transport.client = None
    result = attempt(harness, server.listener.address)[0]
    assert result is None or isinstance(result, TransportError)
    harness.run_until(lambda: bool(harness.reports))
    assert len(harness.reports) == 1
    assert "without TLS" in harness.reports[0]
    assert "security.protocol" in harness.reports[0]


def test_tls_client_at_a_plain_listener_gets_an_error_that_says_what_to_change(harness: TlsHarness) -> None:
    harness.transport.server = None
    server = ServerSide(harness, echo)
    result = attempt(harness, server.listener.address)[0]
    assert isinstance(result, TransportError)
    assert "TLS" in str(result)
    assert any("the other side speaks TLS" in line and "SSL" in line for line in harness.reports)


# --- slow, silent and oversize handshakes


def test_silent_client_is_closed_after_the_time_for_a_handshake(harness: TlsHarness) -> None:
    assert harness.transport.server is not None
    harness.transport.server.handshake_timeout_ms = 50
    server = ServerSide(harness, echo)
    with socket.create_connection(server.listener.address) as sock:
        sock.setblocking(False)
        harness.run_until(lambda: bool(harness.reports))
        assert sock.recv(10) == b""
    assert "not complete within 50 ms" in harness.reports[0]
    assert not server.handlers


def test_client_that_sends_its_handshake_byte_by_byte_is_closed_in_time(harness: TlsHarness) -> None:
    assert harness.transport.server is not None
    harness.transport.server.handshake_timeout_ms = 100
    server = ServerSide(harness, echo)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
    with socket.create_connection(server.listener.address) as sock:
        for byte in hello:
            sock.send(bytes([byte]))
            harness.reactor.turn(2)
            if harness.reports:
                break
        harness.run_until(lambda: bool(harness.reports))
    assert "TLS handshake" in harness.reports[0]


def test_oversize_handshake_is_refused_before_it_is_stored(harness: TlsHarness) -> None:
    server = ServerSide(harness, echo)
    with socket.create_connection(server.listener.address) as sock:
        message = b"\x01\xff\xff\xff" + bytes(16_000)
        sock.sendall(b"\x16\x03\x01" + struct.pack(">H", len(message)) + message)
        harness.run_until(lambda: bool(harness.reports))
    assert "TLS handshake" in harness.reports[0]
    assert attempt(harness, server.listener.address) == [b"hello"]


def test_many_silent_clients_cost_the_oldest_of_them_the_place(harness: TlsHarness) -> None:
    assert harness.transport.server is not None
    harness.transport.server.handshakes_max = 5
    server = ServerSide(harness, echo)
    silent = [socket.create_connection(server.listener.address) for _ in range(8)]
    try:
        assert attempt(harness, server.listener.address) == [b"hello"]
        assert any("more than 5 handshakes" in line for line in harness.reports)
    finally:
        for sock in silent:
            sock.close()


def test_peer_that_resets_during_the_handshake_costs_only_itself(harness: TlsHarness) -> None:
    server = ServerSide(harness, echo)
    for _ in range(5):
        sock = socket.create_connection(server.listener.address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.send(b"\x16\x03\x01\x02\x00\x01")
        sock.close()
        harness.reactor.turn(10)
    assert attempt(harness, server.listener.address) == [b"hello"]


def test_client_gives_up_on_a_silent_server(harness: TlsHarness) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        result = attempt(harness, silent.getsockname(), timeout_ms=80)[0]
    assert isinstance(result, TransportError)
    assert "80 ms" in str(result)


# --- what TLS has decrypted and the system does not report


def test_more_than_the_shared_buffer_is_delivered_without_another_event(harness: TlsHarness) -> None:
    client, server = pair(harness)
    server.connection.pause()
    for number in range(400):
        client.connection.send([bytes([number % 256]) * 1999])
    harness.pass_ms(50)
    server.connection.resume()
    harness.run_until(partial(lambda: len(server.frames) == 400))


def test_certificates_change_for_new_connections_only(harness: TlsHarness) -> None:
    client, server = pair_of_held_listener(harness)
    assert harness.transport.server is not None
    foreign = certificate("127.0.0.1", of="foreign")
    changed = server_settings(leaf=foreign)
    harness.transport.server.reload(changed)
    client.connection.send([b"old"])
    harness.run_until(lambda: client.frames == [b"old"])
    refused_now = attempt(harness, server.listener.address)[0]
    assert isinstance(refused_now, AuthenticationError)
    harness.transport.client = client_settings(of="foreign")
    assert attempt(harness, server.listener.address) == [b"hello"]


def test_bad_change_of_certificates_leaves_the_old_ones(harness: TlsHarness) -> None:
    tls = harness.transport.server
    assert tls is not None
    server = ServerSide(harness, echo)
    with pytest.raises(ConfigError, match="private key does not belong"):
        tls.reload(
            evolve(
                server_settings(),
                keystore_certificate_chain=server_settings(leaf=certificate("x")).keystore_certificate_chain,
            )
        )
    assert attempt(harness, server.listener.address) == [b"hello"]


# --- certificates that change


class Stores:
    """A listener whose certificate and trusted authorities are files."""

    def __init__(self, harness: TlsHarness, folder: Path, *, may_change: bool = False) -> None:
        self.folder = folder
        self.write(certificate("127.0.0.1", common_name="broker"))
        write_pem(folder, "ca.pem", pem(authority().cert_pem))
        settings = SslSettings(
            keystore_location=str(folder / "broker.pem"),
            truststore_location=str(folder / "ca.pem"),
            allow_dn_changes=may_change,
            allow_san_changes=may_change,
        )
        self.tls = harness.transport.server = server_tls(settings)
        self.reloading = CertificateReloading(harness.scheduler, harness.reports.append, check_ms=5)
        self.reloading.follow(self.tls, "listener SSL")

    def write(self, leaf: trustme.LeafCert) -> None:
        path = Path(write_pem(self.folder, "new.pem", pem(leaf.private_key_pem) + chain(leaf)))
        path.replace(self.folder / "broker.pem")


def renewed(*hosts: str, of: str = "test", common_name: str = "broker") -> trustme.LeafCert:
    """Another certificate with the same subject, if the names are the same."""
    old = certificate("127.0.0.1", common_name="broker")
    subject = x509.load_pem_x509_certificate(old.cert_chain_pems[0].bytes()).subject
    unit = subject.get_attributes_for_oid(x509.NameOID.ORGANIZATIONAL_UNIT_NAME)[0].value
    return authority(of).issue_cert(
        *hosts, common_name=common_name, organization_name="Barnabas", organization_unit_name=str(unit)
    )


def test_changed_file_is_used_for_new_connections_while_old_ones_continue(harness: TlsHarness, tmp_path: Path) -> None:
    stores = Stores(harness, tmp_path)
    client, server = pair_of_held_listener(harness)
    stores.write(renewed("127.0.0.1", "added.example"))
    harness.run_until(lambda: bool(harness.reports))
    assert "reloaded its certificates" in harness.reports[0]
    client.connection.send([b"old"])
    harness.run_until(lambda: client.frames == [b"old"])
    assert attempt(harness, server.listener.address) == [b"hello"]
    stores.reloading.close()


@pytest.mark.parametrize(
    ("leaf", "fault"),
    [
        (lambda: renewed("127.0.0.1", of="foreign"), "does not verify"),
        (lambda: renewed("127.0.0.1", common_name="other"), "ssl.allow.dn.changes"),
        (lambda: renewed("elsewhere.example"), "ssl.allow.san.changes"),
    ],
)
def test_changed_file_that_may_not_be_used_leaves_the_old_certificate(
    harness: TlsHarness, tmp_path: Path, leaf: Callable[[], trustme.LeafCert], fault: str
) -> None:
    stores = Stores(harness, tmp_path)
    _, server = pair_of_held_listener(harness)
    stores.write(leaf())
    harness.run_until(lambda: bool(harness.reports))
    assert "the changed certificates are not used" in harness.reports[0]
    assert fault in harness.reports[0]
    assert attempt(harness, server.listener.address) == [b"hello"]
    stores.reloading.close()


def test_subject_and_names_may_change_where_the_settings_allow_it(harness: TlsHarness, tmp_path: Path) -> None:
    stores = Stores(harness, tmp_path, may_change=True)
    stores.write(renewed("elsewhere.example", common_name="other"))
    harness.run_until(lambda: bool(harness.reports))
    assert "reloaded its certificates" in harness.reports[0]
    stores.reloading.close()
