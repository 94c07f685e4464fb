"""`barnabas certs` and `--secure`: from nothing to a secured broker and a secured cluster."""

import os
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from support.cluster_process import cluster_process
from support.managed_etcd import etcd_of
from support.process import COMMAND
from typer.testing import CliRunner

from barnabas import Admin, Consumer, Producer
from barnabas.app.cli.main import build_app
from barnabas.app.secure_start import SecureFolder
from barnabas.ports.errors import BarnabasError, ConfigError

PATIENCE_S = 300


def settings_of(folder: Path, **more: str) -> dict[str, str]:
    lines = (folder / "admin.properties").read_text().splitlines()
    return {**dict(line.split("=", 1) for line in lines), **more}


def certs(*words: str) -> str:
    result = CliRunner().invoke(build_app("certs"), ["certs", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_certs_create_makes_files_for_their_owner_only(tmp_path: Path) -> None:
    out = tmp_path / "certs"
    shown = certs("create", "--out", str(out), "--hosts", "kafka.example,10.0.0.1", "--user", "alice")
    assert "kafka.example" in shown
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    files = sorted(out.iterdir())
    assert [file.name for file in files] == ["alice.pem", "broker.pem", "ca-key.pem", "ca.pem"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_certificates_verify_by_their_authority_for_their_hosts(tmp_path: Path) -> None:
    certs("create", "--out", str(tmp_path), "--hosts", "localhost", "--user", "alice")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "broker.pem")
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client.load_cert_chain(tmp_path / "alice.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[1].getpeercert() is not None


def test_second_call_keeps_the_authority_and_adds_what_is_missing(tmp_path: Path) -> None:
    certs("create", "--out", str(tmp_path))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    shown = certs("create", "--out", str(tmp_path), "--user", "bob")
    assert shown.count("exists") == 2
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "bob.pem").exists()


@pytest.mark.parametrize("name", ["../x", "ca", "ca-key", "a/b"])
def test_names_that_would_overwrite_other_files_are_refused(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(build_app("certs"), ["certs", "create", "--out", str(tmp_path), "--user", name])
    assert isinstance(result.exception, ConfigError)


def test_secure_folder_shows_no_password(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path / "security")
    password = (tmp_path / "security" / "admin.password").read_text()
    assert len(password) >= 32
    shown = folder.how_to_connect("localhost:9092") + repr(folder.broker_settings([]))
    assert password not in shown
    with pytest.raises(ConfigError, match="--secure sets authorizer"):
        folder.broker_settings(["authorizer.class.name"])


@pytest.mark.slow
def test_secured_cluster_serves_its_admin_only(tmp_path: Path) -> None:
    with cluster_process(tmp_path / "data", "--brokers", "2", "--secure") as cluster:
        folder = tmp_path / "data" / "security"
        settings = settings_of(folder)
        (etcd,) = (each for each in [etcd_of(tmp_path / "data" / "etcd")] if each is not None)
        flags = etcd.cmdline()
        assert "--client-cert-auth=true" in flags
        assert "--peer-client-cert-auth=true" in flags
        assert not any("http://" in each for each in flags)
        with Admin(cluster.bootstrap, config=settings) as admin:
            admin.create_topic("secured", replication_factor=2)
        with Producer(cluster.bootstrap, acks="all", config=settings) as producer:
            producer.send("secured", b"one").result(PATIENCE_S)
        with Consumer(cluster.bootstrap, group_id="g", auto_offset_reset="earliest", config=settings) as consumer:
            consumer.subscribe("secured")
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.value == b"one"
        with (
            Admin(cluster.bootstrap, default_api_timeout_ms=3000) as stranger,
            pytest.raises(BarnabasError, match=r"security\.protocol"),
        ):
            stranger.list_topics()
        listed = subprocess.run(
            [COMMAND, "topics", "list", "--bootstrap", cluster.bootstrap],
            env={**os.environ, "BARNABAS_COMMAND_CONFIG": str(folder / "admin.properties")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "secured" in listed.stdout
        password = (folder / "admin.password").read_text()
        assert "--command-config" in cluster.log()
        assert password not in cluster.log()
        commands = Path(f"/proc/{cluster.process.pid}/task/{cluster.process.pid}/children").read_text().split()
        assert all(password not in Path(f"/proc/{child}/cmdline").read_text() for child in commands)
