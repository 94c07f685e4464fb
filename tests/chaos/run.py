"""One run: load on a cluster, faults one after the other, then everything is read back and checked."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import field, frozen
from chaos.checker import Verdict, check
from chaos.clients import (
    PARTITIONS,
    SHARE_GROUP,
    TOPIC,
    LibrdkafkaProducer,
    OurProducer,
    OurReader,
    ReadingWorker,
    SendingWorker,
    ShareMember,
    Worker,
)
from chaos.cluster import ChaosCluster, wait_until
from chaos.faults import FAULTS, SmallDisks
from chaos.history import ACKNOWLEDGED, Fault, History
from chaos.processes import ReaderProcess
from chaos.recreated import RecreatedTopic
from chaos.replicas import read_replicas
from chaos.transactions import TransactionalLoad
from chaos.watchdog import read_spans, watchdog_of
from kills.work import PARTITIONS as TRANSACTIONAL_PARTITIONS
from kills.work import SOURCE, TARGET
from support.waiting import PATIENCE_S

from barnabas import Admin
from barnabas.ports.broker_api.configs import ResourceKind

WARM_S = 2.0
CALM_S = (0.5, 2.0)
FINISH_S, DRAIN_S = 2 * PATIENCE_S, PATIENCE_S
NEEDS_SMALL_DISKS = "fill-disk"
NEEDS_A_SPARE = "cancel-moves"
"""A broker more than replicas, to move partitions to."""
STANDS_ALONE = {"restart-one-by-one"}
"""It waits for a cluster that is well."""
ANOTHER = 0.3
"""The chance that a fault begins while another one lasts."""


@frozen(kw_only=True)
class Plan:
    """The parameters of a run. The actions come from `seed`; the order of processes and threads differs each time."""

    over: str
    seconds: float
    seed: int
    faults: Sequence[str] = tuple(FAULTS)
    in_turn: bool = False
    """The faults one after the other, from the first on; else by chance."""
    per_second: float = 100
    """Messages of each producer."""
    members: int = 3
    brokers: int = 3
    kip_848: bool = False
    """Also groups by KIP-848, of each client's members and of both, and one with members of both protocols."""
    shares: bool = False
    """Also a share group."""
    transactions: bool = False
    """Also consume-transform-produce in transactions, and a topic that is deleted and created again."""


@frozen(kw_only=True)
class Outcome:
    plan: Plan
    history: History
    verdict: Verdict
    figures: dict[str, Any] = field(factory=dict)


def play(plan: Plan, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Run a plan, and report each event in a line. Raises an error if the cluster does not recover."""
    cluster = ChaosCluster(folder, plan.over, members=plan.members, brokers=plan.brokers)
    disks = SmallDisks(cluster)
    history = History()
    began = time.monotonic()

    def now() -> float:
        return time.monotonic() - began

    try:
        with cluster:
            _make_topic(cluster)
            producers, readers = _workers(cluster, history, now, plan)
            recoveries: list[float] = []
            watchdog = watchdog_of(history, cluster.bootstrap, now)
            members = _share_members(cluster, history, now, plan)
            load, recreated, figures = _transactional(cluster, history, now, plan)
            began = time.monotonic()
            try:
                for worker in [*readers, *producers, *recreated, *members]:
                    worker.start()
                watchdog.start([reader for reader in readers if isinstance(reader, ReaderProcess)])
                time.sleep(WARM_S)
                _disturb(
                    cluster, history, plan, now, report, disks.there, recoveries, [*readers, *producers, *recreated]
                )
                report(f"{now():6.1f} s  end of faults; reading everything back")
                for topic in recreated:
                    topic.stopping.set()
                for producer in producers:
                    producer.stopping.set()
                for producer in producers:
                    producer.stop(FINISH_S)
                for topic in recreated:
                    topic.stop(FINISH_S)
                    figures |= {"lives of a recreated topic": topic.lives, **topic.topics.late}
                cluster.wait_healthy()
                if load is not None:
                    figures |= load.finish(history, now)
                history.final = read_all(history, cluster.bootstrap, now)
                _drain(history, readers, report)
                if members:
                    _drain_shares(history, report)
                watchdog.stop()
                for failure in _stop_all([*producers, *readers, *members]):
                    history.transactional.append(("client-stuck", str(failure)))
            finally:
                if load is not None:
                    load.close()
                for worker in (*producers, *readers, *members):
                    worker.abandon()
                watchdog.stop()
            for broker in cluster.brokers:
                broker.stop()
            folders = [(broker.number, broker.data) for broker in cluster.brokers]
            history.replicas = read_replicas(folders, [TOPIC])
        return Outcome(
            plan=plan, history=history, verdict=check(history), figures=_figures(history, recoveries) | figures
        )
    finally:
        cluster.close()
        disks.close()


def _make_topic(cluster: ChaosCluster) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.wait_healthy()


def _workers(
    cluster: ChaosCluster, history: History, now: Callable[[], float], plan: Plan
) -> tuple[list[SendingWorker], list[ReadingWorker | ReaderProcess]]:
    given = (history, cluster.bootstrap, now)
    producers: list[SendingWorker] = [
        LibrdkafkaProducer("librdkafka-producer", *given, per_second=plan.per_second),
        OurProducer("our-producer", *given, per_second=plan.per_second),
    ]
    readers: list[ReadingWorker | ReaderProcess] = [
        ReaderProcess("librdkafka-reader", *given),
        OurReader("our-reader", *given),
        *(ReaderProcess(f"librdkafka-member-{n}", *given, group="librdkafka-group") for n in (1, 2)),
        *(OurReader(f"our-member-{n}", *given, group="our-group") for n in (1, 2)),
    ]
    if plan.kip_848:
        readers += [
            OurReader("upgraded-member-1", *given, group="upgraded-group", protocol="consumer"),
            ReaderProcess("upgraded-member-2", *given, group="upgraded-group"),
        ]
        both: Sequence[type[ReaderProcess | OurReader]] = (ReaderProcess, OurReader)
        for number, kind in enumerate(both, 1):
            name = "librdkafka" if kind is ReaderProcess else "our"
            readers += [
                kind(f"{name}-new-member-{n}", *given, group=f"{name}-new-group", protocol="consumer") for n in (1, 2)
            ]
            readers.append(kind(f"mixed-member-{number}", *given, group="mixed-group", protocol="consumer"))
    return producers, readers


def _share_members(cluster: ChaosCluster, history: History, now: Callable[[], float], plan: Plan) -> list[ShareMember]:
    """Return the members of a share group that reads the topic from its start, where the plan has them."""
    if not plan.shares:
        return []
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs(ResourceKind.GROUP, SHARE_GROUP, {"share.auto.offset.reset": "earliest"})
    return [ShareMember(f"share-member-{n}", history, cluster.bootstrap, now) for n in (1, 2, 3)]


def _drain_shares(history: History, report: Callable[[str], None]) -> None:
    """Until the share group was given each message."""
    wanted = {(partition, offset) for partition, messages in history.final.items() for offset, _ in messages}

    def is_complete() -> bool:
        return wanted <= {(share.partition, share.offset) for share in list(history.shares)}

    try:
        wait_until(is_complete, DRAIN_S, "sharing to the end")
    except TimeoutError:
        report("the share group did not reach the end")
    history.is_shared = True


def _transactional(
    cluster: ChaosCluster, history: History, now: Callable[[], float], plan: Plan
) -> tuple[TransactionalLoad | None, list[RecreatedTopic], dict[str, Any]]:
    """Return the transactional load, and the worker that recreates a topic, where the plan has them."""
    if not plan.transactions:
        return None, [], {}
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, TRANSACTIONAL_PARTITIONS)
    load = TransactionalLoad(cluster.bootstrap, seed=plan.seed)
    return load, [RecreatedTopic("recreated-topic", history, cluster.bootstrap, now, cluster.replicas)], {}


def _disturb(
    cluster: ChaosCluster,
    history: History,
    plan: Plan,
    now: Callable[[], float],
    report: Callable[[str], None],
    small_disks: bool,
    recoveries: list[float],
    workers: Sequence[Worker],
) -> None:
    chance = random.Random(plan.seed)
    names = [
        name
        for name in plan.faults
        if (small_disks or name != NEEDS_SMALL_DISKS) and (plan.brokers > cluster.replicas or name != NEEDS_A_SPARE)
    ]
    number = 0
    while names and now() < WARM_S + plan.seconds and not any(worker.failure for worker in workers):
        name = names[number % len(names)] if plan.in_turn else chance.choice(names)
        number += 1
        with ExitStack() as under_way:
            lasts_s = _begin(name, cluster, chance, history, now, report, under_way)
            another = chance.choice(names)
            if not {name, another} & STANDS_ALONE and chance.random() < ANOTHER:
                time.sleep(chance.uniform(0, lasts_s))
                lasts_s = _begin(another, cluster, chance, history, now, report, under_way)
            time.sleep(lasts_s)
        recoveries.append(cluster.wait_healthy())
        report(f"{now():6.1f} s  healthy again after {recoveries[-1]:.1f} s")
        time.sleep(chance.uniform(*CALM_S))


def _begin(
    name: str,
    cluster: ChaosCluster,
    chance: random.Random,
    history: History,
    now: Callable[[], float],
    report: Callable[[str], None],
    under_way: ExitStack,
) -> float:
    """Do it, and have it undone when `under_way` ends; returns for how long it should last, in seconds."""
    begun = now()
    done = FAULTS[name](cluster, chance)
    report(f"{begun:6.1f} s  {name}: {done.about}, for {done.lasts_s:.1f} s")

    def end() -> None:
        done.undo()
        history.faults.append(Fault(name, done.about, begun, now()))

    under_way.callback(end)
    return done.lasts_s


def read_all(history: History, bootstrap: str, now: Callable[[], float]) -> dict[int, list[tuple[int, str]]]:
    """Return all messages of the topic, read by a new client."""
    with Admin(bootstrap) as admin:
        ends = admin.list_offsets({(TOPIC, number): "latest" for number in range(PARTITIONS)})
    spans = {tp.partition: (0, end) for tp, end in ends.items()}
    return read_spans(history, bootstrap, TOPIC, spans, now)


def _drain(history: History, readers: Sequence[Worker], report: Callable[[str], None]) -> None:
    """Wait until each group, and each reader without one, is at the end; the checker reports those that are not."""
    ends = {partition: messages[-1][0] for partition, messages in history.final.items() if messages}
    names = {history.groups.get(reader.name, reader.name) for reader in readers}

    def behind() -> set[str]:
        last: dict[tuple[str, int], int] = {}
        for poll in list(history.polls):
            key = history.groups.get(poll.client, poll.client), poll.partition
            last[key] = max(poll.offset, last.get(key, -1))
        return {name for name in names if any(last.get((name, p), -1) < end for p, end in ends.items())}

    replaced = -1
    while replaced < len(history.replaced) and behind():
        replaced = len(history.replaced)  # a fresh reader gets the complete time
        try:
            wait_until(lambda: not behind(), DRAIN_S, "reading to the end")
        except TimeoutError:
            report(f"did not come to the end: {', '.join(sorted(behind()))}")
    history.drained = names


def _stop_all(workers: Sequence[Worker]) -> list[BaseException]:
    """Stop all workers together; return why some did not, or what they died of."""
    failures: list[BaseException] = []

    def stop(worker: Worker) -> None:
        try:
            worker.stop(FINISH_S)
        except BaseException as error:  # noqa: BLE001  returned
            failures.append(error)

    threads = [threading.Thread(target=stop, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def _figures(history: History, recoveries: Sequence[float]) -> dict[str, Any]:
    acknowledged = [send for send in history.sends if send.outcome == ACKNOWLEDGED]
    took = sorted(send.done_s - send.begun_s for send in acknowledged)
    moments = sorted(send.done_s for send in acknowledged)
    gaps = [two - one for one, two in pairwise(moments)]
    return {
        "sent": len(history.sends),
        "acknowledged": len(acknowledged),
        "unknown": sum(send.outcome == "unknown" for send in history.sends),
        "refused": sum(send.outcome == "refused" for send in history.sends),
        "read": len(history.polls),
        "committed": len(history.commits),
        "shared": sum(not share.is_accepted for share in history.shares),
        "accepted": sum(share.is_accepted for share in history.shares),
        "stored": sum(map(len, history.final.values())),
        "readers replaced (client stood still)": len(history.replaced),
        "faults": len(history.faults),
        "seconds until acknowledged, median": round(took[len(took) // 2], 4) if took else None,
        "seconds until acknowledged, 99 of 100": round(took[len(took) * 99 // 100], 3) if took else None,
        "longest time without an acknowledgement, s": round(max(gaps, default=0.0), 2),
        "longest recovery after a fault, s": round(max(recoveries, default=0.0), 2),
    }
