"""Apache Kafka's console tools, as one types them. Those that end by themselves share a process of Java."""

import itertools
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .java_client import QUICK, java_4, java_classpath, kerberos_options
from .logins import Login, java_settings
from .member_process import MemberProcess
from .model import EARLIEST, HEARTBEAT_MS, PATIENCE_S, PLAINLY, SESSION_MS, GroupView, Record, Sending, Start
from .remote import RemoteClient

_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_OAUTH = "org.apache.kafka.sasl.oauthbearer"
_SEPARATOR, _NULL = " | ", "<null>"
_SHOWN = ("timestamp", "partition", "offset", "headers", "key")


class ConsoleTools:
    """kafka-console-producer and -consumer, kafka-topics, kafka-configs, kafka-get-offsets, kafka-consumer-groups."""

    def __init__(self, bootstrap: str) -> None:
        self._java: RemoteClient = java_4(bootstrap)
        self.version = self._java.version
        self._bootstrap = bootstrap
        self._numbers = itertools.count(1)
        self._login: list[str] = []
        self._allowed: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="console-tools-"))

    def log_in(self, login: Login) -> None:
        file = self._folder / "client.properties"
        settings = java_settings(login, store_type="PKCS12")
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._bootstrap, self._login = login.bootstrap, ["--command-config", str(file)]
        if login.token_file is not None:
            allowed = {"urls": f"file://{login.token_file}", "files": login.token_file}
            self._allowed = [f"-D{_OAUTH}.allowed.{what}={value}" for what, value in allowed.items()]
        self._java.log_in(login)

    def close(self) -> None:
        self._java.close()
        shutil.rmtree(self._folder)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Return the output of a tool, by the name of its class. Raises `RuntimeError` when it fails."""
        words = ["--bootstrap-server", self._bootstrap, *self._login, *arguments]
        done = self._java.process.call("tool", **{"class": tool, "arguments": words, "stdin": stdin})
        said: str = done["out"]
        if done["code"] or "ERROR" in done["error"]:
            error = done["error"] if len(done["error"]) < 1000 else f"{done['error'][:500]}...{done['error'][-500:]}"
            raise RuntimeError(f"{tool} ended with {done['code']}: {said[-300:]} {error}")
        return said

    # --- messages

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        properties = {"enable.idempotence": str(how.idempotent).lower(), "max.request.size": str(how.max_bytes)}
        options = ["--topic", topic, "--compression-codec", how.codec, "--request-required-acks", how.acks]
        options += _options("--command-property", properties)
        if self._login:
            options.append("--sync")  # else it does not say that a message was refused
        if any(record.key is not None or record.value is None or record.headers for record in records):
            reading = {"parse.key": "true", "parse.headers": "true", "null.marker": _NULL}
            reading |= {"key.separator": _SEPARATOR, "headers.delimiter": _SEPARATOR}
            options += _options("--reader-property", reading)
            lines = [_SEPARATOR.join((_headers(r), _text(r.key), _text(r.value))) for r in records]
        else:
            lines = [_text(record.value) for record in records]
        self.run(_PRODUCER, *options, stdin="".join(f"{line}\n" for line in lines))

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        offset = start.offset
        if start.timestamp_ms is not None:
            offset = self._offset(topic, start.timestamp_ms)
        properties = {"max.partition.fetch.bytes": str(start.max_bytes), "fetch.max.wait.ms": "100"}
        if start.rack:
            properties |= {"client.rack": start.rack, "metadata.max.age.ms": "1000"}
        said = self.run(
            _CONSUMER,
            *("--topic", topic, "--partition", str(start.partition), "--offset", str(offset)),
            *("--max-messages", str(count), "--timeout-ms", str(int(PATIENCE_S * 1000))),
            *_options("--command-property", properties),
            *_formatting(),
        )
        return [record for record in map(_record, said.splitlines()) if record is not None]

    def join(self, group: str, topic: str, *, assignor: str = "") -> "_ConsoleMember":
        properties = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": str(HEARTBEAT_MS)}
        if assignor:
            short = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}[assignor]
            properties["partition.assignment.strategy"] = f"org.apache.kafka.clients.consumer.{short}"
        return self._join(group, topic, properties)

    def join_consumer_group(self, group: str, topic: str) -> "_ConsoleMember":
        return self._join(group, topic, {"group.protocol": "consumer"})

    def _join(self, group: str, topic: str, settings: Mapping[str, str]) -> "_ConsoleMember":
        name = f"console-{next(self._numbers)}"
        properties = {"client.id": name, "fetch.max.wait.ms": "100", **settings}
        command = [
            "java",
            *QUICK,
            *self._allowed,
            *kerberos_options(),
            "-cp",
            java_classpath(4),
            _CONSUMER,
            "--bootstrap-server",
            self._bootstrap,
        ]
        command += [*self._login, "--topic", topic, "--group", group, "--from-beginning"]
        command += [*_options("--command-property", properties), *_formatting()]
        return _ConsoleMember(command, self._java, group, name)

    # --- administration

    def _offset(self, topic: str, time: int) -> int:
        said = self.run(_OFFSETS, "--topic", topic, "--partitions", "0", "--time", str(time))
        return int(said.strip().rpartition(":")[2] or -1)

    def offsets(self, topic: str) -> tuple[int, int]:
        return self._offset(topic, -2), self._offset(topic, -1)

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        offset = self._offset(topic, timestamp_ms)
        return offset if offset >= 0 else None

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        options = ["--topic", topic, "--partitions", str(partitions), "--replication-factor", "1"]
        self.run(_TOPICS, "--create", *options, *_options("--config", configs))

    def partitions(self, topic: str) -> int | None:
        if topic not in self.run(_TOPICS, "--list").split():
            return None
        found = re.search(r"PartitionCount: (\d+)", self.run(_TOPICS, "--describe", "--topic", topic))
        return int(found[1]) if found else None

    def add_partitions(self, topic: str, count: int) -> None:
        self.run(_TOPICS, "--alter", "--topic", topic, "--partitions", str(count))

    def set_config(self, topic: str, key: str, value: str) -> None:
        where = ["--entity-type", "topics", "--entity-name", topic]
        self.run(_CONFIGS, "--alter", *where, "--add-config", f"{key}={value}")

    def topic_config(self, topic: str, key: str) -> str | None:
        said = self.run(_CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
        found = re.search(rf"^\s*{re.escape(key)}=(\S*)", said, re.MULTILINE)
        return found[1] if found else None

    def delete_topic(self, topic: str) -> None:
        self.run(_TOPICS, "--delete", "--topic", topic)

    def groups(self) -> list[str]:
        return self.run(_GROUPS, "--list").split()

    def group(self, group: str) -> GroupView:
        state = self._table("--describe", "--group", group, "--state")[0]
        rows = self._table("--describe", "--group", group)
        return GroupView(
            state=state["STATE"],
            members=int(state["#MEMBERS"]),
            partitions=frozenset((row["TOPIC"], int(row["PARTITION"])) for row in rows if row["CONSUMER-ID"] != "-"),
        )

    def _table(self, *arguments: str) -> list[dict[str, str]]:
        """Return the rows that kafka-consumer-groups prints, by the names of their columns."""
        lines = [line for line in self.run(_GROUPS, *arguments).splitlines() if line.strip()]
        names = lines[0].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
        return [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]


class _ConsoleMember(MemberProcess):
    """A member that does not print its assignment: the group is described instead."""

    def __init__(self, command: Sequence[str], java: RemoteClient, group: str, name: str) -> None:
        self._java, self._group, self._name = java, group, name
        super().__init__(command, _record, lambda _: None)

    def assignment(self) -> frozenset[tuple[str, int]]:
        self.received()
        try:
            found: dict[str, Any] = self._java.process.call("group", group=self._group)
        except RuntimeError as error:
            if "GroupIdNotFoundException" not in str(error):
                raise
            return frozenset()  # no member has joined yet
        if found["state"] != "Stable":
            return frozenset()
        return frozenset((topic, partition) for topic, partition in found["clients"].get(self._name, ()))


def _options(option: str, settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in (option, f"{key}={value}")]


def _formatting() -> list[str]:
    settings = {f"print.{what}": "true" for what in _SHOWN}
    return _options("--formatter-property", {**settings, "key.separator": _SEPARATOR, "null.literal": _NULL})


def _text(data: bytes | None) -> str:
    return _NULL if data is None else data.decode()


def _bytes(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


def _headers(record: Record) -> str:
    return ",".join(f"{name}:{_text(value)}" for name, value in record.headers) or _NULL


def _record(line: str) -> Record | None:
    """`CreateTime:1 | Partition:0 | Offset:0 | a:1,b:two | key | value`"""
    parts = line.split(_SEPARATOR, len(_SHOWN))
    if len(parts) <= len(_SHOWN):
        return None
    timestamp, partition, offset, headers, key, value = parts
    pairs = [] if headers == "NO_HEADERS" else [pair.partition(":") for pair in headers.split(",")]
    return Record(
        value=_bytes(value),
        key=_bytes(key),
        headers=tuple((name, _bytes(content)) for name, _, content in pairs),
        timestamp_ms=int(timestamp.partition(":")[2]),
        partition=int(partition.partition(":")[2]),
        offset=int(offset.partition(":")[2]),
    )
