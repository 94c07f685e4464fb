"""A non-blocking socket with TLS on it, for `transport_tcp`.

Python's `SSLSocket` lets OpenSSL read from and write to the socket itself. Memory buffers between the two
(`MemoryBIO`) were measured to cost 1.4 times the CPU for sending; see docs/design/security.md.
"""

import socket
import ssl
from contextlib import suppress
from typing import Any

from ...core.security.distinguished_name import subject_of
from ...ports.types import Buffer

READ, WRITE = 1, 2
"""The values of `selectors.EVENT_READ` and `EVENT_WRITE`."""
_HANDSHAKE_RECORD = 0x16
_DISCARD_BYTES, _DISCARDS_MAX = 65_536, 4


class NotTls(OSError):
    """The first byte from the other side begins no TLS record."""


class TlsSocket:
    """Has the methods of a socket that the TCP transport uses, which raise `BlockingIOError` where TLS must wait.

    A frame is sent in records of at most 16 KB, a system call each. OpenSSL wants a send that could not be completed to
    be repeated with the same bytes first; the transport does that.
    """

    __slots__ = ("_failure", "_is_checked", "_is_done", "_sock", "is_reading_blocked", "is_server")

    def __init__(self, sock: ssl.SSLSocket, *, is_server: bool) -> None:
        self._sock = sock
        self._failure: OSError | None = None
        self._is_checked = not is_server
        self._is_done = False
        self.is_server = is_server
        self.is_reading_blocked = False
        """True if reading cannot continue until something was sent: the peer asked for new keys (TLS 1.3)."""

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._sock.fileno()

    def getsockname(self) -> tuple[Any, ...]:
        """The address of this end."""
        return tuple(self._sock.getsockname())

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option of the socket."""
        self._sock.setsockopt(level, option, value)

    def step_handshake(self) -> int:
        """Do what can be done of the handshake now; return READ or WRITE, what it waits for, or 0 when it is done.

        Raises `OSError`; see `explain`.
        """
        if not self._is_checked:
            # A client that speaks in plain text is recognised by its first byte, before OpenSSL consumes it.
            try:
                first = socket.socket.recv(self._sock, 1, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                return READ
            if first and first[0] != _HANDSHAKE_RECORD:
                raise NotTls
            self._is_checked = True
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return READ
        except ssl.SSLWantWriteError:
            return WRITE
        self._is_done = True
        return 0

    @property
    def peer_subject(self) -> str | None:
        """The subject of the peer's certificate, if that was verified."""
        if self._sock.context.verify_mode == ssl.CERT_NONE:
            return None
        certificate = self._sock.getpeercert(binary_form=True)
        return None if certificate is None else subject_of(certificate)

    @property
    def cipher(self) -> str:
        """The protocol and cipher suite in use."""
        name, protocol, _ = self._sock.cipher() or ("", "", 0)
        return f"{protocol} {name}"

    @property
    def pending_bytes(self) -> int:
        """Decrypted bytes that OpenSSL holds: the system does not report the socket as readable for them."""
        return self._sock.pending()

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive until the buffer is full or nothing more has come; returns 0 at the end of the stream."""
        if self._failure is not None:
            raise self._failure
        got, size = 0, len(buffer)
        try:
            while got < size:
                part = self._sock.recv_into(buffer[got:])
                if not part:
                    break
                got += part
        except ssl.SSLWantReadError:
            if not got:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.is_reading_blocked = True
            if not got:
                raise BlockingIOError from None
        except OSError as error:
            if not got:
                raise
            self._failure = error  # raised by the next call, after what came before it
        return got

    def send(self, content: Buffer, /) -> int:
        """Send at most one record; returns how many of the bytes are sent."""
        try:
            return self._sock.send(content)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def close_in_order(self) -> None:
        """Announce the end to the peer (close_notify), and end the sending side of the socket."""
        with suppress(OSError, ValueError):  # the peer's own close_notify is not waited for
            self._sock.unwrap()
        self._sock.shutdown(socket.SHUT_WR)

    def close_failed(self) -> None:
        """Close after a failed handshake: unread bytes would make the system take the alert from the peer again."""
        with suppress(OSError, ValueError):
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
        if self._is_done and isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
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
