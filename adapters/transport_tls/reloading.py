"""Reload of certificates while the process runs, when their files have changed.

Kafka's checks: a new certificate of the listener for other brokers must verify with its trust store, and each one must
keep its subject and its alternative names unless ssl.allow.dn.changes or ssl.allow.san.changes say otherwise.
Connections that exist keep their session.
"""

import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Self

from ...core.security.distinguished_name import alternative_names_of, subject_of
from ...core.security.ssl_settings import SslSettings
from ...ports.errors import BarnabasError, ConfigError
from ...ports.report import Report, info
from ...ports.scheduler import Outcome, Scheduler, Timer
from ...ports.values import define
from .contexts import TlsClient, TlsServer
from .stores import load_trust_store

_CHECK_MS = 10_000.0

_Stamps = tuple[tuple[int, int, int] | None, ...]


@define(eq=False)
class _Followed:
    tls: TlsServer | TlsClient
    name: str
    must_verify: bool
    wanted: SslSettings
    """The settings to use; those of `tls` are the last ones that could be used."""
    tried: tuple[SslSettings, _Stamps]
    """The settings and files that were read last, with success or not."""
    is_reading: bool = False
    has_failed: bool = False


class CertificateReloading:
    """Checks the files of listeners and clients periodically; a worker thread loads changed ones."""

    def __init__(self, scheduler: Scheduler, report: Report, check_ms: float = _CHECK_MS) -> None:
        self._scheduler = scheduler
        self._report = report
        self._check_ms = check_ms
        self._followed: dict[TlsServer | TlsClient, _Followed] = {}
        self._timer: Timer | None = None
        self._is_closed = False

    def follow(self, tls: TlsServer | TlsClient, name: str, *, must_verify: bool = True) -> None:
        """Reload the certificates whenever one of their files has changed; log lines begin with `name`.

        `must_verify`: a new certificate of a listener has to verify with its own trust store, which other brokers use.
        """
        settings = tls.settings
        self._followed[tls] = _Followed(tls, name, must_verify, settings, (settings, _stamps(settings)))
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._check_ms, self._check)

    def checked_change(self, tls: TlsServer | TlsClient, settings: SslSettings) -> Callable[[], None] | None:
        """Return work for a worker thread that raises `ConfigError` if the settings cannot be used now; None: neither
        they nor their files have changed since they were used."""
        followed = self._followed[tls]
        if not followed.has_failed and followed.tried == (settings, _stamps(settings)):
            return None
        return partial(_prepare, followed, settings)

    def change(self, tls: TlsServer | TlsClient, settings: SslSettings) -> None:
        """Use other settings for new connections; the same ones are read again if their files changed."""
        followed = self._followed[tls]
        followed.wanted = settings
        self._look_at(followed)

    def close(self) -> None:
        """End the checks of files."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        for followed in self._followed.values():
            self._look_at(followed)
        self._timer = self._scheduler.call_later(self._check_ms, self._check)

    def _look_at(self, followed: _Followed) -> None:
        if followed.is_reading:
            return  # looked at again afterwards
        settings, stamps = followed.wanted, _stamps(followed.wanted)
        before, seen = followed.tried
        if settings == before and (stamps == seen or None in stamps):  # None: it is being replaced
            return
        followed.tried, followed.is_reading = (settings, stamps), True
        self._scheduler.offload(partial(_reload, followed, settings), partial(self._done, followed))

    def _done(self, followed: _Followed, outcome: Outcome[None]) -> None:
        followed.is_reading, followed.has_failed = False, outcome.error is not None
        if self._is_closed:
            return
        if outcome.error is None:
            self._report(info(f"{followed.name}: reloaded its certificates; new connections use them"))
        else:
            self._report(f"{followed.name}: the changed certificates are not used: {outcome.error}")
        self._look_at(followed)


def _prepare(followed: _Followed, settings: SslSettings) -> None:
    if isinstance(followed.tls, TlsServer):
        check_change(followed.tls, TlsServer(settings), must_verify=followed.must_verify)
    else:
        TlsClient(settings)


def _reload(followed: _Followed, settings: SslSettings) -> None:
    _prepare(followed, settings)
    followed.tls.reload(settings)


class HttpsContext(ssl.SSLContext):
    """The context of an HTTPS server of another library, such as asyncio: new connections use changed files.

    The files are checked at a new connection, at most every ten seconds. Any thread.
    """

    def __new__(cls, *_given: object) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, settings: SslSettings, report: Report, check_ms: float = _CHECK_MS) -> None:
        """Raises `ConfigError`."""
        self._tls = TlsServer(settings)
        self._reported = report
        self._check_s = check_ms / 1000
        self._stamps = _stamps(settings)
        self._next_look_s = time.monotonic() + self._check_s
        self._lock = Lock()

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Put TLS on a socket, as `SSLContext` does."""
        return self._present().wrap_socket(*given, **named)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Put TLS between two buffers, as `SSLContext` does."""
        return self._present().wrap_bio(*given, **named)

    def _present(self) -> ssl.SSLContext:
        with self._lock:
            if time.monotonic() >= self._next_look_s:
                self._next_look_s = time.monotonic() + self._check_s
                self._look_at_files()
            return self._tls.context

    def _look_at_files(self) -> None:
        stamps = _stamps(self._tls.settings)
        if stamps == self._stamps or None in stamps:
            return
        self._stamps = stamps
        try:
            self._tls.reload(self._tls.settings)
        except ConfigError as error:
            self._reported(f"HTTPS: the changed certificates are not used: {error}")
        else:
            self._reported(info("HTTPS: reloaded its certificates; new connections use them"))


def check_change(old: TlsServer, new: TlsServer, *, must_verify: bool) -> None:
    """Raise `ConfigError` if a listener may not change from one certificate to the other."""
    settings = new.settings
    before, after = _certificate(old, None), _certificate(new, settings if must_verify else None)
    if not settings.allow_dn_changes and subject_of(before) != subject_of(after):
        raise ConfigError(
            f"the subject changes from {subject_of(before)} to {subject_of(after)}; ssl.allow.dn.changes=true allows it"
        )
    if not settings.allow_san_changes and not alternative_names_of(before) <= alternative_names_of(after):
        raise ConfigError("alternative names of the certificate are missing; ssl.allow.san.changes=true allows it")


def _certificate(tls: TlsServer, verified_by: SslSettings | None) -> bytes:
    """Return the certificate of a listener, by a handshake in memory; `verified_by`: the trust store it must pass."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if verified_by is None or not load_trust_store(context, verified_by):
        context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = tls.wrap_memory(to_server, to_client)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                text = f"the certificate does not verify with ssl.truststore: {error.verify_message}"
                raise ConfigError(text) from None
            except ssl.SSLError:
                break  # the server misses the certificate of this client, which has the server's
        with suppress(ValueError):  # not there yet
            certificate = client.getpeercert(binary_form=True)
            if certificate is not None:
                return certificate
    raise BarnabasError("the certificate of the listener cannot be determined")


def _stamps(settings: SslSettings) -> _Stamps:
    return tuple(_stamp(path) for path in settings.files)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
