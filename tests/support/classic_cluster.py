"""Classic brokers, consumers and writers for tests that treat them badly: processes of their own, and what they say."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from support.ports import free_ports
from support.process import BrokerProcess

from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.ports.broker_api.offsets import EARLIEST
from barnabas.ports.errors import BarnabasError

SCRIPT = Path(__file__).with_name("classic_consumer_process.py")
SESSION_MS = 3000
PATIENCE_S = 120.0
PARTITIONS = 3
"""Partitions of each topic at each broker."""
FLUSH_MESSAGES = 20
FLUSH_MS = 100

Partition = tuple[str, str]
"""Topic, and `broker-partition`."""


class Event(NamedTuple):
    """An event in the notes of a consumer process; see `classic_consumer_process`."""

    what: str
    at: float
    topic: str = ""
    place: str = ""
    offset: int | None = None
    value: str = ""

    @property
    def partition(self) -> Partition:
        return self.topic, self.place


class ConsumerProcess:
    """A member of a group.

    events:  everything it wrote down, in its order; `changes` those that took and gave partitions. As of `look`.
    owned:   what it owns as far as it knows.
    counts:  how many messages it handed out of each partition.
    expired: when it learnt that its session had ended.
    """

    def __init__(self, folder: Path, where: str, group: str, name: str, **config: Any) -> None:
        self.group = group
        self.name = name
        self.killed_at: float | None = None
        self.expired: list[float] = []
        self.events: list[Event] = []
        self.changes: list[Event] = []
        self.owned: set[Partition] = set()
        self.counts: Counter[Partition] = Counter()
        self._output = folder / f"{group}_{name}.events"
        self.log_file = folder / f"{group}_{name}.log"
        self._read_up_to = 0
        settings = {
            "groupid": group,
            "consumerid": name,
            "zk_sessiontimeout_ms": SESSION_MS,
            "fetcher_backoff_ms": 100,
            "socket_timeout_ms": 1500,
            "autocommit_interval_ms": 500,
            **config.pop("settings", {}),
        }
        argument = json.dumps({"where": where, "settings": settings, **config})
        command = [sys.executable, str(SCRIPT), argument]
        with self._output.open("wb") as output, self.log_file.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=output, stderr=log)

    @property
    def consumer_id(self) -> str:
        return f"{self.group}_{self.name}"

    @property
    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.consumer_id} ended: {self.log()[-2000:]}")
        self.look()
        return any(event.what == "ready" for event in self.events)

    def look(self) -> None:
        """Read what was written since."""
        with self._output.open("rb") as file:
            file.seek(self._read_up_to)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_up_to += len(whole)
        for line in whole.splitlines():
            event = Event(*json.loads(line))
            self.events.append(event)
            if event.what == "message":
                self.counts[event.partition] += 1
            elif event.what == "expired":
                self.expired.append(event.at)
            elif event.what in ("take", "give"):
                self.changes.append(event)
                (self.owned.add if event.what == "take" else self.owned.discard)(event.partition)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.killed_at = time.monotonic()
        self.look()

    def stop(self) -> int:
        """Orderly; returns the exit code."""
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        self.look()
        return code


class ClassicCluster:
    """Brokers 1, 2, ... on ports that stay theirs."""

    def __init__(self, folder: Path, where: str, count: int, advertised: Mapping[int, str] | None = None) -> None:
        self.where = where
        self.ids = range(1, count + 1)
        self.running: dict[int, BrokerProcess] = {}
        self._folder = folder
        self._ports = dict(zip(self.ids, free_ports(count), strict=True))
        self._advertised: dict[int, str] = dict(advertised or {})

    def advertise(self, broker_id: int, address: str) -> None:
        """Set the advertised address of a broker, from its next start on."""
        self._advertised[broker_id] = address

    def address(self, broker_id: int) -> tuple[str, int]:
        return "127.0.0.1", self._ports[broker_id]

    def start(self, *ids: int) -> None:
        """Start brokers, all at once; they are ready on return."""
        with ThreadPoolExecutor() as pool:
            for broker_id, process in zip(ids, pool.map(self._start, ids), strict=True):
                self.running[broker_id] = process

    def _start(self, broker_id: int) -> BrokerProcess:
        settings = {
            "broker.id": broker_id,
            "coordination": self.where,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "num.partitions": PARTITIONS,
            "log.flush.interval.messages": FLUSH_MESSAGES,
            "log.flush.interval.ms": FLUSH_MS,
            "log.flush.scheduler.interval.ms": FLUSH_MS,
        }
        if broker_id in self._advertised:
            settings["advertised.listeners"] = f"classic://{self._advertised[broker_id]}"
        pairs = [f"{key}={value}" for key, value in settings.items()]
        listen = [f"classic://127.0.0.1:{self._ports[broker_id]}"]
        return BrokerProcess(self._folder / f"broker{broker_id}", *pairs, listen=listen)

    def kill(self, broker_id: int) -> None:
        self.running.pop(broker_id).kill()

    def close(self) -> list[int]:
        """Stop what runs; returns the exit codes."""
        codes = [process.stop() for process in self.running.values() if process.process.poll() is None]
        self.running.clear()
        return codes

    def places(self, ids: Iterable[int] | None = None) -> list[str]:
        return [f"{broker_id}-{p}" for broker_id in ids or self.ids for p in range(PARTITIONS)]

    def read(self, topic: str, broker_id: int) -> dict[Partition, list[tuple[int, str]]]:
        """Return the readable messages of the topic at a broker: (next offset, value) in the order of each log."""
        host, port = self.address(broker_id)
        found = {}
        with ClassicSimpleConsumer(f"classic://{host}:{port}") as consumer:
            for number in range(PARTITIONS):
                (at,) = consumer.get_offsets_before(topic, number, EARLIEST)
                entries: list[tuple[int, str]] = []
                while (piece := consumer.fetch(topic, number, at)).next_offset > at:
                    entries += [(message.offset, bytes(message.value or b"").decode()) for message in piece]
                    at = piece.next_offset
                found[topic, f"{broker_id}-{number}"] = entries
        return found


class Writers:
    """One thread for each broker: numbered messages to every partition there, each number once, whatever happens."""

    PAUSE_S = 0.1
    AT_ONCE = 3

    def __init__(self, where: str, ids: Sequence[int], topics: Sequence[str]) -> None:
        self.topics = list(topics)
        """May grow."""
        self.sent: dict[Partition, int] = {}
        """The last number that was handed to a connection."""
        self.failed = 0
        self._numbers: dict[Partition, int] = {}
        self._over = threading.Event()
        self._producer = ClassicProducer(
            coordination=where,
            zookeeper_session_timeout_ms=SESSION_MS,
            socket_timeout_ms=1500,
            connect_timeout_ms=1000,
        )
        self._threads = [threading.Thread(target=self._write, args=(broker_id,)) for broker_id in ids]
        for thread in self._threads:
            thread.start()

    def _write(self, broker_id: int) -> None:
        while not self._over.wait(self.PAUSE_S):
            for topic in list(self.topics):
                for number in range(PARTITIONS):
                    self._write_to(topic, broker_id, number)

    def _write_to(self, topic: str, broker_id: int, number: int) -> None:
        partition = topic, f"{broker_id}-{number}"
        first = self._numbers.get(partition, 0)
        last = self._numbers[partition] = first + self.AT_ONCE
        values = [f"{partition[1]} {each:07}".encode() for each in range(first, last)]
        try:
            self._producer.send_many(topic, values, partition=(broker_id, number)).result()
        except BarnabasError:
            self.failed += len(values)
        else:
            self.sent[partition] = last - 1

    def stop(self) -> None:
        """Returns when everything was handed to a connection, or given up."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        self.stop()
        self._producer.close()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Whatever state it is in."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
