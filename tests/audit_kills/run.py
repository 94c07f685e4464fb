"""Two clusters, a mirror between them, every tier of the audit: anything is killed, and all must agree afterwards."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, field
from audit_kills.work import TOPIC, WINDOW_MS
from support.ports import free_ports
from support.process import COMMAND
from support.waiting import wait_for

from barnabas import Admin
from barnabas.audit.publishing import wall_ms
from barnabas.audit.reading import AuditReader
from barnabas.audit.reconcile import Reconciliation, reconcile
from barnabas.audit.view import sections
from barnabas.ports.errors import BarnabasError

GRACE_MS = 500
REPORT_PATIENCE_S = 150
ENDS_S = 300
TIERS = ("broker", "mirror", "broker-two", "consumer:billing")


@define
class Outcome:
    """The outcome of one run."""

    found: Reconciliation
    produced: int
    kills: dict[str, int]
    faults: list[str]


@define
class Part:
    """A program that is killed and started again."""

    name: str
    command: Sequence[str]
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None
    kills: int = 0

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def end(self, how: signal.Signals) -> int:
        assert self.process is not None
        if how is signal.SIGKILL:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        return self.process.wait(ENDS_S)

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")[-3000:]


@define
class Harness:
    """All parts, and where the clusters are."""

    folder: Path
    with_table: bool
    one: str = ""
    two: str = ""
    parts: dict[str, Part] = field(factory=dict)

    def build(self) -> None:
        self.one, self.two = (f"127.0.0.1:{port}" for port in free_ports(2))
        for name, address in (("broker-1", self.one), ("broker-2", self.two)):
            settings = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
            sets = [word for setting in settings for word in ("--set", setting)]
            self._add(name, COMMAND, "serve", "--data", self.folder / name, "--listen", f"kafka://{address}", *sets)
            self.parts[name].start()
            wait_for(lambda address=address: _answers(address), 60)  # type: ignore[misc]
            with Admin(address) as admin:
                admin.create_topic(TOPIC, partitions=3)
        count = ("--window", f"{WINDOW_MS}ms", "--interval", "1s")
        source, target = self.folder / "source.properties", self.folder / "target.properties"
        source.write_text(f"bootstrap.servers={self.one}\ngroup.id=copy\n", encoding="utf-8")
        target.write_text(f"bootstrap.servers={self.two}\n", encoding="utf-8")
        files = ("--consumer-config", source, "--producer-config", target, "--whitelist", TOPIC, "--exactly-once")
        self._add("auditor-1", COMMAND, "audit", "count", "-b", self.one, *count)
        self._add(
            "auditor-2", COMMAND, "audit", "count", "-b", self.two, "--tier", TIERS[2], "--after", TIERS[1], *count
        )
        self._add("mirror", COMMAND, "mirror", *files, "--audit", TIERS[1], "--audit-set", f"window.ms={WINDOW_MS}")
        work = (sys.executable, "-P", "-m", "audit_kills.work")
        self._add("producer", *work, "produce", self.one, "p1")
        self._add("transactions", *work, "produce", self.one, "t1")
        self._add("consumer", *work, "consume", self.two, "c1")
        if self.with_table:
            table = ("--into", self.folder / "table", "--every", "5s", "--audit", "table", "--audit-window", "1m")
            self._add("load", COMMAND, "load", "-b", self.one, "--topics", TOPIC, *table)
        for part in self.parts.values():
            if part.process is None:
                part.start()

    def _add(self, name: str, *command: object) -> None:
        self.parts[name] = Part(name, [str(word) for word in command], self.folder)

    def kill(self, name: str) -> None:
        part = self.parts[name]
        part.end(signal.SIGKILL)
        part.kills += 1
        part.start()

    def end(self) -> None:
        for part in reversed(self.parts.values()):
            if part.process is not None and part.process.poll() is None:
                part.end(signal.SIGKILL)


def play(folder: Path, *, rounds: int, seed: int, with_table: bool, say: Callable[[str], object]) -> Outcome:
    """Kill something in each round; then let the producers end in order, and wait until every tier has come so far."""
    chance = random.Random(seed)
    harness = Harness(folder, with_table)
    tiers = [*TIERS, "table"] if with_table else TIERS
    try:
        harness.build()
        reader = _reader(harness)
        wait_for(lambda: all(_upto(reader, tier) > 0 for tier in tiers), REPORT_PATIENCE_S)
        for number in range(rounds):
            time.sleep(chance.uniform(0.2, 1.5))
            name = chance.choice(sorted(harness.parts))
            harness.kill(name)
            say(f"round {number + 1}: killed {name}")
        time.sleep(1)
        for name in ("producer", "transactions"):
            code = harness.parts[name].end(signal.SIGTERM)
            assert code == 0, harness.parts[name].log
        ended_ms = wall_ms()
        try:
            wait_for(lambda: all(_upto(reader, tier) > ended_ms + 2 * GRACE_MS for tier in tiers), REPORT_PATIENCE_S)
        except TimeoutError:
            late = {tier: ended_ms - _upto(reader, tier) for tier in tiers}
            say(f"not all have come to the end: {late}")
        reader.read()
        reader.close()
        found = reconcile(reader.totals, now_ms=wall_ms(), grace_ms=GRACE_MS)
        return Outcome(
            found,
            sum(t.count for w in found.windows for t in w.tiers if t.tier == "producer"),
            {name: part.kills for name, part in harness.parts.items()},
            _faults(found, tiers, harness),
        )
    finally:
        harness.end()


def _faults(found: Reconciliation, tiers: Sequence[str], harness: Harness) -> list[str]:
    faults = [section.title for section in sections(found)[:1]] if not found.agrees else []
    faults += [" ".join(map(str, row)) for section in sections(found)[1:2] for row in section.rows if not found.agrees]
    for tier in tiers:
        figures = [each for window in found.windows for each in window.tiers if each.tier == tier]
        pending = sum(each.pending for each in figures)
        if pending or not figures:
            faults.append(f"{tier}: {pending} messages are pending")
        if sum(each.arrived for each in figures) != sum(each.expected for each in figures):
            faults.append(f"{tier}: not all have arrived")
    faults += [f"{name} has ended: {p.log}" for name, p in harness.parts.items() if _has_ended(p)]
    return faults


def _has_ended(part: Part) -> bool:
    return (
        part.name not in ("producer", "transactions") and part.process is not None and part.process.poll() is not None
    )


def _reader(harness: Harness) -> AuditReader:
    found: list[AuditReader] = []

    def both_are_there() -> bool:
        try:
            found.append(AuditReader([harness.one, harness.two]))
        except BarnabasError:
            return False
        return True

    wait_for(both_are_there, REPORT_PATIENCE_S)
    return found[0]


def _upto(reader: AuditReader, tier: str) -> int:
    reader.read()
    return reader.totals.upto_ms(tier, TOPIC)


def _answers(address: str) -> bool:
    try:
        with Admin(address, default_api_timeout_ms=1000) as admin:
            admin.list_topics()
    except BarnabasError:
        return False
    return True
