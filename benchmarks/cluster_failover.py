"""How long it takes until others lead: after an orderly stop, after kill -9, and for 1,000 partitions at once."""

import signal
import threading
import time
from collections.abc import Callable

from cluster import RunningCluster, all_in_sync, cluster, wait_until
from confluent_kafka import Producer
from harness import Result

from barnabas import Admin

TOPIC = "bench"
LEADERS = 1000
BROKERS = 3
PROBES = 3


class _Writer:
    """One message after the other, each with acks=all; notes when each was acknowledged."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self.acknowledged: list[float] = []
        self.failed: list[str] = []
        self._partition = partition
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
            self._producer.produce(TOPIC, b"x", partition=self._partition, on_delivery=self._told)
            self._producer.flush()
            time.sleep(0.005)

    def _told(self, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged.append(time.perf_counter())
        else:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._going = False
        self._thread.join()

    def longest_gap(self) -> float:
        times = self.acknowledged
        return max((two - one for one, two in zip(times, times[1:], strict=False)), default=0.0)


def _make(admin: Admin, partitions: int) -> None:
    admin.create_topic(TOPIC, partitions=partitions, replication_factor=BROKERS)
    wait_until(lambda: all_in_sync(admin, TOPIC), 120, "replicas in sync")


def _led_by(admin: Admin, broker: int) -> list[int]:
    return [p.partition for p in admin.describe_topics([TOPIC])[0].partitions if p.leader == broker]


def _leaderless(admin: Admin, gone: int) -> Callable[[], bool]:
    return lambda: all(p.leader not in (gone, -1) for p in admin.describe_topics([TOPIC])[0].partitions)


def _others(running: RunningCluster, gone: int) -> str:
    return ",".join(address for number, address in enumerate(running.addresses, start=1) if number != gone)


def _orderly() -> list[Result]:
    """The broker that stops leads a thousand partitions."""
    with cluster(restart=True) as running, Admin(running.bootstrap) as admin:
        _make(admin, LEADERS * BROKERS)
        victim = 2
        led = _led_by(admin, victim)
        writer = _Writer(running.bootstrap, led[0])
        with Admin(_others(running, victim)) as other:
            wait_until(lambda: len(writer.acknowledged) > 20, 30, "writes")
            process = running.brokers()[victim]
            process.send_signal(signal.SIGTERM)
            moved = wait_until(_leaderless(other, victim), 60, "other leaders")
            process.wait(60)
            time.sleep(1)
        writer.stop()
    details = {"leaders": float(len(led)), "longest gap of writes, s": writer.longest_gap()}
    return [
        Result(f"orderly stop: {len(led)} leaders have moved", moved, "s", 1.0, at_least=False, details=details),
        Result("orderly stop: failed client calls", float(len(writer.failed)), "", 0, at_least=False),
    ]


def _killed(session_ms: int, bound_s: float, partitions: int) -> list[Result]:
    """Until writes go on, and from the end of the session until all partitions are led again."""
    gaps, elections = [], []
    settings = (f"zookeeper.session.timeout.ms={session_ms}",)
    with cluster(*settings) as running, Admin(running.bootstrap) as admin:
        _make(admin, partitions)
        for victim in range(1, PROBES + 1):
            wait_until(lambda: all_in_sync(admin, TOPIC), 120, "replicas in sync")
            admin.elect_leaders()
            wait_until(lambda v=victim: len(_led_by(admin, v)) > 0, 30, "a leader to kill")  # type: ignore[misc]
            writer = _Writer(running.bootstrap, _led_by(admin, victim)[0])
            with Admin(_others(running, victim)) as other:
                wait_until(lambda w=writer: len(w.acknowledged) > 20, 30, "writes")  # type: ignore[misc]
                before = len(_led_by(other, victim))
                running.brokers()[victim].kill()
                wait_until(lambda v=victim, b=before, o=other: len(_led_by(o, v)) < b, 60, "the first", 0.005)  # type: ignore[misc]
                elections.append(wait_until(_leaderless(other, victim), 60, "other leaders", 0.005))
            time.sleep(1)
            writer.stop()
            gaps.append(writer.longest_gap())
    name = f"kill -9, session {session_ms / 1000:g} s, {partitions} partitions"
    return [
        Result(f"{name}: until writes go on", max(gaps), "s", bound_s, at_least=False, details={"quickest": min(gaps)}),
        Result(f"{name}: first to last leader", max(elections), "s", 2.0, at_least=False),
    ]


def measure() -> list[Result]:
    return [*_orderly(), *_killed(1000, 2.5, 30), *_killed(9000, 10.0, 30), *_killed(1000, 3.0, LEADERS)]
