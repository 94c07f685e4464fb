"""A whole cluster and its users in one process, under one seeded clock: the same seed plays the same story."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Self

from ..adapters.coord_memory import MemoryTree
from ..core.cluster import layout
from ..core.cluster.metadata_listener import ROOT
from ..core.cluster.topic_store import states_paths
from ..core.cluster.topics import BrokerRegistration, PartitionState, Topic
from ..core.replica.partition.partition import Partition
from ..ports.coordination import NoNode
from ..ports.remote_storage import RemoteStorage
from ..ports.transport import Address
from ..ports.types import TopicPartition
from .broker import SimulatedBroker
from .machine import Machine
from .network import COORDINATION, Who, node_name
from .program import Program, Run
from .surroundings import Surroundings

COORDINATION_WAITS = 0.2
"""The probability that a call of a separate coordination service lets others run first, on its way there and back."""
READY_S = 120.0
"""A cluster that is not ready after this world time never will be."""


# The coordination service of a world: ZooKeeper's or etcd's part, with what happens to it.


class CoordinationService:
    """Faults of the coordination service. The tree is `World.tree`; `SimulatedNetwork.partition` cuts a machine off
    from it.
    """

    def __init__(
        self, tree: MemoryTree, machines: Callable[[], Iterable[Machine]], set_down: Callable[[bool], None]
    ) -> None:
        self._tree = tree
        self._machines = machines
        self._set_down = set_down
        self._away: list[Machine] = []

    def expire(self, who: Who) -> None:
        """Let the service end the sessions of this machine, which keeps running and is notified soon."""
        for machine in self._machines():
            if machine.name == node_name(who):
                machine.expire()

    def go_down(self, *, sessions_expire: bool = False) -> None:
        """Make the service unreachable for all. Sessions do not end meanwhile, as the service does not count the time,
        unless `sessions_expire`.
        """
        self._set_down(True)
        for machine in self._machines():
            self._away.append(machine)
            for session in machine.sessions:
                session.leave(may_expire=sessions_expire)

    def come_up(self) -> None:
        """Make the service reachable again."""
        self._set_down(False)
        away, self._away = self._away, []
        for machine in away:
            for session in machine.sessions:
                if session.is_away:
                    session.come_back()

    def backup(self) -> Sequence[tuple[str, bytes, int]]:
        """Path, data and version of every node of the current generation that no session owns, as they are now."""
        nodes, paths = self._tree.nodes, [ROOT]
        for path in paths:
            paths += [f"{path}/{name}" for name in nodes.children(path)]
        found = [(path, nodes.get(path)) for path in paths]
        return [(path, node.data, node.version) for path, node in found if not node.ephemeral]

    def restore(self, backup: Sequence[tuple[str, bytes, int]]) -> None:
        """The tree is what it was at that backup. Stop all brokers before, and wait for the end of their sessions."""
        for path, _, _ in sorted(self.backup(), reverse=True):
            self._tree.change(self._tree.nodes.plan_delete(path, None))
        self._tree.nodes.restore(backup)


# View of the coordination tree of a world, independent of sessions: for checks, and for faults with a limit.

DECODED_MAX = 512
"""Nodes seldom change from one look to the next, and what is decoded is immutable."""


@lru_cache(DECODED_MAX)
def _decode_topic(name: str, data: bytes) -> tuple[Topic, bool]:
    return layout.decode_topic(name, data, {})


@lru_cache(DECODED_MAX)
def decode_states(data: bytes) -> tuple[bytes, Mapping[int, PartitionState]]:
    """Return the topic's id and the states of a node."""
    decoded: tuple[bytes, Mapping[int, PartitionState]] = layout.decode_states(data)
    return decoded


@lru_cache(DECODED_MAX)
def _decode_broker(name: str, data: bytes) -> BrokerRegistration:
    decode: Callable[[str, bytes], BrokerRegistration] = layout.decode_broker
    return decode(name, data)


class TreeView:
    """Reads the nodes of the current generation as they are now."""

    def __init__(self, tree: MemoryTree) -> None:
        self._nodes = tree.nodes
        self._topics: Mapping[str, Topic] = {}
        self._states: dict[str, Mapping[int, PartitionState]] = {}
        self._read_at = -1
        """The number of changes of the tree when these topics and states were read."""

    def topics(self) -> Mapping[str, Topic]:
        """Return the topics without those that are being deleted, and without their configs: the same object until the
        tree changes."""
        self._forget_what_was()
        return self._topics

    def _read_topics(self) -> dict[str, Topic]:
        found = {}
        for name in self._children(layout.TOPICS):
            topic, deleting = _decode_topic(name, self._nodes.get(layout.topic_path(name)).data)
            if not deleting:
                found[name] = topic
        return found

    def states(self, topic: str) -> Mapping[int, PartitionState]:
        """Return the states of a topic's partitions; empty if none are stored. The same object until the tree
        changes."""
        self._forget_what_was()
        states = self._states.get(topic)
        if states is None:
            states = self._states[topic] = self._read_states(topic)
        return states

    def _forget_what_was(self) -> None:
        if self._read_at != self._nodes.applied:
            self._read_at, self._topics = self._nodes.applied, self._read_topics()
            self._states.clear()

    def _read_states(self, topic: str) -> Mapping[int, PartitionState]:
        try:
            found, _ = _decode_topic(topic, self._nodes.get(layout.topic_path(topic)).data)
        except NoNode:
            return {}
        states: dict[int, PartitionState] = {}
        for path in states_paths(found):
            with suppress(NoNode):
                states |= decode_states(self._nodes.get(path).data)[1]
        return states

    def brokers(self) -> dict[int, BrokerRegistration]:
        """Return the registered brokers by id."""
        return {
            int(name): _decode_broker(name, self._nodes.get(f"{layout.BROKER_IDS}/{name}").data)
            for name in self._children(layout.BROKER_IDS)
            if name.isdecimal()
        }

    def deleted_in_remote_storage(self) -> list[str]:
        """Return the ids of deleted topics of which remote storage may still have objects."""
        return list(self._children(layout.DELETED_REMOTE))

    def controller(self) -> int:
        """Return the broker that elects leaders; -1 if there is none."""
        try:
            return layout.decode_controller(self._nodes.get(layout.CONTROLLER).data).broker_id
        except NoNode:
            return -1

    def in_sync_everywhere(self, broker_id: int) -> bool:
        """Return True if this broker, in its present life, is in the ISR of every partition that it is a replica of."""
        broker = self.brokers().get(broker_id)
        if broker is None:
            return False
        for name, topic in self.topics().items():
            states = self.states(name)
            for number, replicas in topic.partitions.items():
                state = states.get(number)
                if state is None or broker_id not in replicas:
                    continue
                if broker_id not in state.isr or state.broker_epochs.get(broker_id) != broker.broker_epoch:
                    return False
        return True

    def _children(self, path: str) -> list[str]:
        try:
            return self._nodes.children(path)
        except NoNode:
            return []


def _in_rack(settings: Mapping[str, object], broker_id: int, racks: Sequence[str]) -> Mapping[str, object]:
    return {**settings, "broker_rack": racks[(broker_id - 1) % len(racks)]} if racks else settings


class World(Surroundings):
    """Brokers, the network between them, a coordination service, and programs that use them.

        with World(seed=7, brokers=3) as world:
            loop = world.program("billing", run)  # run(program) uses Producer(program), Consumer(program, ...)
            world.run(60)
            world.brokers[1].power_cut()
            world.run(60)

    Nothing happens but while `run` and `run_until` let time pass, and while the caller waits for a client of its own
    (see `client`). All times are seconds of the world; a second with little traffic takes milliseconds.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        brokers: int = 3,
        session_seconds: float = 6.0,
        ready: bool = True,
        data_folders: int = 1,
        remote_storage: RemoteStorage | None = None,
        racks: Sequence[str] = (),
        **settings: object,
    ) -> None:
        """Make the brokers. `settings` are those of every broker, in snake case; with `ready` all brokers are ready
        when this returns; `data_folders` is the number of data folders of each broker, each on a disk of its own;
        `remote_storage` serves all brokers whose settings enable it, with waits that are simulated here; `racks` are
        those of the first brokers, and again from the first one for the others.

        `session_seconds` is the session timeout of the coordination service.
        """
        waits = COORDINATION_WAITS if brokers > 1 else 0.0
        super().__init__(seed, session_ms=session_seconds * 1000, waits=waits, waits_within=lambda _: True)
        self.remote_storage = remote_storage
        self.shared = brokers > 1
        """True when the coordination service is on its own; a single broker has it in its process."""
        self.look = TreeView(self.tree)
        """A view of the coordination tree."""
        self.programs: dict[str, Program] = {}
        self.brokers = {
            n: SimulatedBroker(self, n, _in_rack(settings, n, racks), shared=self.shared, data_folders=data_folders)
            for n in range(1, brokers + 1)
        }
        self.coordination = CoordinationService(self.tree, lambda: self.machines, self._set_down)
        self.network.cuts_changed = self._cuts_changed
        for broker in self.brokers.values():
            broker.start()
        if ready:
            self.run_until(self._all_know_each_other, READY_S)

    @property
    def machines(self) -> list[Machine]:
        """Brokers and programs."""
        return [*self.brokers.values(), *self.programs.values()]

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.clock.monotonic_ms() / 1000

    # --- time

    def run(self, seconds: float) -> None:
        """Let time pass. Raises the exception of a program that is not restarted."""
        self.scheduler.advance(seconds * 1000)

    def run_until(self, condition: Callable[[], bool], limit: float = 60.0) -> None:
        """Let time pass until `condition()` is true. Raises `TimeoutError` when it does not within `limit` seconds."""
        self.scheduler.run_until(condition, limit * 1000)

    # --- users

    def program(self, name: str, run: Run, *, restart_after: float | None = None) -> Program:
        """Start `run(program)` on a machine of its own; `restart_after`: see `Program`."""
        made = self.programs[name] = Program(self, name, run, self._bootstrap, restart_after=restart_after)
        made.start()
        return made

    def client(self, name: str = "client") -> Program:
        """Return a machine for clients of the caller: `Producer(world.client())`. Time passes while the caller
        waits."""
        made = self.programs.get(name)
        if made is None:
            made = self.programs[name] = Program(self, name, None, self._bootstrap)
        return made

    # --- inspection

    def partition(self, broker_id: int, topic: str, number: int) -> Partition | None:
        """Return a broker's replica of partition `number`; None if it has none or does not run."""
        return self.brokers[broker_id].partitions.get(TopicPartition(topic, number))

    # --- the end

    def close(self) -> None:
        """End the programs, with nothing more done, and all threads."""
        for program in self.programs.values():
            program.cut_power()
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside

    def _all_know_each_other(self) -> bool:
        return all(each.running and each.knows(len(self.brokers)) for each in self.brokers.values())

    @property
    def _bootstrap(self) -> list[Address]:
        return [broker.address for broker in self.brokers.values()]

    def _set_down(self, down: bool) -> None:
        self.service_is_down = down

    def _cuts_changed(self) -> None:
        for machine in self.machines:
            machine.reach_coordination(self.network.meets(machine.name, COORDINATION))
