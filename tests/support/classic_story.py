"""Two groups on three classic brokers, treated badly step by step."""

import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from support.classic_cluster import ClassicCluster, ConsumerProcess, Partition, Writers, end_process
from support.classic_delivery import Log, Sample, Verdict, judge
from support.server_process import ServerProcess
from support.waiting import wait_for

from barnabas.app.compose.coordination import client_coordination
from barnabas.core.classic.registry import group, layout, registries
from barnabas.ports.errors import BarnabasError
from barnabas.testing.tcp_proxy import TcpProxy

BACKOFF_MS = 500
RETRIES = 10
PATIENCE_S = 120.0
LOOK_S = 0.05
SETTINGS = {"rebalance_backoff_ms": BACKOFF_MS, "rebalance_retries_max": RETRIES}
GROUPS: dict[str, dict[str, Any]] = {"a": {"topics": {"views": 1}}, "b": {"whitelist": "views|clicks"}}
"""One names its topic, the other finds what there is."""


def _ignore(_: str) -> None:
    """Nodes are looked at while they come and go."""


class Story:
    """The parts, and what can be done to them. `where` is the URL of the registries, whose server is `server`."""

    def __init__(self, folder: Path, server: ServerProcess, scheme: str, port: int, stack: ExitStack) -> None:
        self.server = server
        self.where = f"{scheme}://127.0.0.1:{port}/kafka"
        self.registry_cable = TcpProxy(("127.0.0.1", port))
        stack.callback(self.registry_cable.close)
        self.where_by_cable = f"{scheme}://127.0.0.1:{self.registry_cable.port}/kafka"
        self.cluster = ClassicCluster(folder, self.where, 3)
        stack.callback(self.cluster.close)
        self.broker_cable = TcpProxy(self.cluster.address(3))
        stack.callback(self.broker_cable.close)
        self.cluster.advertise(3, f"127.0.0.1:{self.broker_cable.port}")
        self.members: dict[str, ConsumerProcess] = {}
        """All that ever were, by name."""
        self.lives: set[str] = set()
        self.up: set[int] = set()
        self.samples: dict[str, list[Sample]] = {each: [] for each in GROUPS}
        """Samples of the registries."""
        self.figures: list[str] = []
        self._folder = folder
        self._stack = stack

    # --- the parts

    def begin(self) -> None:
        self.cluster.start(*self.cluster.ids)
        self.up = set(self.cluster.ids)
        self.eyes = client_coordination(self.where, session_timeout_ms=10_000)
        self._stack.callback(self.eyes.close)
        self.writers = Writers(self.where, self.cluster.ids, ["views"])
        self._stack.callback(self.writers.close)
        self._wait(lambda: len(registries.read_topic(self.eyes, "views", _ignore)) == 3)
        self.join("a1", "a2", "a3", "b1", "b2", "b3", by_cable="b1")

    def join(self, *names: str, by_cable: str = "") -> float:
        """Start members; returns when all were seen in the registries, after they are ready."""
        for name in names:
            where = self.where_by_cable if name == by_cable else self.where
            member = ConsumerProcess(self._folder, where, name[0], name, settings=SETTINGS, **GROUPS[name[0]])
            self._stack.callback(end_process, member.process)
            self.members[name] = member
        self.lives.update(names)
        for name in names:
            self._wait(partial(self._stands, self._id_path(name)))
        seen = time.monotonic()
        self._wait(lambda: all(self.members[name].ready for name in names))
        return seen

    def leave(self, name: str) -> float:
        """Orderly; returns when it is gone."""
        self.lives.discard(name)
        assert self.members[name].stop() == 0, self.members[name].log()
        return self.gone(self._id_path(name))

    def kill(self, name: str) -> None:
        self.lives.discard(name)
        self.members[name].kill()

    def live(self, of_group: str) -> list[ConsumerProcess]:
        return [member for name, member in self.members.items() if name in self.lives and name[0] == of_group]

    def topics(self, of_group: str) -> list[str]:
        return [topic for topic in self.writers.topics if of_group == "b" or topic == "views"]

    # --- what can be seen

    def _wait(self, condition: Callable[[], object]) -> None:
        wait_for(condition, PATIENCE_S, pause_s=LOOK_S)

    def _id_path(self, name: str) -> str:
        return layout.consumer_path(name[0], f"{name[0]}_{name}")

    def _stands(self, path: str) -> bool:
        return registries.get(self.eyes, path) is not None

    def _observed(self, of_group: str, text: str) -> bool:
        return any(text in member.log() for member in self.live(of_group))

    def owners(self, of_group: str) -> dict[Partition, str]:
        """Partition → consumer id, as the registries say. Raises `CoordinationError`."""
        began = time.monotonic()
        found = {}
        for topic in self.topics(of_group):
            for place, thread in group.read_owners(self.eyes, of_group, topic, _ignore).items():
                found[topic, str(place)] = thread.rpartition("-")[0]
        self.samples[of_group].append(Sample(began, time.monotonic(), found))
        return found

    def settled(self, of_group: str) -> bool:
        """Return True if live members own every partition of the live brokers, fairly, and know it."""
        try:
            owners = self.owners(of_group)
        except BarnabasError:
            return False  # the registries are restarting
        places = self.cluster.places(self.up)
        if owners.keys() != {(topic, place) for topic in self.topics(of_group) for place in places}:
            return False
        members = self.live(of_group)
        for topic in self.topics(of_group):
            counts = [sum(o == m.consumer_id and p[0] == topic for p, o in owners.items()) for m in members]
            if sum(counts) != len(places) or max(counts) - min(counts) > 1:
                return False
        for member in members:
            member.look()
        return all(m.owned == {p for p, owner in owners.items() if owner == m.consumer_id} for m in members)

    def wait_until_stable(self, what: str, since: float, groups: Iterable[str] = "ab") -> None:
        """Wait until the groups have settled, and note how long they took: from `since` to the last change."""
        for each in groups:
            self._wait(partial(self.settled, each))
            changes = [event.at for member in self.live(each) for event in member.changes[-1:]]
            took_s = max(0.0, max(changes) - since)
            self.figures.append(f"{what}: group {each} settled after {took_s * 1000:.0f} ms")

    def moved(self, of_group: str, change: Callable[[], float], what: str) -> int:
        """Return how many partitions have another owner after the change; none moves more than once."""
        before, at = self.owners(of_group), time.monotonic()
        self.wait_until_stable(what, change(), of_group)
        after = self.owners(of_group)
        moved = sum(before.get(partition) != owner for partition, owner in after.items())
        everyone = [member for member in self.members.values() if member.group == of_group]
        taken = sum(event.what == "take" and event.at >= at for member in everyone for event in member.changes)
        if not any(expired >= at for member in everyone for expired in member.expired):  # on a machine too busy
            assert taken == moved, f"{what}: {moved} partitions moved in {taken} exchanges"
        self.figures.append(f"{what}: {moved} of {len(after)} partitions moved")
        return moved

    def gone(self, path: str) -> float:
        """Wait until the node is gone; returns when that was seen."""
        self._wait(lambda: not self._stands(path))
        return time.monotonic()

    def progress(self, brokers: Iterable[int], *, count: int = 5) -> None:
        """Wait until both groups have got new messages from each of the brokers."""

        def got() -> dict[tuple[str, str], int]:
            found = {(each, place): 0 for each in GROUPS for place in places}
            for member in self.members.values():
                member.look()
                for (_, place), number in member.counts.items():
                    if place in places:
                        found[member.group, place] += number
            return found

        places = self.cluster.places(brokers)
        before = got()
        self._wait(lambda: all(n >= before[each] + count for each, n in got().items()))

    # --- what can happen

    def appear(self, topic: str) -> None:
        """A new topic, which the filter of group b allows."""
        self.writers.topics.append(topic)
        self._wait(lambda: len(registries.read_topic(self.eyes, topic, _ignore)) == 3)
        self.wait_until_stable(f"topic {topic} appeared", time.monotonic(), "b")

    def lose_member(self, name: str, successor: str) -> None:
        """kill -9; then another joins."""
        self.kill(name)
        self.wait_until_stable(f"{name} killed", self.gone(self._id_path(name)), name[0])
        self.wait_until_stable(f"{successor} joined", self.join(successor), name[0])

    def lose_broker(self, broker_id: int) -> None:
        """kill -9; what was readable is there again after the restart."""
        readable = {t: self.cluster.read(t, broker_id) for t in self.writers.topics}
        self.cluster.kill(broker_id)
        self.up.discard(broker_id)
        self.wait_until_stable(f"broker {broker_id} killed", self.gone(layout.broker_path(broker_id)))
        self.progress(self.up)
        started = time.monotonic()
        self.cluster.start(broker_id)
        self.up.add(broker_id)
        self.wait_until_stable(f"broker {broker_id} started again", time.monotonic())
        self.figures.append(f"broker {broker_id} ready {time.monotonic() - started:.1f} s after its start")
        self.progress([broker_id])
        for topic, logs in readable.items():
            after = self.cluster.read(topic, broker_id)
            for partition, log in logs.items():
                assert after[partition][: len(log)] == log, f"{partition}: what was readable is lost"

    def lose_members_for_a_while(self, paused: str, cut_off: str) -> None:
        """One is stopped for longer than a session, one cut off from the registries."""
        names = {paused, cut_off}
        self.members[paused].pause()
        self.registry_cable.stall()
        self.lives -= names
        seen = max(self.gone(self._id_path(name)) for name in names)
        self.wait_until_stable(f"{paused} paused, {cut_off} cut off", seen)
        self.progress(self.up)
        back = time.monotonic()
        self.members[paused].resume()
        self.registry_cable.cut()
        self.registry_cable.restore()
        self.lives |= names
        self._wait(lambda: all(self.settled(each) for each in GROUPS))
        for name in sorted(names):
            changes = self.members[name].changes
            learnt = min(event.at for event in changes if event.what == "give" and event.at >= back)
            self.figures.append(f"{name} learnt {1000 * (learnt - back):.0f} ms after it was back")
        self.wait_until_stable(f"{paused} and {cut_off} back", back)

    def pause_broker(self, broker_id: int) -> None:
        """Stopped for longer than its session: it registers again by itself."""
        process = self.cluster.running[broker_id].process
        process.send_signal(signal.SIGSTOP)
        try:
            self.up.discard(broker_id)
            self.wait_until_stable(f"broker {broker_id} paused", self.gone(layout.broker_path(broker_id)))
        finally:
            process.send_signal(signal.SIGCONT)
        self.up.add(broker_id)
        self._wait(partial(self._stands, layout.broker_path(broker_id)))
        self.wait_until_stable(f"broker {broker_id} registered again", time.monotonic())
        self.progress([broker_id])

    def stall_broker(self) -> None:
        """Make broker 3 unreachable for longer than a request timeout, while it lives."""
        self.broker_cable.stall()
        name = f"broker 3 at 127.0.0.1:{self.broker_cable.port}"
        for each in GROUPS:
            self._wait(partial(self._observed, each, name))
        self.progress(self.up - {3})
        self.broker_cable.restore()
        self.progress([3])

    def restart_registries(self) -> None:
        """The server is killed; brokers and consumers continue; it comes back with what it had."""
        self._wait(lambda: all(self.settled(each) for each in GROUPS))  # what has no owner then gets none meanwhile
        began = time.monotonic()
        self.server.kill()
        self.progress(self.up)
        self.server.start()
        self.server.wait_ready()
        back = time.monotonic()
        self.figures.append(f"registries were away for {back - began:.1f} s")
        self._wait(lambda: all(self.settled(each) for each in GROUPS))
        self.wait_until_stable("registries restarted", back)
        self.progress(self.up)

    # --- the end

    def read_logs(self) -> dict[Partition, Log]:
        """Once everything that was sent last is readable."""
        logs: dict[Partition, Log] = {}

        def complete() -> bool:
            for broker_id in self.cluster.ids:
                for topic in self.writers.topics:
                    logs.update(self.cluster.read(topic, broker_id))
            return all(log and int(log[-1][1].split()[1]) == self.writers.sent[p] for p, log in logs.items())

        self._wait(complete)
        for partition, log in logs.items():
            numbers = [int(value.split()[1]) for _, value in log]
            assert numbers == sorted(set(numbers)), f"{partition}: the log is out of order"
        return logs

    def judge(self) -> dict[str, Verdict]:
        self.writers.stop()
        logs = self.read_logs()
        verdicts = {}
        for each in GROUPS:
            own = {partition: log for partition, log in logs.items() if partition[0] in self.topics(each)}
            members = [member for member in self.members.values() if member.group == each]
            self._wait(partial(delivered, members, own))
            for member in self.live(each):
                self.leave(member.name)
            verdicts[each] = judge(members, own, self.samples[each])
        return verdicts

    def complaints(self) -> list[str]:
        """Return the errors of streams, and unexpected error lines."""
        raised = [e.topic for member in self.members.values() for e in member.events if e.what == "error"]
        logs = [member.log_file for member in self.members.values()]
        logs += [self._folder / f"broker{broker_id}.stderr" for broker_id in self.cluster.ids]
        return raised + [str(log) for log in logs if "Traceback" in log.read_text(errors="replace")]


def delivered(members: Iterable[ConsumerProcess], logs: dict[Partition, Log]) -> bool:
    """Return True when the last message of every log was handed out."""
    last = {partition: log[-1][0] for partition, log in logs.items()}
    for member in members:
        member.look()
        for event in member.events:
            if event.what == "message" and last.get(event.partition) == event.offset:
                del last[event.partition]
    return not last
