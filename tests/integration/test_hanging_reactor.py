"""A broker whose reactor hangs, as in a write that does not return, while all its other threads run on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from support.etcd_server import EtcdServer

from barnabas.adapters.coord_etcd import EtcdCoordination
from barnabas.adapters.system import SystemClock
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.core.cluster import layout
from barnabas.core.cluster.broker_lifecycle import BrokerLifecycleManager, LastLife
from barnabas.core.cluster.brokers import children
from barnabas.core.cluster.change_queue import ChangeQueue
from barnabas.core.cluster.lease import Lease
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.ports.errors import BarnabasError
from barnabas.testing.contracts.coordination_harness import wait_until

SESSION_MS = 2000

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[[], EtcdCoordination]]:
    server = EtcdServer(tmp_path / "etcd")
    made: list[EtcdCoordination] = []

    def make() -> EtcdCoordination:
        made.append(EtcdCoordination(f"etcd://127.0.0.1:{server.port}/root", session_timeout_ms=SESSION_MS))
        return made[-1]

    try:
        server.start()
        server.wait_ready()
        yield make
    finally:
        for each in made:
            each.close()
        server.stop()


@pytest.mark.slow
def test_a_broker_whose_reactor_hangs_is_given_up_and_registers_again(session: Callable[[], EtcdCoordination]) -> None:
    own, other = session(), session()
    reports: list[str] = []
    failures: list[BarnabasError] = []
    registered: list[BrokerRegistration] = []
    reactor = Reactor(reports.append)
    lease = Lease(reactor, SystemClock(), own, reports.append)
    membership = BrokerLifecycleManager(
        reactor,
        own,
        ChangeQueue(reactor, own),
        lease,
        own=BrokerRegistration(broker_id=1, endpoints=("kafka://b:1",)),
        last=LastLife(),
        note=lambda _: None,
        distrust=lambda: None,
        registered=registered.append,
        lost=lambda: None,
        failed=failures.append,
        predecessor_ms=10_000,
        report=reports.append,
    )
    returns = Event()
    thread = Thread(target=reactor.run)
    thread.start()
    try:
        reactor.call_soon(membership.start)
        wait_until(lambda: lease.is_valid)
        assert children(other, layout.BROKER_IDS) == ["1"]

        def hang() -> None:
            returns.wait()

        reactor.call_soon(hang)
        wait_until(lambda: children(other, layout.BROKER_IDS) == [])
        assert not lease.is_valid, "it is over here before the service can have ended the session"
        returns.set()
        wait_until(lambda: len(registered) == 2 and lease.is_valid)
        assert registered[1].previous_epoch == registered[0].broker_epoch
        assert children(other, layout.BROKER_IDS) == ["1"]
        assert failures == []
    finally:
        returns.set()
        reactor.call_soon(membership.close)
        reactor.stop()
        thread.join()
