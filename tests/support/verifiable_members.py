"""Members of groups in processes of their own: Kafka's VerifiableConsumer, and one by franz-go that prints alike.

Each commits what a poll has given it before it polls again.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from support.compat.fetched import fetched, need, run
from support.compat.java_client import QUICK, broker_classpath
from support.compat.model import Unavailable
from support.waiting import PATIENCE_S, wait_for

from barnabas import Producer

GROUP, TOPIC = "g", "t"
_GO = Path(__file__).parent / "compat" / "franzgo-member"
_GO_SOURCES = ("go.mod", "go.sum", "main.go")
_REFUSED = "the consumer is undergoing a rebalance"
_JAVA_ASSIGNORS = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}


def java_member(folder: Path, bootstrap: str, protocol: str, strategy: str) -> Sequence[str]:
    """Return the command of a member of the group g that reads the topic t. Skips the test without Kafka's jars."""
    try:
        command = ["java", *QUICK, "-cp", broker_classpath(), "org.apache.kafka.tools.VerifiableConsumer"]
    except Unavailable as error:
        pytest.skip(f"Apache Kafka cannot be had here: {error}")
    config = folder / f"{protocol}.properties"
    if protocol == "classic":
        config.write_text("heartbeat.interval.ms=500\n")
        name = f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS[strategy]}"
        command += ["--session-timeout", "10000", "--assignment-strategy", name]
    else:
        config.write_text("")
    words = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", GROUP, "--group-protocol", protocol]
    return [*command, *words, "--command-config", str(config)]


def franz_go_member(_folder: Path, bootstrap: str, protocol: str, strategy: str) -> Sequence[str]:
    """Return the command of a member by franz-go."""

    def build(into: Path) -> None:
        for name in _GO_SOURCES:
            shutil.copy(_GO / name, into)
        run(["go", "build", "-o", "member", "."], into, "franz-go could not be fetched and built")

    try:
        need("go")
        recipe = "\n".join((_GO / name).read_text(encoding="utf-8") for name in _GO_SOURCES)
        built = fetched("franz-go-member", recipe, build) / "member"
    except Unavailable as error:
        pytest.skip(f"franz-go cannot be had here: {error}")
    words = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", GROUP]
    return [str(built), *words, "--group-protocol", protocol, "--assignment-strategy", strategy]


def _listed(ranges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, first, last in ranges for offset in range(first, last + 1)]


class VerifiableMember:
    """One process, and what it has printed."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.partitions: set[int] = set()
        self.ranges: list[tuple[int, int, int]] = []
        """The partition, the first and the last offset of what it got, in the order of the polls."""
        self.uncommitted: set[tuple[int, int]] = set()
        """Records of polls whose commit its client refused, in the middle of a cooperative rebalance."""
        self.failures: list[dict[str, Any]] = []
        self.commits = 0
        self.has_closed = False
        self._polled: list[tuple[int, int, int]] = []
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __repr__(self) -> str:
        words = self._log.read_text(encoding="utf-8", errors="replace")[-300:]
        return f"<{sorted(self.partitions)}, {self._process.poll()}, {self.commits}, {self.failures} {words}>"

    def offsets(self) -> list[tuple[int, int]]:
        return _listed(self.ranges)

    def stop(self) -> None:
        """SIGTERM: it leaves the group."""
        self._end(signal.SIGTERM)
        assert self.has_closed, self

    def kill(self) -> None:
        """SIGKILL: the group hears nothing."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{") and line.endswith(b"}\n"):
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        name = event["name"]
        parts = event.get("partitions", [])
        numbers = {each["partition"] for each in parts}
        if name == "partitions_assigned":
            self.partitions |= numbers
        elif name in ("partitions_revoked", "partitions_lost"):
            self.partitions -= numbers
        elif name == "records_consumed":
            assert all(each["maxOffset"] - each["minOffset"] + 1 == each["count"] for each in parts), parts
            self._polled = [(each["partition"], each["minOffset"], each["maxOffset"]) for each in parts]
            self.ranges += self._polled
        elif name == "offsets_committed" and event["success"]:
            self.commits += 1
        elif name == "shutdown_complete":
            self.has_closed = True
        if name == "offsets_committed" and _REFUSED in event.get("error", ""):
            self.uncommitted |= set(_listed(self._polled))
        elif not event.get("success", True) or name == "partitions_lost":
            self.failures.append(event)


class MemberGroup:
    """The members of a group that come and go. What is left is killed at the end."""

    def __init__(self, folder: Path, bootstrap: str, partitions: int) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.members: list[VerifiableMember] = []
        self.alive: list[VerifiableMember] = []
        self._partitions = list(range(partitions))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in self.members:
            each.kill()

    def join(
        self, kind: Callable[[Path, str, str, str], Sequence[str]], protocol: str, strategy: str = "range"
    ) -> None:
        command = kind(self.folder, self.bootstrap, protocol, strategy)
        member = VerifiableMember(command, self.folder / f"member-{len(self.members)}.log")
        self.members.append(member)
        self.alive.append(member)

    def stop_oldest(self) -> None:
        self.alive.pop(0).stop()

    def wait_until_shared(self) -> None:
        """Until each partition has one reader among those alive, and each of them reads some."""

        def shared() -> bool:
            shares = [set(each.partitions) for each in self.alive]
            return all(shares) and sorted(number for share in shares for number in share) == self._partitions

        self.wait_until(shared)

    def wait_until(self, what: Callable[[], bool]) -> None:
        try:
            wait_for(what, pause_s=0.02)
        except TimeoutError as error:
            raise AssertionError(self.members) from error

    def offsets(self) -> list[tuple[int, int]]:
        """Return all received offsets, with repetitions."""
        return [each for member in self.members for each in member.offsets()]

    def uncommitted(self) -> set[tuple[int, int]]:
        return {each for member in self.members for each in member.uncommitted}

    def failures(self) -> list[dict[str, Any]]:
        return [each for member in self.members for each in member.failures]


@contextmanager
def sending(bootstrap: str, partitions: int) -> Iterator[list[bytes]]:
    """Send messages all the time, to one partition after the other; returns those that are acknowledged."""
    sent: list[bytes] = []
    ends = threading.Event()

    def run() -> None:
        with Producer(bootstrap) as producer:
            number = 0
            while not ends.wait(0.005):
                value = str(number).encode()
                producer.send(TOPIC, value, partition=number % partitions)
                sent.append(value)
                number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sent
    finally:
        ends.set()
        thread.join(PATIENCE_S)
