"""Certificates that change while the process runs: files are read again when they changed.

Kafka's checks: a new certificate must verify with the trust store, and keep its subject and its alternative names
unless ssl.allow.dn.changes or ssl.allow.san.changes say otherwise. Connections that exist keep their session.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...core.security.distinguished_name import alternative_names_of, subject_of
from ...core.security.ssl_settings import SslSettings
from ...ports.errors import BarnabasError, ConfigError
from ...ports.report import Report, info
from ...ports.scheduler import Outcome, Scheduler, Timer
from .contexts import TlsClient, TlsServer
from .stores import load_trust_store

_CHECK_MS = 10_000.0

_Stamps = tuple[tuple[int, int, int] | None, ...]


class CertificateReloading:
    """Looks at the files of listeners and clients from time to time; a change is read by a worker thread."""

    def __init__(self, scheduler: Scheduler, report: Report, check_ms: float = _CHECK_MS) -> None:
        self._scheduler = scheduler
        self._report = report
        self._check_ms = check_ms
        self._followed: dict[TlsServer | TlsClient, tuple[str, _Stamps]] = {}
        self._timer: Timer | None = None
        self._is_closed = False

    def follow(self, tls: TlsServer | TlsClient, name: str) -> None:
        """Reload it whenever one of its files has changed; `name` stands in log lines."""
        if not tls.settings.files:
            return
        self._followed[tls] = (name, _stamps(tls.settings))
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._check_ms, self._check)

    def close(self) -> None:
        """End the checks of files."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        for tls, (name, stamps) in self._followed.items():
            found = _stamps(tls.settings)
            if found != stamps and None not in found:  # None: it is being replaced
                self._followed[tls] = (name, found)
                self._scheduler.offload(_reloading(tls), self._reporting(name))
        self._timer = self._scheduler.call_later(self._check_ms, self._check)

    def _reporting(self, name: str) -> Callable[[Outcome[None]], None]:
        def done(outcome: Outcome[None]) -> None:
            if self._is_closed:
                return
            if outcome.error is None:
                self._report(info(f"{name}: reloaded its certificates; new connections use them"))
            else:
                self._report(f"{name}: the changed certificates are not used: {outcome.error}")

        return done


def _reloading(tls: TlsServer | TlsClient) -> Callable[[], None]:
    def work() -> None:
        settings = tls.settings
        if isinstance(tls, TlsServer):
            check_change(tls, TlsServer(settings))
        tls.reload(settings)

    return work


def check_change(old: TlsServer, new: TlsServer) -> None:
    """Raise `ConfigError` if a listener may not change from one certificate to the other."""
    settings = new.settings
    before, after = _certificate(old, None), _certificate(new, settings)
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
