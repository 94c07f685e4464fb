"""Subjects of certificates are written as Java's X500Principal writes them (seen on Java 17)."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID as Oid

from barnabas.core.security.distinguished_name import subject_of
from barnabas.ports.errors import Malformed


def certificate(*parts: x509.RelativeDistinguishedName | x509.NameAttribute[str]) -> bytes:
    rdns = [
        each if isinstance(each, x509.RelativeDistinguishedName) else x509.RelativeDistinguishedName([each])
        for each in parts
    ]
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    name = x509.Name([x509.NameAttribute(Oid.COMMON_NAME, "issuer")])
    builder = x509.CertificateBuilder(name, x509.Name(rdns), key.public_key(), 1, now, now + datetime.timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def attribute(oid: x509.ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value)


def test_parts_stand_in_reverse_order_with_keywords() -> None:
    subject = certificate(
        attribute(Oid.COUNTRY_NAME, "US"),
        attribute(Oid.STATE_OR_PROVINCE_NAME, "MD"),
        attribute(Oid.LOCALITY_NAME, "Fulton"),
        attribute(Oid.ORGANIZATION_NAME, "mycp"),
        attribute(Oid.ORGANIZATIONAL_UNIT_NAME, "SME"),
        attribute(Oid.COMMON_NAME, "kafka1"),
    )
    assert subject_of(subject) == "CN=kafka1,OU=SME,O=mycp,L=Fulton,ST=MD,C=US"


def test_special_characters_are_escaped() -> None:
    subject = certificate(
        attribute(Oid.ORGANIZATION_NAME, "x,y=z"),
        attribute(Oid.ORGANIZATIONAL_UNIT_NAME, " lead "),
        attribute(Oid.COMMON_NAME, 'a#b"c\\ä'),
    )
    assert subject_of(subject) == r"CN=a\#b\"c\\ä,OU=\ lead\ ,O=x\,y\=z"


def test_other_attributes_are_written_by_number_and_content() -> None:
    subject = certificate(attribute(Oid.SERIAL_NUMBER, "12"), attribute(Oid.EMAIL_ADDRESS, "a@b.c"))
    assert subject_of(subject) == "1.2.840.113549.1.9.1=#16056140622e63,2.5.4.5=#13023132"


def test_parts_with_several_attributes_join_them_by_plus() -> None:
    both = x509.RelativeDistinguishedName([attribute(Oid.COMMON_NAME, "a"), attribute(Oid.USER_ID, "b")])
    assert sorted(subject_of(certificate(both)).split("+")) == ["CN=a", "UID=b"]


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x82\xff\xff", b"\x31\x00", bytes(50)])
def test_damaged_certificates_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match="certificate"):
        subject_of(data)
