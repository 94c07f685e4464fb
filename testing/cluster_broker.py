"""One broker of a test cluster, from its first life to the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from attrs import evolve

from ..app.compose.broker import outside_of
from ..app.compose.memory import MemoryLogDirs
from ..app.embedded_broker import Broker
from ..ports.broker_api.envelope import Request, ResultT
from ..ports.errors import ClosedError
from ..ports.types import TopicPartition
from .cluster_network import ClusterNetwork, CutTransport, soon
from .cluster_tree import ClusterTree, TreeSession
from .faults import Faults
from .faulty_api import faulty_servers
from .ports import reserved
from .requests import ask

if TYPE_CHECKING:
    from ..app.broker.state.dependencies import ExposeMetrics, Outside, Server
    from ..app.config import BrokerConfig
    from ..core.cluster.image import ClusterImage
    from ..core.cluster.topics import PartitionState, Topic
    from ..ports.coordination import Coordination
    from ..ports.metrics import Metrics
    from ..ports.scheduler import Scheduler
    from ..ports.transport import Transport

_PATIENCE_S = 60.0


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
        """True if it knows these states, and leads or follows accordingly."""
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
        self._scheduler = self._session = self._transport = self._hide_metrics = None

    # --- the network

    def close_to(self, peer: int) -> None:
        """Close the connections to another broker; returns when they are, unless it is paused."""
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
            shared=True,
        )
        servers = {
            protocol: faulty_servers(make, self.faults, scheduler, _ignore) for protocol, make in made.servers.items()
        }
        return evolve(made, servers=servers, expose_metrics=self._exposing(made.expose_metrics))

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
