"""A certificate authority for development: certificates of brokers and users as PEM files.

Its key is in the same folder, unencrypted: who reads the folder can pretend to be everyone. Productive clusters have an
authority of their organization.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..ports.errors import ConfigError
from ..ports.values import frozen
from .extras import require

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY = "ca.pem"
AUTHORITY_KEY = "ca-key.pem"
_ORGANIZATION = "Barnabas development"
_AUTHORITY_DAYS = 3650


@frozen
class IssuedFile:
    """A certificate in the folder."""

    name: str
    path: Path
    """The private key, the certificate and that of the authority, one after the other."""
    is_new: bool


class DevelopmentAuthority:
    """The authority in a folder. Files are readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        """Open the authority, or make it. Raises `ConfigError`."""
        require("certificates", ["cryptography"], "security")
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise ConfigError(f"{folder}: cannot write certificates there: {error.strerror}") from None

    @property
    def path(self) -> Path:
        """The certificate of the authority, which clients and brokers trust."""
        return self.folder / AUTHORITY

    def issue(self, name: str, hosts: Sequence[str], days: int) -> IssuedFile:
        """Write NAME.pem for a broker with these hosts, or for a user without any; one that exists remains. Raises
        `ConfigError`."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        path = self.folder / f"{name}.pem"
        if not name or name != Path(name).name or path.name in (AUTHORITY, AUTHORITY_KEY):
            raise ConfigError(f"{name!r} cannot be the name of a certificate's file")
        if path.exists():
            return IssuedFile(name, path, False)
        key = _new_key()
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = (
            _builder(_name(name), self._certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = _signed(builder, self._key)
        _write(path, _pem(key) + _pem(certificate) + _pem(self._certificate))
        return IssuedFile(name, path, True)

    def _open(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path, key_path = self.folder / AUTHORITY, self.folder / AUTHORITY_KEY
        if not key_path.exists():
            if path.exists():
                raise ConfigError(f"{path} has no key next to it ({AUTHORITY_KEY}); choose another folder")
            self._make(path, key_path)
        try:
            key = load_pem_private_key(key_path.read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.folder}: the authority there cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{key_path} is not a key that Barnabas made")
        self._key = key

    def _make(self, path: Path, key_path: Path) -> None:
        from cryptography import x509

        key = _new_key()
        subject = _name("Barnabas development authority")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = (
            _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        _write(path, _pem(_signed(builder, key)))
        _write(key_path, _pem(key))


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANIZATION)
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    begin = now - datetime.timedelta(hours=1)  # for machines whose clocks are behind
    end = now + datetime.timedelta(days=days)
    return x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin, end)


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(value: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if isinstance(value, x509.Certificate):
        return value.public_bytes(Encoding.PEM)
    return value.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone can read; raises `FileExistsError` rather than write into another's."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
