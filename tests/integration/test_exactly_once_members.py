"""Members of a group that transform messages in transactions: killed, paused until the group continues without
them, and without the brokers that coordinate and lead."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.waiting import wait_for

from barnabas import Admin, Message
from barnabas.testing import TestCluster

pytestmark = [pytest.mark.slow, pytest.mark.process]

WORKER = Path(__file__).parents[1] / "support" / "invoice_worker.py"
WAIT_S = 240
PARTITIONS = 4


@contextmanager
def _worker(cluster: TestCluster, name: str) -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen([sys.executable, str(WORKER), cluster.bootstrap, name], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class World:
    """Orders come whenever something is to go wrong; each has a number."""

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster
        self.sent = 0

    def order(self, count: int) -> None:
        values = [Message(b"%d" % number, b"%d" % number) for number in range(self.sent, self.sent + count)]
        self.sent += count
        self.cluster.produce("orders", values)

    def invoices(self) -> list[int]:
        return [int(message.value or b"") for message in self.cluster.produced("invoices", committed=True)]

    def while_at_work(self, disaster: Callable[[], None]) -> None:
        """Something goes wrong while orders are worked on; in the end all of them have been."""
        before = self.ends()
        self.order(120)
        wait_for(lambda: self.ends() > before, WAIT_S)
        disaster()
        wait_for(lambda: len(self.invoices()) >= self.sent, WAIT_S, pause_s=0.1)

    def ends(self) -> int:
        with Admin(self.cluster.bootstrap) as admin:
            return sum(admin.list_offsets({("invoices", number): "latest" for number in range(PARTITIONS)}).values())


def test_each_order_makes_one_invoice() -> None:
    with TestCluster(brokers=3) as cluster, ExitStack() as open_:
        for topic in ("orders", "invoices"):
            cluster.create_topic(topic, partitions=PARTITIONS)
        cluster.wait_in_sync()
        world = World(cluster)
        first = open_.enter_context(_worker(cluster, "one"))
        second = open_.enter_context(_worker(cluster, "two"))

        def pause(process: "subprocess.Popen[bytes]") -> None:
            """The group continues without it, for longer than its session; then it is there again."""
            process.send_signal(signal.SIGSTOP)
            wait_for(lambda: len(world.invoices()) >= world.sent - 120 + 60, WAIT_S, pause_s=0.1)
            process.send_signal(signal.SIGCONT)

        def replace() -> None:
            first.kill()
            open_.enter_context(_worker(cluster, "one"))

        def without(broker: int | None) -> None:
            assert broker is not None
            cluster.kill(broker)
            cluster.restart(broker)
            cluster.wait_in_sync()

        with cluster.admin() as admin:
            world.while_at_work(lambda: pause(second))
            world.while_at_work(replace)
            world.while_at_work(lambda: without(admin.coordinator("invoicing").node_id))
            world.while_at_work(lambda: without(admin.transaction_coordinator("two").node_id))
            world.while_at_work(lambda: without(cluster.leader("invoices", 0)))
        assert sorted(world.invoices()) == list(range(world.sent))
