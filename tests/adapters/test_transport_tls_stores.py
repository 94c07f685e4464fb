"""Certificates and keys are read from PEM files and texts and from PKCS#12; errors name the key to change."""

from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from support.certificates import authority, certificate, chain, pem, server_settings, write_pem

from barnabas.adapters.transport_tls import client_tls, server_tls
from barnabas.adapters.transport_tls.contexts import openssl_name
from barnabas.core.security.ssl_settings import SslSettings
from barnabas.ports.errors import ConfigError
from barnabas.ports.values import Secret

LEAF = certificate("127.0.0.1", common_name="store")
PASSWORD = "secret of the store"


def encrypted_key() -> str:
    key = load_pem_private_key(LEAF.private_key_pem.bytes(), None)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def pkcs12_file(folder: Path, *, with_key: bool) -> str:
    path = folder / "store.p12"
    key = load_pem_private_key(LEAF.private_key_pem.bytes(), None)
    own = x509.load_pem_x509_certificate(LEAF.cert_chain_pems[0].bytes())
    trusted = x509.load_pem_x509_certificate(authority().cert_pem.bytes())
    encryption = BestAvailableEncryption(PASSWORD.encode())
    if with_key:
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, own, None, encryption))  # type: ignore[arg-type]
    else:
        path.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [trusted], encryption))
    return str(path)


def test_pem_file_with_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    path = write_pem(tmp_path, "own.pem", encrypted_key() + chain(LEAF))
    server_tls(SslSettings(keystore_location=path, key_password=Secret(PASSWORD)))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is not set") as error:
        server_tls(SslSettings(keystore_location=path))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is wrong") as error:
        server_tls(SslSettings(keystore_location=path, key_password=Secret("a guess")))
    assert "a guess" not in str(error.value)


def test_pem_text_on_one_line_is_read_as_kafka_reads_it() -> None:
    key, certificates = (text.replace("\n", " ") for text in (pem(LEAF.private_key_pem), chain(LEAF)))
    trusted = pem(authority().cert_pem).replace("\n", " ")
    settings = SslSettings(
        keystore_key=Secret(key), keystore_certificate_chain=certificates, truststore_certificates=trusted
    )
    server_tls(settings)
    client_tls(settings)


def test_pkcs12_files_are_key_stores_and_trust_stores(tmp_path: Path) -> None:
    own = pkcs12_file(tmp_path, with_key=True)
    server_tls(SslSettings(keystore_location=own, keystore_password=Secret(PASSWORD)))
    with pytest.raises(ConfigError, match="its password is wrong"):
        server_tls(SslSettings(keystore_location=own, keystore_password=Secret("a guess")))
    trusted = pkcs12_file(tmp_path, with_key=False)
    client_tls(SslSettings(truststore_location=trusted, truststore_password=Secret(PASSWORD)))
    with pytest.raises(ConfigError, match="no private key"):
        server_tls(SslSettings(keystore_location=trusted, keystore_password=Secret(PASSWORD)))


def test_java_key_store_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "old.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    for settings in (SslSettings(keystore_location=str(path)), SslSettings(truststore_location=str(path))):
        make = server_tls if settings.has_certificate else client_tls
        with pytest.raises(ConfigError, match="keytool -importkeystore"):
            make(settings)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"keystore_location": "/nowhere"}, "cannot read /nowhere"),
        ({"enabled_protocols": ("TLSv1.1",)}, "ssl.enabled.protocols has TLSv1.1"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, "must name all suites of TLS 1.3 or none"),
        ({"truststore_certificates": "nothing", "client_auth": "required"}, "ssl.truststore.certificates"),
    ],
)
def test_bad_settings_name_the_key_to_change(change: dict[str, Any], fault: str) -> None:
    from attrs import evolve

    base = server_settings()
    if "keystore_location" in change:
        base = SslSettings()
    with pytest.raises(ConfigError) as error:
        server_tls(evolve(base, **change))
    assert fault in str(error.value)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_names_of_java_or_openssl(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    server_tls(server_settings(cipher_suites=(java,)))
