"""`TestCluster`: several brokers for one test, and what can happen to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from attrs import evolve

from ..app.clients.shared.connect import secured
from ..app.clients.shared.signature import SettingsSignature
from ..app.compose.broker import outside_of
from ..app.compose.memory import MemoryLogDirs
from ..app.embedded_broker import Broker, broker_defaults
from ..app.logs import log_report
from ..app.typed_broker_settings import BrokerKeywords
from ..core.cluster.election import ElectionRules, moved_to
from ..core.message.message import Message
from ..ports.broker_api.envelope import Request, ResultT
from ..ports.coordination import BadVersion
from ..ports.errors import ClosedError, ConfigError
from ..ports.scheduler import Scheduler
from ..ports.transport import (
    Address,
    ClientTls,
    Connection,
    ConnectionHandler,
    Limits,
    Listener,
    ServerTls,
    Transport,
    TransportError,
)
from ..ports.types import TopicPartition
from .broker import TEST_DEFAULTS
from .cluster_tree import ClusterTree, TreeSession
from .faults import Faults
from .faulty_api import faulty_servers
from .own_clients import CachedProducer, admin_of, consumer_of, producer_of, share_consumer_of, text_of
from .ports import reserved
from .produced import assert_produced, read_all
from .requests import ask
from .running import started, stopped
from .security import TestSecurity

if TYPE_CHECKING:
    from types import TracebackType

    from ..app.broker.state.dependencies import ExposeMetrics, Outside, Server
    from ..app.clients.admin.admin import Admin
    from ..app.clients.consumer.consumer import Consumer
    from ..app.clients.producer.producer import Producer
    from ..app.clients.share.share_consumer import ShareConsumer
    from ..app.clients.shared.bootstrap import Bootstrap
    from ..app.clients.shared.typed_settings import (
        ClientKeywords,
        ConsumerArguments,
        ProducerArguments,
        ShareConsumerArguments,
    )
    from ..app.config import BrokerConfig
    from ..core.client.producer.producer_batch import Delivery
    from ..core.cluster.image import ClusterImage
    from ..core.cluster.topic_store import StoredTopic
    from ..core.cluster.topics import PartitionState, Topic
    from ..plugins.host import PluginHost
    from ..ports.coordination import Coordination
    from ..ports.metrics import Metrics
    from ..ports.scheduler import Scheduler
    from ..ports.transport import Transport

T = TypeVar("T")

CLUSTER_DEFAULTS: Mapping[str, object] = {
    **TEST_DEFAULTS,
    "auto.leader.rebalance.enable": False,
    "replica.fetch.backoff.ms": 20,
    "replica.lag.time.max.ms": 500,
    "replica.socket.timeout.ms": 1000,
    "zookeeper.session.timeout.ms": 300,
}
"""The settings in which the brokers of a test cluster differ from those in production: in addition to `TEST_DEFAULTS`,
a dead broker is noticed soon, and leaders stay where a test has moved them. Topics have as many replicas as there
are brokers, three at most.
"""

COORDINATION: Literal["coordination"] = "coordination"
"""The coordination service, as a peer from which a broker can be disconnected."""

_PATIENCE_S = 60.0
_POLL_S = 0.005
_REPLICAS_MAX = 3
_CLIENTS: Mapping[str, Any] = {"request_timeout_ms": 2000, "socket_connection_setup_timeout_ms": 500}
"""The settings of our own clients: they give up soon on a broker that does not answer."""
_SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
_numbers = count(1)


# One broker of a test cluster, from its first life to the last.


# The network between the brokers of a test cluster: all of them are connected until a test cuts them off.

Opened = Callable[[Connection | TransportError], ConnectionHandler | None]


class ClusterNetwork:
    """The pairs of brokers that cannot reach each other. Thread-safe."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._cuts: set[frozenset[int]] = set()

    def own(self, port: int, broker_id: int) -> None:
        """Note that this broker listens on the port."""
        self._owners[port] = broker_id

    def owner(self, address: Address) -> int | None:
        """Return the broker at an address; None: the address belongs to no broker of the cluster."""
        return self._owners.get(address[1])

    def cut(self, one: int, other: int) -> None:
        """Let nothing new pass between two brokers from now on; `CutTransport.close_to` closes what is open."""
        self._cuts.add(frozenset((one, other)))

    def mend(self, one: int, other: int) -> None:
        """Undo `cut`."""
        self._cuts.discard(frozenset((one, other)))

    def is_cut(self, one: int, other: int) -> bool:
        """Return True if nothing passes between them."""
        return frozenset((one, other)) in self._cuts

    @property
    def cuts(self) -> list[tuple[int, int]]:
        """All pairs that are cut off from each other."""
        return sorted((min(pair), max(pair)) for pair in self._cuts)


class CutTransport:
    """Fulfils `Transport` with another one, for one life of a broker; what it opens to other brokers can be cut.

    That is enough: of two brokers, one has opened each connection between them.
    """

    def __init__(self, network: ClusterNetwork, broker_id: int, inner: Transport, scheduler: Scheduler) -> None:
        self._network = network
        self._broker_id = broker_id
        self._inner = inner
        self._scheduler = scheduler
        self._open: dict[Connection, int] = {}

    def listen(
        self,
        address: Address,
        accept: Callable[[Connection], ConnectionHandler],
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> Listener:
        """See `Transport`."""
        return self._inner.listen(address, accept, limits, tls)

    def connect(
        self, address: Address, opened: Opened, *, timeout_ms: float, limits: Limits, tls: ClientTls | None = None
    ) -> None:
        """See `Transport`."""
        peer = self._network.owner(address)
        if peer is None:
            self._inner.connect(address, opened, timeout_ms=timeout_ms, limits=limits, tls=tls)
        elif self._network.is_cut(self._broker_id, peer):
            self._scheduler.call_soon(lambda: _failed(opened, peer))
        else:
            taken = partial(self._taken, peer, opened)
            self._inner.connect(address, taken, timeout_ms=timeout_ms, limits=limits, tls=tls)

    def close_to(self, peer: int, closed: threading.Event) -> None:
        """Close the connections to another broker, on the thread of this one; `closed` is set then."""

        def close() -> None:
            for connection in [each for each, other in self._open.items() if other == peer]:
                connection.close()
            closed.set()

        try:
            self._scheduler.call_soon(close)
        except ClosedError:
            closed.set()

    def _taken(self, peer: int, opened: Opened, result: Connection | TransportError) -> ConnectionHandler | None:
        if isinstance(result, TransportError):
            return opened(result)
        if self._network.is_cut(self._broker_id, peer):
            result.close()
            _failed(opened, peer)
            return None
        handler = opened(result)
        if handler is None:
            return None
        self._open[result] = peer
        return _Handler(handler, lambda: self._open.pop(result, None))


class _Handler:
    """Fulfils `ConnectionHandler` with another one, and calls `over` when the connection is closed."""

    __slots__ = ("_inner", "_over", "on_frame")

    def __init__(self, inner: ConnectionHandler, over: Callable[[], object]) -> None:
        self._inner = inner
        self._over = over
        self.on_frame = inner.on_frame

    def on_closed(self, error: TransportError | None) -> None:
        self._over()
        self._inner.on_closed(error)


def _failed(opened: Opened, peer: int) -> None:
    opened(TransportError(f"cannot connect to broker {peer}: the test has cut it off"))


def soon(scheduler: Scheduler | None, callback: Callable[[], None]) -> None:
    """Run it on the thread of a broker, unless that has ended."""
    if scheduler is not None:
        with suppress(ClosedError):
            scheduler.call_soon(callback)


class ClusterBroker:
    """A broker of a `TestCluster`. `faults` are what goes wrong for its clients on demand, other brokers among them."""

    def __init__(
        self,
        broker_id: int,
        config: Mapping[str, object],
        *,
        plugins: Sequence[object],
        listener: str,
        tree: ClusterTree,
        network: ClusterNetwork,
    ) -> None:
        self.broker_id = broker_id
        self.faults = Faults(lambda callback: soon(self._scheduler, callback))
        self._listener = listener
        self._given = dict(config)
        self._plugins = tuple(plugins)
        self._tree = tree
        self._network = network
        self._folders = MemoryLogDirs()
        self._life: Broker | None = None
        self._scheduler: Scheduler | None = None
        self._session: TreeSession | None = None
        self._transport: CutTransport | None = None
        self._hide_metrics: Callable[[], None] | None = None
        self._pause: threading.Event | None = None
        self._is_dying = self._is_cut_off = False
        self.config: BrokerConfig = self._made().config
        """The configuration of the broker."""

    def __repr__(self) -> str:
        how = "paused" if self.paused else "running" if self.running else "stopped"
        return f"<ClusterBroker {self.broker_id} {self.bootstrap}, {how}>"

    @property
    def bootstrap(self) -> str:
        """`host:port`; the same over all its lives. Empty before the first."""
        return "" if self._listener.endswith(":0") else self._listener.partition("://")[2]

    @property
    def running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since; a paused one runs."""
        return self._life is not None

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._pause is not None

    @property
    def cut_off(self) -> bool:
        """Whether it cannot reach the coordination."""
        return self._is_cut_off

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it: it does not change, but is replaced."""
        return self._started().node.state.image

    def serves(self, topic: Topic, states: Mapping[int, PartitionState]) -> bool:
        """Return True if it knows these states, and leads or follows accordingly."""
        state = self._started().node.state
        if state.image.topics.get(topic.name) != topic or dict(state.image.states_of(topic.name)) != states:
            return False
        for number, replicas in topic.partitions.items():
            here = state.replicas.partitions.get(TopicPartition(topic.name, number))
            if (here is not None) != (self.broker_id in replicas):
                return False
            if here is not None and here.is_leader != (states[number].leader == self.broker_id):
                return False
        return True

    @property
    def inner(self) -> Broker:
        """The broker itself. Raises `ClosedError` while it does not run."""
        return self._started()

    def ask(self, request: Request[ResultT]) -> ResultT:
        """Have this broker answer a request of `ports.broker_api`, past the faults. Raises `BarnabasError`."""
        return ask(self._started(), request)

    # --- life

    def reserve(self, ports: ExitStack) -> None:
        """Have an address that outlives each life, where the system can do that; until `ports` are closed."""
        self._listener = reserved(self._listener, ports)

    def start(self) -> None:
        """Start, or start again; returns when it is registered. Twice is harmless."""
        if self._life is not None:
            return
        life = self._made()
        try:
            life.start()
        except BaseException:
            self._abandon(life)
            raise
        self._listener = f"{self._listener.partition('://')[0]}://{life.listeners[0].partition('://')[2]}"
        self._network.own(int(self._listener.rpartition(":")[2]), self.broker_id)
        self._life = life

    def stop(self) -> None:
        """Stop in order: its leaders move first. Twice is harmless."""
        self.resume()
        life, self._life = self._life, None
        if life is not None:
            life.close()
            self._forget()

    def kill(self, *, power_cut: bool = False) -> None:
        """Let the broker die as by kill -9: what it has written stays, no other broker is notified, and its session
        expires. With `power_cut` everything that it had not flushed is lost. A second call has no effect.
        """
        life, self._life = self._life, None
        if life is None:
            return
        self._is_dying = True
        self.resume()
        self._abandon(life)
        self._is_dying = False
        self._folders.crash(power_cut=power_cut)

    def pause(self) -> None:
        """Let its thread stand still, as by SIGSTOP; connections stay open. Twice is harmless."""
        life = self._started()
        if self._pause is not None:
            return
        gate, stands = threading.Event(), threading.Event()
        session = self._session
        if session is not None:
            session.is_paused = True

        def stand_still() -> None:
            stands.set()
            gate.wait()
            if self._is_dying:
                life.abandon()

        life.scheduler.call_soon(stand_still)
        if not stands.wait(_PATIENCE_S):
            raise TimeoutError(f"{self} does not come to a rest")
        self._pause = gate

    def resume(self) -> None:
        """Undo `pause`. Twice is harmless."""
        gate, self._pause = self._pause, None
        if self._session is not None:
            self._session.is_paused = False
        if gate is not None:
            gate.set()

    def _abandon(self, life: Broker) -> None:
        life.abandon()
        if self._hide_metrics is not None:
            self._hide_metrics()
        if self._session is not None:
            self._session.cut()
        self._forget()

    def _forget(self) -> None:
        if self._session is not None:
            self._tree.forget(self._session)
        self._scheduler = self._session = self._transport = self._hide_metrics = None

    # --- the network

    def close_to(self, peer: int) -> None:
        """Close the connections to another broker, `peer`; returns when they are, unless it is paused."""
        transport = self._transport
        if transport is not None:
            closed = threading.Event()
            transport.close_to(peer, closed)
            if not self.paused and not closed.wait(_PATIENCE_S):
                raise TimeoutError(f"{self} does not close its connections to broker {peer}")

    def cut(self) -> None:
        """Cut the broker off from the coordination service, also after a restart."""
        self._is_cut_off = True
        if self._session is not None:
            self._session.cut()

    def mend(self) -> None:
        """Undo `cut`."""
        self._is_cut_off = False
        if self._session is not None:
            self._session.mend()

    def expire_session(self) -> None:
        """The coordination ends its session, as if it had not heard of the broker for too long."""
        self._started()
        if self._session is not None:
            self._session.expire()

    # --- within

    def _started(self) -> Broker:
        if self._life is None:
            raise ClosedError(f"broker {self.broker_id} does not run: call start({self.broker_id}) of the cluster")
        return self._life

    def _made(self) -> Broker:
        return Broker(
            listeners=(self._listener,),
            storage="memory",
            plugins=self._plugins,
            config=self._given,
            outside=self._outside,
        )

    def _outside(
        self,
        config: BrokerConfig,
        *,
        scheduler: Scheduler,
        transport: Transport,
        metrics: Metrics | None,
        report: Callable[[str], None],
        plugins: PluginHost,
    ) -> Outside:
        self._scheduler = scheduler
        self._transport = CutTransport(self._network, self.broker_id, transport, scheduler)
        made = outside_of(
            config,
            scheduler=scheduler,
            transport=self._transport,
            metrics=metrics,
            open_log_dirs=self._folders.open_log_dirs,
            open_coordination=self._open_coordination,
            report=report,
            plugins=plugins,
            shared=True,
        )
        servers = {
            protocol: faulty_servers(make, self.faults, scheduler, _ignore) for protocol, make in made.servers.items()
        }
        return evolve(
            made,
            servers=servers,
            expose_metrics=self._exposing(made.expose_metrics),
            lease_clock=self._tree.clock,
        )

    def _open_coordination(self) -> Coordination:
        scheduler = self._scheduler
        self._session = self._tree.session(lambda callback: soon(scheduler, callback))
        if self._is_cut_off:
            self._session.cut()
        return self._session.coordination

    def _exposing(self, expose: ExposeMetrics | None) -> ExposeMetrics | None:
        """Wrap `expose` so that the callback that ends it is stored for a broker that dies; None stays None."""
        if expose is None:
            return None

        def exposed(metrics: Metrics, ready: Callable[[], str | None]) -> Callable[[], None]:
            hide = self._hide_metrics = expose(metrics, ready)
            return hide

        return exposed


def _ignore(_: Server) -> None:
    """Connections are closed by killing their broker."""


class TestCluster:
    """Several brokers in this process, in memory, on free ports of 127.0.0.1. Every Kafka client can use them.

        with TestCluster(brokers=3) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.kill(cluster.leader("orders", 0))
            ...
            cluster.assert_produced("orders", [{"id": 1}])

    brokers:    how many; their ids are 1, 2, 3...
    config:     Kafka's dotted keys over `CLUSTER_DEFAULTS`; `settings` are the same in snake case and win.
    per_broker: further settings of single brokers, by id: `{1: {"broker.rack": "a"}}`.
    plugins:    as of `Broker`.
    security, users: as of `TestBroker`; the brokers connect to each other as a user of their own.

    What a broker has stored outlives its stops and deaths, until `close` or the end of the context. All methods may be
    called from any thread, one at a time. Raises `ConfigError`.
    """

    __test__ = False  # for pytest: this is no class of tests

    __signature__ = SettingsSignature(BrokerKeywords, broker_defaults)

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        *,
        per_broker: Mapping[int, Mapping[str, object]] | None = None,
        plugins: Sequence[object] = (),
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: a cluster has 1 or more")
        strangers = sorted(set(per_broker or {}) - set(range(1, brokers + 1)))
        if strangers:
            raise ConfigError(f"per_broker names broker {strangers[0]}; the ids are 1 to {brokers}")
        replicas = min(brokers, _REPLICAS_MAX)
        self.security = TestSecurity(security, users)
        """The users, certificates and denied operations; `client_settings(user)` are what clients need."""
        plugins = (*plugins, *([self.security.denied] if self.security.is_secured else ()))
        given: dict[str, object] = {
            **CLUSTER_DEFAULTS,
            **self.security.broker_settings(),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            **(config or {}),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._ports = ExitStack()
        """The addresses of the brokers, and what else is open while the cluster runs."""
        self._network = ClusterNetwork()
        self._tree = ClusterTree(float(str(given[_SESSION_TIMEOUT])), log_report)
        self._producer = CachedProducer()
        self._is_running = False
        self._brokers = {
            number: ClusterBroker(
                number,
                {**given, "broker.id": number, **(per_broker or {}).get(number, {})},
                plugins=plugins,
                listener=self.security.listener("kafka://127.0.0.1:0"),
                tree=self._tree,
                network=self._network,
            )
            for number in range(1, brokers + 1)
        }

    # --- life

    def start(self, broker_id: int | None = None) -> TestCluster:
        """Start all brokers that do not run, or one of them; returns when all that run know each other."""
        if not self._is_running:
            self._begin()
        asked = list(self._brokers.values()) if broker_id is None else [self.broker(broker_id)]
        with ThreadPoolExecutor(len(asked), "barnabas-test-cluster") as threads:
            for starting in [threads.submit(each.start) for each in asked]:
                starting.result()
        self.wait_until(self._know_each_other, "the brokers do not know each other")
        return self

    def _begin(self) -> None:
        self._is_running = True
        self._tree.start()
        self._ports.callback(self._tree.close)
        for broker in self._brokers.values():
            broker.reserve(self._ports)
        started(self)

    def close(self) -> None:
        """End all brokers at once, and give their addresses up. Twice is harmless."""
        if self._is_running:
            self._is_running = False
            stopped(self)
        self._producer.close()
        for broker in self._brokers.values():
            broker.faults.clear()
            broker.kill()
        self._ports.close()
        self.security.close()

    def __enter__(self) -> TestCluster:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TestCluster {', '.join(map(repr, self._brokers.values()))}>"

    @property
    def bootstrap(self) -> str:
        """`host:port,host:port,...` for a client's `bootstrap.servers`: all brokers, running or not. Empty before the
        first start."""
        return ",".join(broker.bootstrap for broker in self._brokers.values() if broker.bootstrap)

    @property
    def source(self) -> Bootstrap:
        """The bootstrap addresses that `assert_produced` reads messages from, with the security of the cluster."""
        return secured(self.bootstrap, self.security.client_settings())

    @property
    def broker_ids(self) -> list[int]:
        """1, 2, 3...: all brokers, whether they run or not."""
        return list(self._brokers)

    @property
    def running(self) -> list[int]:
        """The brokers that were started, and neither stopped nor killed since; the paused ones are among them."""
        return [number for number, broker in self._brokers.items() if broker.running]

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return one of the brokers. Raises `ConfigError` for an id that there is not."""
        if broker_id not in self._brokers:
            raise ConfigError(f"there is no broker {broker_id}; the ids are 1 to {len(self._brokers)}")
        return self._brokers[broker_id]

    # --- what happens to brokers

    def stop(self, broker_id: int) -> None:
        """Stop a broker in order: others lead its partitions first. Its data and address stay. Twice is harmless."""
        self.broker(broker_id).stop()

    def kill(self, broker_id: int, *, power_cut: bool = False) -> None:
        """Let a broker die as by kill -9. What it has written stays, and the others learn of it by the end of its
        session. With `power_cut`, what it had not flushed is lost. Twice is harmless."""
        self.broker(broker_id).kill(power_cut=power_cut)

    def restart(self, broker_id: int) -> None:
        """Start a broker again; one that runs is stopped in order first."""
        self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Let a broker stand still, as by SIGSTOP: connections stay open, nothing is answered, its session runs out."""
        self.broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Let a paused broker continue where it stopped."""
        self.broker(broker_id).resume()

    def expire_session(self, broker_id: int) -> None:
        """Let the coordination end the session of a broker, as if it had not heard of it for too long."""
        self.broker(broker_id).expire_session()

    def partition(self, broker_id: int, other: int | Literal["coordination"]) -> None:
        """Cut the network between a broker and `other`, a broker or the coordination; clients reach both.

        What is open between them is closed, and nothing new passes until `heal`.
        """
        one = self.broker(broker_id)
        if other == COORDINATION:
            one.cut()
            return
        two = self.broker(other)
        if one is two:
            raise ConfigError(f"broker {broker_id} cannot be cut off from itself")
        self._network.cut(broker_id, other)
        one.close_to(other)
        two.close_to(broker_id)

    def heal(self) -> None:
        """End all partitions of the network."""
        for pair in self._network.cuts:
            self._network.mend(*pair)
        for broker in self._brokers.values():
            broker.mend()

    # --- partitions of topics

    @property
    def controller(self) -> int | None:
        """The broker that elects leaders; None while there is none."""
        return self._tree.controller()

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader of a partition; None: it has none. Raises `ConfigError` for an unknown partition."""
        leader = self._stored(topic, partition).states[partition].leader
        return leader if leader >= 0 else None

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Return the leader epoch of a partition: each change of the leader, also to none, raises it."""
        return self._stored(topic, partition).states[partition].leader_epoch

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """Return the replicas of a partition, the preferred leader first."""
        stored = self._stored(topic, partition)
        return list(stored.topic.partitions[partition]) if stored.topic is not None else []

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """Return the replicas of a partition that are in sync (its ISR)."""
        return sorted(self._stored(topic, partition).states[partition].isr)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Let another replica (`to`) lead; returns when all brokers know.

        Raises `ConfigError` for one that is not in sync.
        """
        self.broker(to)
        while not self._moved(topic, partition, to):
            pass  # another broker has changed a state of the topic meanwhile
        self.wait_until(lambda: self._is_known(topic), f"not all brokers know the leader of {topic}-{partition}")

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None, timeout: float = _PATIENCE_S
    ) -> int:
        """Wait until a running broker leads a partition (another one than `other_than`), and all brokers that can
        know do: those that do not stand still and are not cut off from the coordination. Returns its id. Raises
        `TimeoutError`."""

        def elected() -> int | None:
            leader = self.leader(topic, partition)
            return None if leader == other_than or leader not in self._informed() else leader

        def found() -> int | None:
            leader = elected()
            return leader if leader is not None and self._is_known(topic) else None

        def missing() -> str:
            leader = elected()
            if leader is not None:
                return f"broker {leader} leads {topic}-{partition}, and not all brokers know"
            other = "" if other_than is None else f" other than {other_than}"
            return f"no leader for {topic}-{partition}{other} (leader: {self.leader(topic, partition)})"

        return self.wait_until(found, missing, timeout=timeout)

    def wait_in_sync(self, topic: str | None = None, *, timeout: float = _PATIENCE_S) -> None:
        """Wait until every replica of a topic (None: of all topics) is in sync, and all brokers know."""

        def in_sync() -> bool:
            return all(self._is_in_sync(each) and self._is_known(each) for each in self._topics(topic))

        self.wait_until(in_sync, f"not all replicas of {topic or 'all topics'} are in sync", timeout=timeout)

    def wait_until(
        self, condition: Callable[[], T | None], else_text: str | Callable[[], str], *, timeout: float = _PATIENCE_S
    ) -> T:
        """Wait until a condition is true; returns what it came to.

        Raises `TimeoutError` after `timeout` seconds; `else_text` is its text.
        """
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            if time.monotonic() > deadline:
                text = else_text if isinstance(else_text, str) else else_text()
                raise TimeoutError(f"{text} after {timeout:g} s: {self}")
            time.sleep(_POLL_S)
        return found

    # --- security

    def client_settings(self, user: str | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return what a client of Barnabas or librdkafka needs to connect, as `user` (None: the first of `users`)."""
        return {"bootstrap.servers": self.bootstrap, **self.security.client_settings(user, mechanism)}

    def deny(self, principal: str, operation: str, resource: str) -> None:
        """Deny an operation on `resource` at all brokers; see `TestBroker.deny`."""
        self.security.deny(principal, operation, resource)

    def allow_all(self) -> None:
        """Allow again what was denied."""
        self.security.denied.clear()

    # --- topics and messages

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Make a topic, and wait until all brokers know it; returns its name (None: a new one). Raises `ApiError`."""
        chosen = name or f"topic-{next(_numbers)}"
        texts = {key: text_of(value) for key, value in (configs or {}).items()}
        with self.admin() as admin:
            admin.create_topic(chosen, partitions=partitions, replication_factor=replication_factor, configs=texts)
        self.wait_until(lambda: self._is_known(chosen), f"not all brokers know {chosen}")
        return chosen

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages. Raises `ApiError`."""
        with self.admin() as admin:
            admin.delete_topics([name])

    def produce(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> list[Delivery]:
        """Produce messages with acks=all and wait for their delivery; they are given as to `TestBroker.produce`."""
        self._check_running()
        return self._producer.produce(self.source, topic, messages, partition, retry_backoff_ms=10, **_CLIENTS)

    def produced(self, topic: str, *, partition: int | None = None, committed: bool = False) -> list[Message]:
        """Return the messages that a topic holds, by partition and offset; none if there is no such topic.

        `committed`: without those of transactions that are open or were aborted.
        """
        self._check_running()
        return read_all(self.source, topic, partition, committed=committed)

    def assert_produced(self, topic: str, values: Sequence[Any] | None = None, **expected: Any) -> list[Message]:
        """Wait until a topic holds what is expected; see `barnabas.testing.assert_produced`."""
        __tracebackhide__ = True
        self._check_running()
        return assert_produced(topic, values, broker=self, **expected)

    def producer(self, *, user: str | None = None, **settings: Unpack[ProducerArguments]) -> Producer:
        """Return a `Producer` of this cluster; the caller closes it."""
        return producer_of(self.bootstrap, **{**_CLIENTS, **self.security.keywords(user), **settings})

    def consumer(self, *, user: str | None = None, **settings: Unpack[ConsumerArguments]) -> Consumer[Any, Any]:
        """Return a `Consumer` of this cluster that begins with the earliest messages; the caller closes it."""
        return consumer_of(self.bootstrap, **{**_CLIENTS, **self.security.keywords(user), **settings})

    def share_consumer(
        self, *, user: str | None = None, **settings: Unpack[ShareConsumerArguments]
    ) -> ShareConsumer[Any, Any]:
        """Return a `ShareConsumer` of this cluster; the caller closes it.

        A group that is not configured begins with the earliest messages.
        """
        with self.admin(user=user) as admin:
            keywords = {**_CLIENTS, **self.security.keywords(user), **settings}
            return share_consumer_of(admin, self.bootstrap, **keywords)

    def admin(self, *, user: str | None = None, **settings: Unpack[ClientKeywords]) -> Admin:
        """Return an `Admin` of this cluster; the caller closes it."""
        return admin_of(self.bootstrap, **{**_CLIENTS, **self.security.keywords(user), **settings})

    # --- within

    def _check_running(self) -> None:
        if not self._is_running:
            raise ClosedError("the test cluster does not run: call start()")

    def _awake(self) -> list[int]:
        """Return the brokers that do something."""
        return [number for number, broker in self._brokers.items() if broker.running and not broker.paused]

    def _informed(self) -> list[int]:
        """Return the brokers that can know what happens: those that are cut off from the coordination cannot."""
        return [number for number in self._awake() if not self._brokers[number].cut_off]

    def _know_each_other(self) -> bool:
        running = set(self._awake())
        registered = {each.broker_id: each.broker_epoch for each in self._tree.brokers()}
        if self.controller not in running or not running <= registered.keys():
            return False
        images = [self._brokers[number].image for number in running]
        return all(
            registered.keys() == image.brokers.keys()
            and all(image.brokers[each].broker_epoch == epoch for each, epoch in registered.items())
            for image in images
        )

    def _topics(self, topic: str | None) -> list[str]:
        if topic is not None:
            return [topic]
        return sorted({name for number in self._informed() for name in self._brokers[number].image.topics})

    def _stored(self, topic: str, partition: int) -> StoredTopic:
        found = self._tree.topic(topic)
        if found is None or partition not in found.states:
            raise ConfigError(f"there is no partition {topic}-{partition} in the cluster")
        return found

    def _is_in_sync(self, topic: str) -> bool:
        found = self._tree.topic(topic)
        if found is None or found.topic is None:
            return False
        epochs = {each.broker_id: each.broker_epoch for each in self._tree.brokers()}
        return found.states.keys() == found.topic.partitions.keys() and all(
            state.leader >= 0
            and set(state.isr) == set(found.topic.partitions[number])
            and all(epochs.get(member) == state.broker_epochs.get(member) for member in state.isr)
            for number, state in found.states.items()
        )

    def _is_known(self, topic: str) -> bool:
        """Return True if every broker that can know has made of the topic what the tree says."""
        found = self._tree.topic(topic)
        if found is None or found.topic is None or found.states.keys() != found.topic.partitions.keys():
            return False
        return all(self._brokers[number].serves(found.topic, found.states) for number in self._informed())

    def _moved(self, topic: str, partition: int, to: int) -> bool:
        """Return False if it is to be tried again."""
        stored = self._stored(topic, partition)
        if stored.topic is None or stored.states[partition].leader == to:
            return True
        state, replicas = stored.states[partition], stored.topic.partitions[partition]
        config = self._brokers[to].config
        min_isr = int(stored.topic.configs.get("min.insync.replicas", config.min_insync_replicas))
        brokers = {each.broker_id: each for each in self._tree.brokers()}
        moved = moved_to(state, to, replicas, brokers, ElectionRules(min_isr=min_isr, is_common=False))
        if moved is None:
            raise ConfigError(f"broker {to} cannot lead {topic}-{partition}: in sync are {sorted(state.isr)}")
        try:
            self._tree.set_state(stored, partition, moved)
        except BadVersion:
            return False
        return True
