"""`--command-config`: a file of another client's settings serves a command's connections."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.app.cli import command_config
from barnabas.app.cli.command_config import connection_settings, secured_by_command_config, use_command_config
from barnabas.ports.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_file_afterwards() -> Iterator[None]:
    yield
    command_config._given.clear()


def use(folder: Path, *lines: str) -> None:
    file = folder / "kcat.conf"
    file.write_text("\n".join(lines), encoding="utf-8")
    use_command_config(file)


def test_file_of_kcat_gives_the_settings_of_connections(tmp_path: Path) -> None:
    use(
        tmp_path,
        "metadata.broker.list=kafka-1:9093",
        "security.protocol=sasl_ssl",
        "ssl.ca.location=/etc/ca.pem",
        "socket.timeout.ms=5000",
        "queue.buffering.max.kbytes=1024",
        "enable.auto.offset.store=false",
        "statistics.interval.ms=1000",
        "group.id=kcat",
    )
    assert connection_settings() == {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/etc/ca.pem",
        "socket.timeout.ms": "5000",
    }


def test_setting_that_no_client_has_is_named(tmp_path: Path) -> None:
    use(tmp_path, "socket.timeout.msec=5")
    with pytest.raises(ConfigError, match=r"--command-config: unknown setting 'socket\.timeout\.msec'"):
        connection_settings()


@pytest.mark.parametrize("key", ["ssl.crl.location", "https.ca.location", "client.dns.lookup"])
def test_setting_of_connections_that_cannot_be_had_is_refused(key: str, tmp_path: Path) -> None:
    use(tmp_path, f"{key}=something")
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        secured_by_command_config("kafka-1:9093")
