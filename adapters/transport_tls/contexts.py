"""SSL contexts from the `ssl.*` settings, and the non-blocking socket with TLS for `transport_tcp`.

OpenSSL has two memory buffers (`MemoryBIO`), and this module carries the bytes between them and the socket. An
`SSLSocket`, which uses the socket itself, takes two system calls for each record received; see docs/design/security.md.
"""

import socket
import ssl
from contextlib import suppress
from typing import Any

from ...core.security.distinguished_name import subject_of
from ...core.security.ssl_settings import PROTOCOLS, SslSettings
from ...ports.errors import ConfigError
from ...ports.types import Buffer
from .stores import load_key_store, load_trust_store

READ, WRITE = 1, 2
"""The values of `selectors.EVENT_READ` and `EVENT_WRITE`."""
_HANDSHAKE_RECORD = 0x16
_DISCARD_BYTES, _DISCARDS_MAX = 65_536, 4
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_RECEIVE_BYTES_MIN, _RECEIVE_BYTES_MAX = 16_384, 262_144
"""The bounds of one receive; it doubles while receives are full."""


class NotTls(OSError):
    """The first byte from the other side begins no TLS record."""


class TlsSocket:
    """Has the methods of a socket that the TCP transport uses, which raise `BlockingIOError` where TLS must wait.

    Owner thread only, but for `compute_handshake`.
    """

    __slots__ = (
        "_encrypted",
        "_encrypted_bytes",
        "_failure",
        "_incoming",
        "_is_checked",
        "_is_computing",
        "_is_drained",
        "_outgoing",
        "_receive_bytes",
        "_sock",
        "_ssl",
        "_waits_for_peer",
        "is_handshake_done",
        "is_reading_blocked",
        "is_server",
        "peer_subject",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None) -> None:
        """Put TLS on a connected socket. `server_hostname` None: this is the server."""
        self._sock = sock
        self.is_server = server_hostname is None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=self.is_server, server_hostname=server_hostname
        )
        self._encrypted: Buffer = b""
        """Bytes taken from `_outgoing` that are unsent."""
        self._encrypted_bytes = 0
        """The size of the content of a `send` that is encrypted and not sent completely."""
        self._failure: OSError | None = None
        self._is_checked = not self.is_server
        self._is_computing = False
        self._waits_for_peer = self.is_server
        self._is_drained = True
        self._receive_bytes = _RECEIVE_BYTES_MIN
        self.is_handshake_done = False
        self.is_reading_blocked = False
        """True if reading cannot continue until something was sent: the peer asked for new keys (TLS 1.3)."""
        self.peer_subject: str | None = None
        """The subject of the peer's certificate, if that was verified."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._sock.fileno()

    def getsockname(self) -> tuple[Any, ...]:
        """Return the address of this end."""
        return tuple(self._sock.getsockname())

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option of the socket."""
        self._sock.setsockopt(level, option, value)

    # --- handshake

    def exchange_handshake(self) -> int:
        """Send and receive what the handshake needs. Returns READ or WRITE, what it waits for; 0: `compute_handshake`
        comes next, or the handshake is done.

        Raises `OSError`; see `explain`.
        """
        if not self._send_encrypted():
            return WRITE
        if self.is_handshake_done or not self._waits_for_peer:
            return 0
        try:
            received = self._sock.recv(_RECEIVE_BYTES_MIN)
        except (BlockingIOError, InterruptedError):
            return READ
        if received and not self._is_checked:
            # A client that speaks in plain text is recognised by its first byte, before OpenSSL sees it.
            if received[0] != _HANDSHAKE_RECORD:
                raise NotTls
            self._is_checked = True
        if self.is_server and _QUICKACK is not None:
            # No ticket follows the end of the handshake. Without one, a client with Nagle's algorithm would keep its
            # first request until the delayed acknowledgement, for 40 ms.
            with suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        self._feed_incoming(received)
        self._waits_for_peer = False
        return 0

    def start_computing(self) -> None:
        """Announce that `compute_handshake` is called, perhaps by another thread, until `end_computing`."""
        self._is_computing = True

    def compute_handshake(self) -> None:
        """Compute the next step of the handshake from what was received; the costly part of it. Any thread.

        Raises `OSError`, and `Malformed` if the subject of the peer's certificate is unreadable.
        """
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._waits_for_peer = True
            return
        if self._ssl.context.verify_mode != ssl.CERT_NONE:
            certificate = self._ssl.getpeercert(binary_form=True)
            self.peer_subject = None if certificate is None else subject_of(certificate)
        self._is_drained = False  # the first data may have come with the end of the handshake
        self.is_handshake_done = True

    def end_computing(self) -> None:
        """Announce that `compute_handshake` has returned."""
        self._is_computing = False

    @property
    def cipher(self) -> str:
        """The protocol and cipher suite in use."""
        name, protocol, _ = self._ssl.cipher() or ("", "", 0)
        return f"{protocol} {name}"

    # --- data

    @property
    def pending_bytes(self) -> int:
        """Bytes that may be read without waiting: the system does not report the socket as readable for them."""
        return 0 if self._is_drained else self._ssl.pending() + self._incoming.pending

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive once from the socket, at most, and decrypt; returns 0 at the end of the stream."""
        if self._failure is not None:
            raise self._failure
        if (self._encrypted or self._outgoing.pending) and not self._may_read_on():
            self.is_reading_blocked = True
            raise BlockingIOError
        if not self._is_drained:
            got = self._decrypt(buffer)
            if got >= 0:
                return got
        received = self._sock.recv(min(self._receive_bytes, max(len(buffer), _RECEIVE_BYTES_MIN)))
        if len(received) == self._receive_bytes < _RECEIVE_BYTES_MAX:
            self._receive_bytes *= 2
        self._feed_incoming(received)
        got = self._decrypt(buffer)
        if got < 0:
            raise BlockingIOError
        return got

    def _may_read_on(self) -> bool:
        """Send what OpenSSL has to answer; False: reading waits, so that a peer which takes nothing cannot make the
        answers grow."""
        try:
            return self._send_encrypted()
        except OSError:  # the peer is gone; what it sent last says why
            self._encrypted = b""
            return True

    def _feed_incoming(self, received: bytes) -> None:
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _decrypt(self, buffer: memoryview) -> int:
        """Fill the buffer as far as possible; returns -1 if a whole record must come first, 0 at the end."""
        got, size = 0, len(buffer)
        read: Any = self._ssl.read  # with a buffer it returns how much it has read
        self._is_drained = False
        try:
            while got < size:
                part = read(size - got, buffer[got:])
                if not part:
                    break
                got += part
        except ssl.SSLWantReadError:
            self._is_drained = True
            got = got or -1
        except ssl.SSLEOFError:  # without a close_notify: frames have lengths, so that nothing is cut off unseen
            pass
        except OSError as error:
            with suppress(OSError):  # what TLS says of it
                self._send_encrypted()
            if not got:
                raise
            self._failure = error  # raised by the next call, after what came before it
        return got

    def send(self, content: Buffer, /) -> int:
        """Encrypt and send; returns how many of the bytes are sent.

        After `BlockingIOError` they are encrypted already: the next call must begin with the same bytes.
        """
        if not self._encrypted_bytes:
            self._encrypted_bytes = self._ssl.write(content)
        if not self._send_encrypted():
            raise BlockingIOError
        sent, self._encrypted_bytes = self._encrypted_bytes, 0
        return sent

    def _send_encrypted(self) -> bool:
        """Send what OpenSSL has written; False if the socket does not take all of it now."""
        while True:
            encrypted = self._encrypted or self._outgoing.read()
            if not encrypted:
                return True
            try:
                sent = self._sock.send(encrypted)
            except (BlockingIOError, InterruptedError):
                self._encrypted = encrypted
                return False
            self._encrypted = memoryview(encrypted)[sent:] if sent < len(encrypted) else b""

    # --- ends

    def close_in_order(self) -> None:
        """Announce the end to the peer (close_notify), and end the sending side of the socket."""
        with suppress(OSError, ValueError):  # the peer's own close_notify is not waited for
            self._ssl.unwrap()
        with suppress(OSError):
            self._send_encrypted()
        self._sock.shutdown(socket.SHUT_WR)

    def close_failed(self) -> None:
        """Close after a failed handshake: unread bytes would make the system take the alert from the peer again."""
        with suppress(OSError, ValueError):
            if not self._is_computing:
                self._send_encrypted()
            self._sock.shutdown(socket.SHUT_WR)
            for _ in range(_DISCARDS_MAX):
                if not self._sock.recv(_DISCARD_BYTES):
                    break
        self._sock.close()

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def explain(self, error: OSError) -> tuple[str, bool]:
        """Return what an error of TLS means and what to change; True if one side refused the other's identity."""
        if self.is_handshake_done and isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return "the peer closed it", False
        return _explain(error, is_server=self.is_server)


_CERTIFICATE_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of the certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the certificate was revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not support the certificate",
    "TLSV1_ALERT_DECRYPT_ERROR": "it cannot verify the certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "it denies the access",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "no protocol or cipher suite in common, or it requires a client certificate",
}
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
_OLD = ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "TLSV1_ALERT_PROTOCOL_VERSION", "INAPPROPRIATE_FALLBACK")


def _explain(error: OSError, *, is_server: bool) -> tuple[str, bool]:
    if isinstance(error, NotTls):
        return "it speaks without TLS to a listener with TLS; set its security.protocol to SSL or SASL_SSL", False
    if isinstance(error, ssl.SSLCertVerificationError):
        whose = "client's" if is_server else "server's"
        check = "ssl.truststore of this listener" if is_server else "ssl.truststore of this client"
        text = f"the {whose} certificate is refused: {error.verify_message.rstrip('.')}"
        return (text if "match" in text.lower() or "valid for" in text else f"{text}; check {check}"), True
    if not isinstance(error, ssl.SSLError):
        return error.strerror or str(error) or "the TLS handshake was cut off", False
    reason = error.reason or ""
    if reason in _CERTIFICATE_ALERTS:
        peer, setting = ("client", "ssl.keystore of this listener") if is_server else ("server", "the ssl.* settings")
        return f"the {peer} refused the TLS handshake: {_CERTIFICATE_ALERTS[reason]}; check {setting}", True
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate, which ssl.client.auth=required asks for; set ssl.keystore.* of it", True
    if reason in _PLAIN:
        return "it does not speak TLS; use a listener with TLS, or security.protocol=PLAINTEXT or SASL_PLAINTEXT", False
    if reason in _OLD:
        return "no TLS protocol in common: TLSv1.2 and TLSv1.3 are supported; check ssl.enabled.protocols", True
    if reason == "NO_SHARED_CIPHER":
        return "no cipher suite in common; check ssl.cipher.suites at both ends", True
    if "EOF" in reason or isinstance(error, ssl.SSLEOFError):
        return "it closed the connection during the TLS handshake; does it use TLS, too?", False
    return f"the TLS handshake failed: {reason.replace('_', ' ').lower() or error}", False


HANDSHAKE_TIMEOUT_MS = 10_000.0
"""A client that has not completed the handshake within this time is disconnected."""
HANDSHAKES_MAX = 500
"""Handshakes under way at one listener. With more, the oldest one ends: silent clients cannot keep others out."""

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsServer:
    """Fulfils `ServerTls`. The context can be replaced: connections that exist keep the one they began with."""

    def __init__(self, settings: SslSettings) -> None:
        """Raises `ConfigError`."""
        self.settings = settings
        self.handshake_timeout_ms = HANDSHAKE_TIMEOUT_MS
        self.handshakes_max = HANDSHAKES_MAX
        self._context = _server_context(settings)

    def wrap(self, sock: socket.socket, host: str) -> TlsSocket:  # noqa: ARG002  clients need the host
        """Return the socket with TLS on it, before its handshake."""
        return TlsSocket(sock, self._context, server_hostname=None)

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections that another library accepts."""
        return self._context

    def wrap_memory(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """Return this end of a connection in memory, to look at the certificate."""
        return self._context.wrap_bio(incoming, outgoing, server_side=True)

    def reload(self, settings: SslSettings) -> None:
        """Use other certificates for new connections. Raises `ConfigError`, and then changes nothing."""
        self._context = _server_context(settings)
        self.settings = settings

    def describe(self) -> str:
        settings = self.settings
        return f"TLS ({', '.join(settings.enabled_protocols)}; ssl.client.auth={settings.client_auth})"


class TlsClient:
    """Fulfils `ClientTls`."""

    def __init__(self, settings: SslSettings, context: ssl.SSLContext | None = None) -> None:
        """`context`: a context that is ready to use; the settings do not count then. Raises `ConfigError`."""
        self.settings = settings
        self._context = _client_context(settings) if context is None else context

    def wrap(self, sock: socket.socket, host: str) -> TlsSocket:
        """Return the socket with TLS on it, before its handshake; the certificate has to be for `host`."""
        return TlsSocket(sock, self._context, server_hostname=host.partition("%")[0])

    def wrap_blocking(self, sock: socket.socket, host: str) -> ssl.SSLSocket:
        """Return a connected socket with TLS on it, after its handshake; the socket's timeout bounds each step of it.
        Raises `OSError`."""
        return self._context.wrap_socket(sock, server_hostname=host.partition("%")[0])

    @property
    def context(self) -> ssl.SSLContext:
        """The context of connections that another library opens."""
        return self._context

    def reload(self, settings: SslSettings) -> None:
        """Use other certificates for new connections. Raises `ConfigError`, and then changes nothing."""
        self._context = _client_context(settings)
        self.settings = settings

    def describe(self) -> str:
        return f"TLS ({', '.join(self.settings.enabled_protocols)})"


def server_tls(settings: SslSettings) -> TlsServer:
    """Return the TLS of a listener. Raises `ConfigError`, which names the key to change."""
    return TlsServer(settings)


def client_tls(settings: SslSettings, context: ssl.SSLContext | None = None) -> TlsClient:
    """Return the TLS of connections to other processes; a `context` that is ready to use counts instead of settings.

    Raises `ConfigError`, which names the key to change.
    """
    return TlsClient(settings, context)


def _server_context(settings: SslSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, settings)
    # Every handshake is a whole one: a resumed session would outlive a change of the trusted authorities.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    if not settings.has_certificate:
        raise ConfigError("ssl.keystore.location is not set: a listener with TLS needs a certificate and its key")
    load_key_store(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none" and not load_trust_store(context, settings):
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _client_context(settings: SslSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    context.check_hostname = settings.verify_peer and bool(settings.endpoint_identification_algorithm)
    if not settings.verify_peer:
        context.verify_mode = ssl.CERT_NONE
    elif not load_trust_store(context, settings):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.has_certificate:
        load_key_store(context, settings)
    return context


def _restrict(context: ssl.SSLContext, settings: SslSettings) -> None:
    """Set the protocols and cipher suites."""
    wanted = [name for name in PROTOCOLS if name in settings.enabled_protocols]
    unknown = [name for name in settings.enabled_protocols if name not in PROTOCOLS]
    if unknown or not wanted:
        raise ConfigError(f"ssl.enabled.protocols has {unknown[0] if unknown else 'none'}; use TLSv1.2 and TLSv1.3")
    suites = settings.cipher_suites
    if suites:
        wanted = _set_suites(context, suites, wanted)
    context.minimum_version, context.maximum_version = _VERSIONS[wanted[0]], _VERSIONS[wanted[-1]]
    with suppress(AttributeError):  # Python 3.13 checks more of certificates (RFC 5280) than Kafka's clients do
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT


def _set_suites(context: ssl.SSLContext, suites: tuple[str, ...], protocols: list[str]) -> list[str]:
    """Set the suites of TLS 1.2; returns the protocols that have a suite. Those of TLS 1.3 are on or off together."""
    of_13 = {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"}
    new = [name for name in suites if name in of_13]
    old = [name for name in suites if name not in of_13]
    if new and set(new) != of_13 and "TLSv1.3" in protocols:
        text = f"ssl.cipher.suites must name all suites of TLS 1.3 or none: {', '.join(sorted(of_13))}"
        raise ConfigError(f"{text}; Python's ssl module cannot choose among them")
    if old:
        try:
            context.set_ciphers(":".join(map(openssl_name, old)))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites={','.join(suites)}: OpenSSL knows none of these suites") from None
    left = [name for name in protocols if (new if name == "TLSv1.3" else old)]
    if not left:
        raise ConfigError("ssl.cipher.suites has no suite of a protocol in ssl.enabled.protocols")
    return left


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 that Java's name is given of."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = (
        cipher.replace("AES_", "AES").replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    )
    exchange = "" if exchange == "RSA" else f"{exchange}-"
    return f"{exchange}{cipher}".replace("_", "-")
