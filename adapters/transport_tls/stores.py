"""Key stores and trust stores: PEM files, PEM texts in the configuration, PKCS#12 files."""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...core.security.ssl_settings import SslSettings
from ...ports.errors import ConfigError
from ...ports.values import Secret

_PEM = "-----BEGIN "
_BLOCK = re.compile(r"(-----BEGIN [^-]+-----)([A-Za-z0-9+/=\s]+)(-----END [^-]+-----)")
_JKS_MAGIC = b"\xfe\xed\xfe\xed"


def load_key_store(context: ssl.SSLContext, settings: SslSettings) -> None:
    """Load the certificate of this end and its key. Raises `ConfigError`."""
    password = settings.key_password or settings.keystore_password
    if settings.keystore_certificate_chain:
        if settings.keystore_key is None:
            raise ConfigError("ssl.keystore.key is not set, though ssl.keystore.certificate.chain is")
        text = f"{_lines(settings.keystore_key.value)}\n{_lines(settings.keystore_certificate_chain)}"
        _load_text(context, text, settings.key_password, "ssl.keystore.key")
    elif settings.certificate_location:
        key = settings.key_location or settings.certificate_location
        _load_file(context, settings.certificate_location, key, settings.key_password, "ssl.certificate.location")
    elif settings.keystore_location:
        path, name = settings.keystore_location, f"ssl.keystore.location={settings.keystore_location}"
        kind = _kind_of(path, settings.keystore_type, name)
        if kind == "PEM":
            _load_file(context, path, path, password, name)
        else:
            key_text, certificates, _ = _read_pkcs12(path, settings.keystore_password, name)
            if key_text is None or not certificates:
                raise ConfigError(f"{name}: the file has no private key with its certificate")
            _load_text(context, "\n".join((key_text, *certificates)), None, name)


def load_trust_store(context: ssl.SSLContext, settings: SslSettings) -> bool:
    """Load the trusted authorities; False if the settings have none. Raises `ConfigError`."""
    name, text = "ssl.truststore.certificates", _lines(settings.truststore_certificates or "")
    if not text and settings.truststore_location:
        path, name = settings.truststore_location, f"ssl.truststore.location={settings.truststore_location}"
        if _kind_of(path, settings.truststore_type, name) == "PEM":
            text = _read(path, name).decode("utf-8", "replace")
        else:
            _, certificates, others = _read_pkcs12(path, settings.truststore_password, name)
            text = "\n".join((*others, *certificates))
    if not text:
        return False
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{name}: there is no certificate in PEM form that can be read ({_reason(error)})") from None
    return True


def _lines(text: str) -> str:
    """Return a PEM text in lines: in a configuration file it may stand on one, with blanks, as Kafka allows."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n" + "\n".join(found[2].split()) + f"\n{found[3]}\n", text)


def _kind_of(path: str, stated: str, name: str) -> str:
    """Return PEM or PKCS12, by the content of the file: Kafka's default of the type is JKS. Raises `ConfigError`."""
    begin = _read(path, name)
    if begin.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{name} is a Java key store (JKS), which only Java reads; convert it: keytool -importkeystore "
            "-srckeystore OLD.jks -destkeystore NEW.p12 -deststoretype PKCS12, and set the type to PKCS12"
        )
    is_pem = _PEM.encode() in begin
    if stated.upper() == "PEM" and not is_pem:
        raise ConfigError(f"{name}: the type is PEM, but the file has no text that begins with -----BEGIN")
    return "PEM" if is_pem else "PKCS12"


def _load_file(context: ssl.SSLContext, path: str, key: str, password: Secret[str] | None, name: str) -> None:
    _read(path, name)
    is_encrypted = b"ENCRYPTED" in _read(key, name)
    try:
        context.load_cert_chain(path, key, password=_password(password))
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(f"{name}: {_key_problem(error, password, is_encrypted=is_encrypted)}") from None


def _load_text(context: ssl.SSLContext, text: str, password: Secret[str] | None, name: str) -> None:
    with _as_file(text) as path:
        try:
            context.load_cert_chain(path, password=_password(password))
        except (ssl.SSLError, OSError, ValueError) as error:
            problem = _key_problem(error, password, is_encrypted="ENCRYPTED" in text)
            raise ConfigError(f"{name}: {problem}") from None


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A file with a text for OpenSSL, which reads keys from files only: in memory where the system can."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        handle = os.memfd_create("barnabas-key")
        try:
            os.write(handle, text.encode())
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 0600
            file.write(text)
            file.flush()
            yield file.name


def _read_pkcs12(path: str, password: Secret[str] | None, name: str) -> tuple[str | None, list[str], list[str]]:
    """Return the key, the chain of its certificate, and other certificates, as PEM texts. Raises `ConfigError`."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ConfigError(f"{name}: PKCS12 needs cryptography; install the extra barnabas[security]") from None
    try:
        found = pkcs12.load_pkcs12(_read(path, name), password.value.encode() if password else None)
    except ValueError:
        raise ConfigError(f"{name}: the file is not PKCS12, or its password is wrong") from None
    key = None
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = [] if found.cert is None else [found.cert.certificate.public_bytes(Encoding.PEM).decode()]
    others = [each.certificate.public_bytes(Encoding.PEM).decode() for each in found.additional_certs]
    return key, ([*own, *others] if key is not None else own), others


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}") from None


def _password(password: Secret[str] | None) -> str:
    # Without a password OpenSSL would ask for one at the terminal.
    return "" if password is None else password.value


def _key_problem(error: Exception, password: Secret[str] | None, *, is_encrypted: bool) -> str:
    reason = _reason(error)
    if "KEY_VALUES_MISMATCH" in reason:
        return "the private key does not belong to the first certificate"
    if is_encrypted:
        return "the private key is encrypted, and ssl.key.password is " + ("wrong" if password else "not set")
    return f"there is no certificate with its private key in PEM form that can be read ({reason})"


def _reason(error: Exception) -> str:
    return (getattr(error, "reason", None) or str(error)).strip()
