"""Certificates for tests, made once per process: authorities, and certificates of servers and users."""

from functools import cache
from pathlib import Path

import trustme

from barnabas.core.security.ssl_settings import SslSettings
from barnabas.ports.values import Secret


@cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=f"authority {name}")


def authority(name: str = "test") -> trustme.CA:
    """Return an authority of this process; another name is another authority."""
    return _authority(name)


@cache
def certificate(*hosts: str, common_name: str | None = None, of: str = "test") -> trustme.LeafCert:
    """Return a certificate for the hosts, signed by the authority `of`."""
    return authority(of).issue_cert(*hosts, common_name=common_name, organization_name="Barnabas")


def pem(blob: trustme.Blob) -> str:
    return blob.bytes().decode()


def chain(leaf: trustme.LeafCert) -> str:
    return "".join(pem(each) for each in leaf.cert_chain_pems)


def server_settings(client_auth: str = "none", leaf: trustme.LeafCert | None = None, **more: object) -> SslSettings:
    """Settings of a listener for localhost and 127.0.0.1, as PEM text."""
    leaf = leaf or certificate("localhost", "127.0.0.1", "::1")
    return SslSettings(
        keystore_type="PEM",
        keystore_key=Secret(pem(leaf.private_key_pem)),
        keystore_certificate_chain=chain(leaf),
        truststore_type="PEM",
        truststore_certificates=pem(authority().cert_pem),
        client_auth=client_auth,
        **more,  # type: ignore[arg-type]
    )


def client_settings(leaf: trustme.LeafCert | None = None, of: str = "test", **more: object) -> SslSettings:
    """Settings of a client that trusts the authority `of`, with a certificate if one is given."""
    own: dict[str, object] = {}
    if leaf is not None:
        own = {"keystore_key": Secret(pem(leaf.private_key_pem)), "keystore_certificate_chain": chain(leaf)}
    return SslSettings(
        truststore_type="PEM",
        truststore_certificates=pem(authority(of).cert_pem),
        **own,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def write_pem(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return str(path)
