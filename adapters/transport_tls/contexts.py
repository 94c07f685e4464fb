"""SSL contexts from the `ssl.*` settings."""

import socket
import ssl
from contextlib import suppress

from ...core.security.ssl_settings import PROTOCOLS, SslSettings
from ...ports.errors import ConfigError
from .stores import load_key_store, load_trust_store
from .tls_socket import TlsSocket

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
