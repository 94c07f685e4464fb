"""Time until other brokers lead: after an orderly stop, after kill -9, and for 1,000 partitions at once."""

import signal
import threading
import time
from itertools import pairwise

from cluster import RunningCluster, all_in_sync, cluster, wait_until
from confluent_kafka import Producer
from harness import Result

from barnabas import Admin
from barnabas.ports.broker_api.topics import NewTopic

TOPIC = "bench"
LEADERS = 1000
BROKERS = 3
VICTIM = 2


class _Writer:
    """One message after the other, each with acks=all; notes when each was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[float] = []
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._going = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while self._going:
            self._producer.produce(TOPIC, b"x", partition=0, on_delivery=self._on_delivery)
            self._producer.flush()
            time.sleep(0.005)

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged.append(time.perf_counter())
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._going = False
        self._thread.join()

    def longest_gap(self) -> float:
        times = self.acknowledged
        return max((two - one for one, two in pairwise(times)), default=0.0)


def _make(admin: Admin, partitions: int, leader: int) -> None:
    """A topic with three replicas, all of it led by one broker."""
    order = [leader, *(broker for broker in range(1, BROKERS + 1) if broker != leader)]
    admin.create_topics([NewTopic(name=TOPIC, assignments=dict.fromkeys(range(partitions), order))])
    wait_until(lambda: all_in_sync(admin, TOPIC), 120, "replicas in sync")


def _left(admin: Admin, gone: int) -> int:
    """Return the number of partitions without a leader, or with the one that is gone."""
    return sum(p.leader in (gone, -1) for p in admin.describe_topics([TOPIC])[0].partitions)


def _others(running: RunningCluster, gone: int) -> str:
    return ",".join(address for number, address in enumerate(running.addresses, start=1) if number != gone)


def _orderly() -> list[Result]:
    """Measure a stop of a broker that leads a thousand partitions."""
    with cluster() as running, Admin(_others(running, VICTIM)) as admin:
        _make(admin, LEADERS, VICTIM)
        writer = _Writer(running.bootstrap)
        wait_until(lambda: len(writer.acknowledged) > 20, 30, "writes")
        process = running.brokers()[VICTIM]
        process.send_signal(signal.SIGTERM)
        moved = wait_until(lambda: not _left(admin, VICTIM), 60, "other leaders")
        time.sleep(1)
        writer.stop()
    gap = {"longest gap of writes, s": writer.longest_gap()}
    return [
        Result(f"orderly stop: {LEADERS} leaders have moved", moved, "s", 1.0, at_least=False, details=gap),
        Result("orderly stop: failed client calls", float(len(writer.failed)), "", 0, at_least=False),
    ]


def _killed(session_ms: int, bound_s: float, partitions: int) -> list[Result]:
    """Measure the time until writes succeed again, and from the first partition with a new leader to the last."""
    settings = f"zookeeper.session.timeout.ms={session_ms}"
    with cluster(settings, restart=False) as running, Admin(_others(running, VICTIM)) as admin:
        _make(admin, partitions, VICTIM)
        writer = _Writer(running.bootstrap)
        wait_until(lambda: len(writer.acknowledged) > 20, 30, "writes")
        running.brokers()[VICTIM].kill()
        wait_until(lambda: _left(admin, VICTIM) < partitions, 60, "the first", 0.005)
        election = wait_until(lambda: not _left(admin, VICTIM), 60, "the last", 0.005)
        count = len(writer.acknowledged)
        wait_until(lambda: len(writer.acknowledged) > count, 60, "writes")
        writer.stop()
    name = f"kill -9, session {session_ms / 1000:g} s, {partitions} partitions"
    details = {"failed calls": float(len(writer.failed))}
    return [
        Result(f"{name}: writes continue", writer.longest_gap(), "s", bound_s, at_least=False, details=details),
        Result(f"{name}: all led again", election, "s", 2.0, at_least=False),
    ]


def measure() -> list[Result]:
    return [*_orderly(), *_killed(1000, 2.5, 1), *_killed(9000, 10.0, 1), *_killed(1000, 2.5, LEADERS)]
