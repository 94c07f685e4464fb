"""`--secure`: brokers with TLS, users by SCRAM and ACLs, from nothing but a folder.

The folder has a development authority, the brokers' certificate, the password of the user `admin`, and the settings of
a client for `--command-config` and for librdkafka. What exists in it remains.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..ports.errors import ConfigError
from ..ports.values import Secret
from .certificates import DevelopmentAuthority
from .config.authorizer_keys import STANDARD_AUTHORIZER

ADMIN = "admin"
CLIENT_FILE = "admin.properties"
LIBRDKAFKA_FILE = "admin.librdkafka"
_PASSWORD_FILE = "admin.password"
_BROKER = "broker"
_MECHANISM = "SCRAM-SHA-512"
_DAYS = 825
_LOCAL = ("localhost", "127.0.0.1", "::1")
_OWN = ("listeners", "authorizer.class.name", "security.inter.broker.protocol", "ssl.keystore.location")
_PASSWORD_BYTES = 24


class SecureFolder:
    """The files of secured brokers on this machine."""

    def __init__(self, folder: Path, hosts: Sequence[str] = ()) -> None:
        """Make what is missing in the folder. Raises `ConfigError`."""
        self.folder = folder.absolute()
        authority = DevelopmentAuthority(self.folder)
        names = dict.fromkeys((*_LOCAL, *(host for host in hosts if host not in ("", "0.0.0.0", "::"))))
        self._broker = authority.issue(_BROKER, tuple(names), _DAYS).path
        self._authority = authority.path
        self._password = self._read_password()
        self.client_file = self.folder / CLIENT_FILE
        self._write(CLIENT_FILE, self._client_settings())
        self._write(LIBRDKAFKA_FILE, self._librdkafka_settings())

    def broker_settings(self, given: Sequence[str]) -> dict[str, object]:
        """Return the settings of a broker; `given` names those of the user. Raises `ConfigError` if one of them is a
        setting that belongs to `--secure`."""
        for key in _OWN:
            if key in given:
                raise ConfigError(f"--secure sets {key}; leave one of them out")
        password = self._password.value
        login = f'ScramLoginModule required username="{ADMIN}" password="{password}";'
        return {
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": _MECHANISM,
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            "sasl.scram.bootstrap.users": Secret(f"{_MECHANISM}=[name={ADMIN},password={password}]"),
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": Secret(login),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN}",
        }

    def etcd_settings(self) -> dict[str, str]:
        """Return the settings of an etcd that the brokers run themselves: only who has a certificate of the authority
        gets in."""
        broker = str(self._broker)
        return {"etcd.cacert": str(self._authority), "etcd.cert": broker, "etcd.key": broker}

    def how_to_connect(self, bootstrap: str) -> str:
        """Return the lines that say how to connect; passwords stand in files only."""
        file, authority, password = self.client_file, self._authority, self.folder / _PASSWORD_FILE
        return (
            f"secured with TLS, {_MECHANISM} and ACLs; the user {ADMIN} may do everything. To connect:\n"
            f"  barnabas          barnabas topics list --bootstrap {bootstrap} --command-config {file}\n"
            f"  Java              kafka-topics.sh --list --bootstrap-server {bootstrap} --command-config {file}\n"
            f"  kcat              kcat -F {self.folder / LIBRDKAFKA_FILE} -L -b {bootstrap}\n"
            f"  confluent-kafka   AdminClient({{'bootstrap.servers': '{bootstrap}', 'security.protocol': 'SASL_SSL', "
            f"'ssl.ca.location': '{authority}', 'sasl.mechanisms': '{_MECHANISM}', 'sasl.username': '{ADMIN}', "
            f"'sasl.password': open('{password}').read()}})\n"
        )

    def _client_settings(self) -> str:
        login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{ADMIN}"'
        return (
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={_MECHANISM}\n"
            f'sasl.jaas.config={login} password="{self._password.value}";\n'
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self._authority}\n"
        )

    def _librdkafka_settings(self) -> str:
        return (
            "security.protocol=SASL_SSL\n"
            f"ssl.ca.location={self._authority}\n"
            f"sasl.mechanisms={_MECHANISM}\n"
            f"sasl.username={ADMIN}\n"
            f"sasl.password={self._password.value}\n"
        )

    def _read_password(self) -> Secret[str]:
        self._write(_PASSWORD_FILE, secrets.token_urlsafe(_PASSWORD_BYTES))
        try:
            return Secret((self.folder / _PASSWORD_FILE).read_text().strip())
        except OSError as error:
            raise ConfigError(f"{self.folder / _PASSWORD_FILE}: cannot read it: {error.strerror}") from None

    def _write(self, name: str, content: str) -> None:
        """Write a file for its owner alone, unless it exists."""
        path = self.folder / name
        with suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(content)
