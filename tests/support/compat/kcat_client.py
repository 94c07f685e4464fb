"""kcat, from Debian: an older librdkafka behind a command. It has no administration."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .fetched import need
from .logins import Login, librdkafka_settings
from .member_process import MemberProcess, output_of
from .model import EARLIEST, HEARTBEAT_MS, PLAINLY, SESSION_MS, Record, Sending, Start, Unavailable

_SASL = Path("/usr/lib")
_PARTITION = re.compile(r"(\S+) \[(\d+)\]")


class Kcat:
    """Every call is a command of its own."""

    def __init__(self, bootstrap: str) -> None:
        need("kcat")
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"Version (\S+).*librdkafka (\S+)", said)
        self.version = f"{found[1]}, librdkafka {found[2]}" if found else said
        self._bootstrap = bootstrap
        self._login: list[str] = []

    def log_in(self, login: Login) -> None:
        """Raises `Unavailable` for GSSAPI where Cyrus SASL has no plug-in for it."""
        if login.way.mechanism == "GSSAPI" and not any(_SASL.glob("*/sasl2/libgssapiv2.so*")):
            raise Unavailable("Cyrus SASL has no GSSAPI (apt-get install libsasl2-modules-gssapi-mit)")
        self._bootstrap, self._login = login.bootstrap, _options(librdkafka_settings(login))

    def close(self) -> None:
        """Nothing is kept."""

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        settings = {
            "compression.codec": how.codec,
            "acks": how.acks,
            "enable.idempotence": str(how.idempotent).lower(),
            "message.max.bytes": str(how.max_bytes),
        }
        command = ["kcat", "-P", "-b", self._bootstrap, *self._login, "-t", topic, "-p", "0", *_options(settings)]
        if all(record.key is None and record.value is not None and not record.headers for record in records):
            output_of(command, b"".join(_line(record.value) for record in records))
            return
        for record in records:  # headers are for a whole command
            headers = [word for name, value in record.headers for word in ("-H", f"{name}={_text(value)}")]
            if record.key is None:
                output_of([*command, "-Z", *headers], _line(record.value))
            else:
                output_of([*command, "-Z", "-K", "\t", *headers], record.key + b"\t" + _line(record.value))

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        begin = str(start.offset) if start.timestamp_ms is None else f"s@{start.timestamp_ms}"
        settings = {"fetch.wait.max.ms": "100", "fetch.message.max.bytes": str(start.max_bytes), "check.crcs": "true"}
        command = [
            "kcat",
            "-C",
            "-b",
            self._bootstrap,
            *self._login,
            "-t",
            topic,
            "-p",
            str(start.partition),
            "-o",
            begin,
        ]
        said = output_of([*command, "-c", str(count), "-q", "-J", *_options(settings)])
        return [_record(line) for line in said.splitlines()]

    def join(self, group: str, topic: str, *, assignor: str = "") -> "_KcatMember":
        settings = {
            "auto.offset.reset": "earliest",
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
            "fetch.wait.max.ms": "100",
        }
        if assignor:
            settings["partition.assignment.strategy"] = assignor
        return _KcatMember(
            ["kcat", "-G", group, "-b", self._bootstrap, *self._login, "-J", "-u", *_options(settings), topic]
        )

    def offsets(self, topic: str) -> tuple[int, int]:
        return self._query(topic, -2), self._query(topic, -1)

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        offset = self._query(topic, timestamp_ms)
        return offset if offset >= 0 else None

    def _query(self, topic: str, timestamp: int) -> int:
        said = output_of(["kcat", "-Q", "-b", self._bootstrap, *self._login, "-t", f"{topic}:0:{timestamp}"])
        return int(said.split()[-1])


class _KcatMember(MemberProcess):
    """It says on standard error what it is assigned, whole or in part, and what is revoked."""

    def __init__(self, command: Sequence[str]) -> None:
        self._owned: frozenset[tuple[str, int]] = frozenset()
        super().__init__(command, _record, self._rebalanced)

    def assignment(self) -> frozenset[tuple[str, int]]:
        self.received()
        return self._owned

    def _rebalanced(self, line: str) -> None:
        if " rebalanced" not in line:
            return
        partitions = frozenset((topic, int(number)) for topic, number in _PARTITION.findall(line))
        self._owned = self._owned - partitions if "revoke" in line else self._owned | partitions


def _options(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]


def _line(value: bytes | None) -> bytes:
    return (value or b"") + b"\n"


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _record(line: str) -> Record:
    found = json.loads(line)
    headers = found.get("headers", [])
    return Record(
        value=_bytes(found["payload"]),
        key=_bytes(found["key"]),
        headers=tuple((name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)),
        timestamp_ms=found["ts"],
        partition=found["partition"],
        offset=found["offset"],
    )
