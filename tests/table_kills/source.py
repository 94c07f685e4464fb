"""The sources of the rows: a single broker, which restarts after a kill, or a cluster, whose leaders move."""

import random
import time
from pathlib import Path
from typing import Protocol

from support.cluster_process import ClusterProcess
from support.ports import free_port
from support.process import BrokerProcess

from barnabas import Admin

SETTINGS = ("offsets.topic.num.partitions=1", "auto.create.topics.enable=false")


class Source(Protocol):
    """Each is a folder of its own, and runs until it is stopped."""

    targets: tuple[str, ...]
    """The processes to kill, in turn; a step: the driver, at a step of the commit."""

    @property
    def bootstrap(self) -> str: ...

    def kill(self, chance: random.Random, topic: str) -> None:
        """kill -9 of who serves a partition of the topic; it comes back some time later."""

    def stop(self) -> None: ...


class OneBroker:
    """A single broker: the source is unavailable until it has restarted."""

    targets: tuple[str, ...] = (
        "a step",
        "driver",
        "java",
        "worker",
        "broker",
        "a step",
        "everything",
        "a step of --since",
        "a step of compact",
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = f"kafka://127.0.0.1:{free_port()}"
        self._broker = self._start()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def kill(self, chance: random.Random, topic: str) -> None:
        self._broker.kill()
        time.sleep(chance.uniform(0, 2))
        self._broker = self._start()

    def stop(self) -> None:
        if self._broker.process.poll() is None:
            self._broker.stop()

    def _start(self) -> BrokerProcess:
        return BrokerProcess(self._folder / "broker", *SETTINGS, listen=[self._address])


class ThreeBrokers:
    """A cluster over an etcd of its own: another broker leads on, and the killed one is started again."""

    targets: tuple[str, ...] = ("leader", "a step", "leader", "java", "leader", "driver", "leader", "everything")

    def __init__(self, folder: Path) -> None:
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        self._cluster = ClusterProcess(folder / "cluster", *words)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def kill(self, chance: random.Random, topic: str) -> None:
        with Admin(self.bootstrap) as admin:
            leaders = [each.leader for each in admin.describe_topics([topic])[0].partitions if each.leader >= 0]
        self._cluster.broker(chance.choice(leaders)).kill()

    def stop(self) -> None:
        self._cluster.stop()


ONE, THREE = "broker", "cluster"
SOURCES: dict[str, type[OneBroker | ThreeBrokers]] = {ONE: OneBroker, THREE: ThreeBrokers}
