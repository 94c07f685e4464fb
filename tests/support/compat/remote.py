"""A client library of another language: a process that takes commands as lines of JSON and answers in lines of JSON."""

import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from .logins import Login, driver_settings
from .model import (
    EARLIEST,
    HEARTBEAT_MS,
    PATIENCE_S,
    PLAINLY,
    SESSION_MS,
    GroupView,
    Record,
    Sending,
    Start,
    Unavailable,
)


class DriverProcess:
    """Commands may be under way together; answers come in any order."""

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environment),
            )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="compatibility-driver")
        self._reader.start()

    def call(self, name: str, **fields: Any) -> Any:
        """Raises `RuntimeError` with the library's own words."""
        done: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = done
            try:
                self._process.stdin.write(json.dumps({"id": number, "do": name, **fields}).encode() + b"\n")
                self._process.stdin.flush()
            except OSError as error:
                raise Unavailable(f"the driver ended: {self._last_words()}") from error
        return done.result(PATIENCE_S * 2)

    def close(self) -> None:
        try:
            self.call("exit")
            self._process.wait(PATIENCE_S)
            self._log.unlink(missing_ok=True)
        except (Unavailable, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(PATIENCE_S)
        finally:
            self._reader.join(PATIENCE_S)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                done = self._waiting.pop(answer["id"])
            if "error" in answer:
                done.set_exception(RuntimeError(answer["error"]))
            else:
                done.set_result(answer["ok"])
        with self._lock:
            left, self._waiting = self._waiting, {}
        for done in left.values():
            done.set_exception(Unavailable(f"the driver ended: {self._last_words()}"))

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-500:].strip()


class RemoteClient:
    """The calls of a client, as commands."""

    def __init__(
        self,
        process: DriverProcess,
        bootstrap: str,
        settings_of: Callable[[Login], Mapping[str, Any]] = driver_settings,
    ) -> None:
        """`settings_of` puts a login into the words of the library."""
        self.process = process
        self._settings_of = settings_of
        self._numbers = itertools.count(1)
        try:
            self.version = str(process.call("start", bootstrap=bootstrap)["version"])
        except BaseException:
            process.close()
            raise

    def log_in(self, login: Login) -> None:
        self.process.call("login", bootstrap=login.bootstrap, settings=self._settings_of(login))

    def close(self) -> None:
        self.process.close()

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        self.process.call(
            "produce",
            topic=topic,
            records=[_to_json(record) for record in records],
            codec=how.codec,
            acks=how.acks,
            idempotent=how.idempotent,
            maxBytes=how.max_bytes,
        )

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        found = self.process.call(
            "read",
            group=f"read {topic} {next(self._numbers)}",
            topic=topic,
            count=count,
            partition=start.partition,
            offset=start.offset,
            timestamp=start.timestamp_ms,
            maxBytes=start.max_bytes,
            committed=start.committed,
        )
        return [_from_json(record) for record in found]

    def transact(self, name: str, topic: str, records: Sequence[Record], *, commit: bool) -> None:
        sent = [_to_json(record) for record in records]
        self.process.call("transact", transactionalId=name, topic=topic, records=sent, commit=commit)

    def zombie(self, name: str, topic: str, first: Record, second: Record) -> str:
        said: str = self.process.call(
            "zombie", transactionalId=name, topic=topic, first=_to_json(first), second=_to_json(second)
        )
        return said

    def transform(self, name: str, group: str, source: str, topic: str, count: int, *, commit: bool) -> None:
        self.process.call(
            "transform", transactionalId=name, group=group, source=source, topic=topic, count=count, commit=commit
        )

    def join(self, group: str, topic: str, *, assignor: str = "") -> "_RemoteMember":
        number = next(self._numbers)
        self.process.call(
            "join",
            member=number,
            group=group,
            topic=topic,
            assignor=assignor,
            sessionMs=SESSION_MS,
            heartbeatMs=HEARTBEAT_MS,
        )
        return _RemoteMember(self.process, number)

    def join_consumer_group(self, group: str, topic: str) -> "_RemoteMember":
        number = next(self._numbers)
        self.process.call("joinConsumerGroup", member=number, group=group, topic=topic)
        return _RemoteMember(self.process, number)

    def join_share_group(self, group: str, topic: str, released: Collection[bytes]) -> "_RemoteMember":
        number = next(self._numbers)
        values = [_text(value) for value in released]
        self.process.call("joinShareGroup", member=number, group=group, topic=topic, released=values)
        return _RemoteMember(self.process, number)

    def offsets(self, topic: str) -> tuple[int, int]:
        first, end = self.process.call("offsets", topic=topic)
        return first, end

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        offset: int = self.process.call("offsetForTime", topic=topic, timestamp=timestamp_ms)
        return offset if offset >= 0 else None

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.process.call("create", topic=topic, partitions=partitions, configs=dict(configs))

    def partitions(self, topic: str) -> int | None:
        count: int | None = self.process.call("partitions", topic=topic)
        return count

    def add_partitions(self, topic: str, count: int) -> None:
        self.process.call("addPartitions", topic=topic, count=count)

    def set_config(self, topic: str, key: str, value: str) -> None:
        self.process.call("setConfig", topic=topic, key=key, value=value)

    def topic_config(self, topic: str, key: str) -> str | None:
        value: str | None = self.process.call("topicConfig", topic=topic, key=key)
        return value

    def delete_topic(self, topic: str) -> None:
        self.process.call("deleteTopic", topic=topic)

    def groups(self) -> list[str]:
        found: list[str] = self.process.call("groups")
        return found

    def group(self, group: str) -> GroupView:
        found = self.process.call("group", group=group)
        topic_partitions = frozenset((topic, partition) for topic, partition in found["partitions"])
        return GroupView(state=found["state"], members=found["members"], partitions=topic_partitions)


class _RemoteMember:
    def __init__(self, process: DriverProcess, number: int) -> None:
        self._process, self._number = process, number
        self._received: list[Record] = []
        self._assignment: frozenset[tuple[str, int]] = frozenset()

    def _ask(self) -> None:
        state = self._process.call("state", member=self._number, **{"from": len(self._received)})
        self._received += map(_from_json, state["received"])
        self._assignment = frozenset((topic, partition) for topic, partition in state["assignment"])

    def assignment(self) -> frozenset[tuple[str, int]]:
        self._ask()
        return self._assignment

    def received(self) -> list[Record]:
        self._ask()
        return list(self._received)

    def commit(self) -> None:
        self._process.call("commit", member=self._number)

    def close(self) -> None:
        self._process.call("leave", member=self._number)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "value": _text(record.value),
        "key": _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def _from_json(record: Mapping[str, Any]) -> Record:
    return Record(
        value=_bytes(record["value"]),
        key=_bytes(record["key"]),
        headers=tuple((name, _bytes(value)) for name, value in record["headers"]),
        timestamp_ms=record["timestamp"],
        partition=record["partition"],
        offset=record["offset"],
        delivery_count=record.get("deliveryCount", 0),
    )
