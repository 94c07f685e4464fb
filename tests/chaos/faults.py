"""The faults of the cluster, and how each is undone."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping

from attrs import frozen
from chaos.clients import PARTITIONS, TOPIC
from chaos.cluster import SESSION_MS, STOP_S, ChaosBroker, ChaosCluster

from barnabas import Admin
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.errors import BarnabasError

Undo = Callable[[], object]


@frozen
class Done:
    """A fault under way: what it is about, how long it lasts, how it ends."""

    about: str
    lasts_s: float
    undo: Undo


Act = Callable[[ChaosCluster, random.Random], Done]


def _victim(cluster: ChaosCluster, chance: random.Random) -> ChaosBroker:
    """Mostly the leader of some partition."""
    leader = cluster.leader_of(TOPIC, chance.randrange(PARTITIONS)) if chance.random() < 0.7 else None
    return leader or chance.choice(cluster.brokers)


def _lasting(chance: random.Random) -> float:
    """Shorter than a session, or longer."""
    return chance.choice([0.3, 0.7, 1.5, 3.0]) * SESSION_MS / 1000


def kill(cluster: ChaosCluster, chance: random.Random) -> Done:
    victim = _victim(cluster, chance)
    victim.kill()
    return Done(victim.name, chance.choice([0.0, 1.0, 4.0]), cluster.revive)


def kill_two(cluster: ChaosCluster, chance: random.Random) -> Done:
    victims = chance.sample(cluster.brokers, 2)
    for victim in victims:
        victim.kill()
    return Done(", ".join(victim.name for victim in victims), chance.choice([0.0, 2.0]), cluster.revive)


def kill_all(cluster: ChaosCluster, chance: random.Random) -> Done:
    for victim in cluster.brokers:
        victim.signal(signal.SIGKILL)
    for victim in cluster.brokers:
        victim.kill()
    return Done("all brokers", 0.5, cluster.revive)


def pause(cluster: ChaosCluster, chance: random.Random) -> Done:
    """SIGSTOP, as a machine that sleeps; then it continues as if nothing had been."""
    victim = _victim(cluster, chance)
    victim.signal(signal.SIGSTOP)
    return Done(victim.name, _lasting(chance), lambda: victim.signal(signal.SIGCONT))


def cut_from_brokers(cluster: ChaosCluster, chance: random.Random) -> Done:
    victim = _victim(cluster, chance)
    others = [broker.name for broker in cluster.brokers if broker is not victim]
    return _cut(cluster, chance, victim, others, "the other brokers")


def cut_from_coordination(cluster: ChaosCluster, chance: random.Random) -> Done:
    victim = _victim(cluster, chance)
    return _cut(cluster, chance, victim, cluster.member_names, cluster.over)


def cut_off(cluster: ChaosCluster, chance: random.Random) -> Done:
    victim = _victim(cluster, chance)
    others = [broker.name for broker in cluster.brokers if broker is not victim]
    return _cut(cluster, chance, victim, [*others, *cluster.member_names], "all but clients")


def _cut(cluster: ChaosCluster, chance: random.Random, victim: ChaosBroker, others: list[str], who: str) -> Done:
    pairs = cluster.both_ways(victim.name, others)
    way = chance.choice(["both ways", "both ways, with resets", "out", "in"])
    if way in ("out", "in"):
        pairs = [pair for pair in pairs if (pair[0] == victim.name) == (way == "out")]
    cluster.switchboard.cut(pairs, reset="resets" in way)
    return Done(f"{victim.name} and {who}, {way}", _lasting(chance), cluster.switchboard.heal)


def restart_one_by_one(cluster: ChaosCluster, chance: random.Random) -> Done:
    """Restart the brokers as for an upgrade: the next one when all replicas are in sync again."""
    began = time.monotonic()
    for broker in cluster.brokers:
        broker.stop()
        broker.start()
        cluster.wait_healthy()
    return Done(f"orderly, in {time.monotonic() - began:.1f} s", 0.0, lambda: None)


def _running_members(cluster: ChaosCluster) -> list[int]:
    """Another fault may have killed one of them just now."""
    return [at for at, member in enumerate(cluster.members) if member.is_running]


def kill_member(cluster: ChaosCluster, chance: random.Random) -> Done:
    running = _running_members(cluster)
    if not running:
        return Done(f"no member of {cluster.over} runs", 0.0, lambda: None)
    at = chance.choice(running)
    member = cluster.members[at]
    member.kill()
    return Done(f"member {at + 1} of {cluster.over}", _lasting(chance), member.start)


def pause_members(cluster: ChaosCluster, chance: random.Random) -> Done:
    """Most of them, so that there is no quorum for a while."""
    running = _running_members(cluster)
    chosen = chance.sample(running, min(len(running), len(cluster.members) // 2 + 1))
    for at in chosen:
        cluster.members[at].pause()

    def resume() -> None:
        for at in chosen:
            cluster.members[at].resume()

    named = ", ".join(str(at + 1) for at in sorted(chosen))
    return Done(f"members {named} of {cluster.over}", _lasting(chance), resume)


def move_leaders(cluster: ChaosCluster, chance: random.Random) -> Done:
    """Other first replicas for all partitions, by a reassignment that copies nothing, and an election of those."""
    orders = {
        (TOPIC, number): chance.sample(range(1, len(cluster.brokers) + 1), cluster.replicas)
        for number in range(PARTITIONS)
    }
    observed = "all partitions"
    try:
        with Admin(cluster.bootstrap, default_api_timeout_ms=5000, request_timeout_ms=2000) as admin:
            admin.reassign_partitions(orders)
            admin.elect_leaders(orders)
    except BarnabasError as error:
        observed = str(error)  # another fault lasts
    return Done(observed, 0.5, lambda: None)


def cancel_moves(cluster: ChaosCluster, chance: random.Random) -> Done:
    """Move all partitions to another set of brokers, perhaps kill one of the old ones, and cancel what is under way."""
    numbers = range(1, len(cluster.brokers) + 1)
    targets = {(TOPIC, number): chance.sample(numbers, cluster.replicas) for number in range(PARTITIONS)}
    about = _reassign(cluster, targets)
    victim = chance.choice([None, _victim(cluster, chance)])
    if victim is not None:
        victim.kill()
        about += f", {victim.name} killed"

    def cancel() -> None:
        cluster.revive()
        _reassign(cluster, dict.fromkeys(targets))

    return Done(about, chance.choice([0.0, 0.2, 1.0]), cancel)


def _reassign(cluster: ChaosCluster, targets: Mapping[tuple[str, int], list[int] | None]) -> str:
    """Ask for each move by itself: some are refused, as the ISR does not allow them, or are done already."""
    refused: Counter[str] = Counter()
    with Admin(cluster.bootstrap, default_api_timeout_ms=5000, request_timeout_ms=2000) as admin:
        for tp, replicas in targets.items():
            try:
                admin.reassign_partitions({tp: replicas})
            except BarnabasError as error:
                refused[str(error).partition(":")[0]] += 1
    return f"{len(targets)} partitions" + (f", {dict(refused)}" if refused else "")


def change_min_isr(cluster: ChaosCluster, chance: random.Random) -> Done:
    """Another `min.insync.replicas`, of the topic and as the default of all brokers, and back."""
    value = chance.choice(["1", str(cluster.replicas)])
    about = _set_min_isr(cluster, value)
    return Done(about, _lasting(chance), lambda: _set_min_isr(cluster, None))


def _set_min_isr(cluster: ChaosCluster, value: str | None) -> str:
    about = f"min.insync.replicas {value}"
    with Admin(cluster.bootstrap, default_api_timeout_ms=5000, request_timeout_ms=2000) as admin:
        for kind, name in ((ResourceKind.TOPIC, TOPIC), (ResourceKind.BROKER, "")):
            try:
                admin.alter_configs(kind, name, {"min.insync.replicas": value})
            except BarnabasError as error:
                about += f", {error}"  # another fault lasts
    return about


def fill_disk(cluster: ChaosCluster, chance: random.Random) -> Done:
    """Fill the disk of a broker, until an operator frees space and restarts the broker."""
    victim = _victim(cluster, chance)
    filler = victim.data / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65_536))
        except OSError:
            pass  # that was the aim

    def make_room() -> None:
        filler.unlink(missing_ok=True)  # the disk may have been filled twice
        victim.signal(signal.SIGTERM)
        if victim.process is not None:
            victim.process.wait(STOP_S)
        cluster.revive()

    return Done(victim.name, 4.0, make_room)


FAULTS: Mapping[str, Act] = {
    "kill": kill,
    "kill-two": kill_two,
    "kill-all": kill_all,
    "pause": pause,
    "cut-from-brokers": cut_from_brokers,
    "cut-from-coordination": cut_from_coordination,
    "cut-off": cut_off,
    "restart-one-by-one": restart_one_by_one,
    "move-leaders": move_leaders,
    "kill-member": kill_member,
    "pause-members": pause_members,
    "fill-disk": fill_disk,
    "cancel-moves": cancel_moves,
    "change-min-isr": change_min_isr,
}
"""By the names that `--faults` takes."""


class SmallDisks:
    """A small file system in memory for each broker's data, which can be filled. Needs the right to mount."""

    SIZE = "256m"

    def __init__(self, cluster: ChaosCluster) -> None:
        self._mounted: list[str] = []
        if os.geteuid() != 0:
            return
        for broker in cluster.brokers:
            broker.data.mkdir(parents=True, exist_ok=True)
            words = ["mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "barnabas-chaos", str(broker.data)]
            if subprocess.run(words, capture_output=True, check=False).returncode != 0:
                break
            self._mounted.append(str(broker.data))
        self.there = len(self._mounted) == len(cluster.brokers)

    there = False

    def close(self) -> None:
        """Leave the files in the folders."""
        for path in self._mounted:
            saved = f"{path}-saved"
            shutil.copytree(path, saved)
            subprocess.run(["umount", "-l", path], capture_output=True, check=False)
            shutil.copytree(saved, path, dirs_exist_ok=True)
            shutil.rmtree(saved)
