"""Certificates and limits of connections that AlterConfigs changes while a broker runs."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from attrs import define
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from support.certificates import authority, chain, pem, write_pem
from support.waiting import wait_for

from barnabas import Admin, Broker, Producer
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

PATIENCE_S = 300
PASSWORD = "planted-key-password-4c1d"
LOCATION = "listener.name.ssl.ssl.keystore.location"
KEY_PASSWORD = "listener.name.ssl.ssl.key.password"


def issued(*hosts: str, of: str = "test") -> trustme.LeafCert:
    """Return a further certificate for the hosts with the subject of the earlier ones."""
    return authority(of).issue_cert(
        *hosts, common_name="broker", organization_name="Barnabas", organization_unit_name="brokers"
    )


def store(folder: Path, name: str, leaf: trustme.LeafCert, password: str | None = None) -> str:
    key = pem(leaf.private_key_pem)
    if password is not None:
        form = BestAvailableEncryption(password.encode())
        key = load_pem_private_key(key.encode(), None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, form).decode()
    return write_pem(folder, name, key + chain(leaf))


def serial(leaf: trustme.LeafCert) -> int:
    return x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number


@define
class Harness:
    folder: Path
    broker: Broker
    client: dict[str, str]
    first: trustme.LeafCert

    def presented(self) -> int:
        """Return the serial number of the certificate that a new connection gets."""
        host, _, port = self.broker.bootstrap.rpartition(":")
        context = ssl.create_default_context(cadata=pem(authority().cert_pem))
        with (
            socket.create_connection((host, int(port)), PATIENCE_S) as sock,
            context.wrap_socket(sock, server_hostname=host) as tls,
        ):
            return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"").serial_number

    def set(self, changes: dict[str, str | None]) -> None:
        with Admin(self.broker.bootstrap, config=self.client) as admin:
            admin.alter_configs(ResourceKind.BROKER, "1", changes)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    first = issued("127.0.0.1")
    ca = write_pem(tmp_path, "ca.pem", pem(authority().cert_pem))
    client = {"security.protocol": "SSL", "ssl.truststore.location": ca}
    with Broker(tmp_path / "data", config=settings(tmp_path, store(tmp_path, "first.pem", first))) as broker:
        yield Harness(tmp_path, broker, client, first)


def settings(folder: Path, keystore: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def test_certificate_set_by_alter_configs_is_used_by_new_connections_while_old_ones_continue(harness: Harness) -> None:
    second = issued("127.0.0.1", "other.example")
    with Producer(harness.broker.bootstrap, config=harness.client) as producer:
        producer.send("t", b"before").result(PATIENCE_S)
        assert harness.presented() == serial(harness.first)
        harness.set({LOCATION: store(harness.folder, "second.pem", second)})
        wait_for(lambda: harness.presented() == serial(second), PATIENCE_S)
        producer.send("t", b"after").result(PATIENCE_S)
    with pytest.raises(ApiError, match=r"ssl\.allow\.san\.changes"):  # the first one lacks a name of the second
        harness.set({LOCATION: None})


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda folder: str(folder / "missing.pem"), "cannot read"),
        (lambda folder: write_pem(folder, "bad.pem", "no certificate"), "is not PKCS12"),
        (lambda folder: store(folder, "foreign.pem", issued("127.0.0.1", of="foreign")), "does not verify"),
        (lambda folder: store(folder, "san.pem", issued("elsewhere.example")), "ssl.allow.san.changes"),
        (lambda folder: store(folder, "locked.pem", issued("127.0.0.1"), PASSWORD), "ssl.key.password is not set"),
    ],
)
def test_certificate_that_cannot_be_used_is_an_invalid_request_and_the_old_one_stays(
    harness: Harness, make: object, fault: str
) -> None:
    assert callable(make)
    with pytest.raises(ApiError, match=fault) as refused:
        harness.set({LOCATION: make(harness.folder)})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert "listener SSL" in str(refused.value)
    assert harness.presented() == serial(harness.first)
    with Admin(harness.broker.bootstrap, config=harness.client) as admin:
        assert admin.describe_configs(ResourceKind.BROKER, "1", [LOCATION]) == []


def test_same_location_set_again_reads_the_changed_file_and_refuses_a_bad_one(harness: Harness) -> None:
    path = store(harness.folder, "first.pem", issued("127.0.0.1"))
    harness.set({LOCATION: path})
    second = issued("127.0.0.1")
    store(harness.folder, "first.pem", second)
    harness.set({LOCATION: path})
    wait_for(lambda: harness.presented() == serial(second), PATIENCE_S)
    write_pem(harness.folder, "first.pem", "damaged")
    with pytest.raises(ApiError, match="is not PKCS12") as refused:
        harness.set({LOCATION: path})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert harness.presented() == serial(second)


def test_password_of_a_key_is_never_shown_and_survives_a_restart(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    second = issued("127.0.0.1")
    path = store(harness.folder, "second.pem", second, PASSWORD)
    harness.set({LOCATION: path, KEY_PASSWORD: PASSWORD})
    wait_for(lambda: harness.presented() == serial(second), PATIENCE_S)
    with Admin(harness.broker.bootstrap, config=harness.client) as admin:
        shown = {each.name: each for each in admin.describe_configs(ResourceKind.BROKER, "1")}
    assert shown[LOCATION].value == path and not shown[LOCATION].sensitive
    assert shown[KEY_PASSWORD].value is None and shown[KEY_PASSWORD].sensitive
    assert PASSWORD not in str(shown) + caplog.text
    harness.broker.close()
    with Broker(harness.folder / "data", config=settings(harness.folder, str(harness.folder / "first.pem"))) as again:
        harness.broker = again
        assert harness.presented() == serial(second)
    assert PASSWORD not in caplog.text


def test_limit_of_connections_per_address_changes_while_the_broker_runs(harness: Harness) -> None:
    harness.set({"max.connections.per.ip": "1"})
    host, _, port = harness.broker.bootstrap.rpartition(":")
    context = ssl.create_default_context(cadata=pem(authority().cert_pem))
    sockets: list[socket.socket] = []

    def connects() -> bool:
        try:
            sock = socket.create_connection((host, int(port)), PATIENCE_S)
            sockets.append(context.wrap_socket(sock, server_hostname=host))
        except OSError:
            return False
        return True

    wait_for(connects, PATIENCE_S)  # the connections of the administrator have closed
    assert not connects()  # a second one is closed at once
    sockets.pop().close()
    wait_for(connects, PATIENCE_S)
    sockets.pop().close()
