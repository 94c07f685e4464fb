"""A whole cluster and its users in one process, under one seeded clock: the same seed plays the same story."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..core.replica.partition.partition import Partition
from ..ports.transport import Address
from ..ports.types import TopicPartition
from .broker import SimulatedBroker
from .coordination import CoordinationService
from .machine import Machine
from .network import COORDINATION
from .program import Program, Run
from .surroundings import Surroundings
from .tree_view import TreeView

COORDINATION_WAITS = 0.2
"""The probability that a call of a separate coordination service lets others run first, on its way there and back."""
READY_S = 120.0
"""A cluster that is not ready after this world time never will be."""


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
        **settings: object,
    ) -> None:
        """Make the brokers. `settings` are those of every broker, in snake case; with `ready` all brokers are ready
        when this returns; `data_folders` is the number of data folders of each broker, each on a disk of its own.

        `session_seconds` is the session timeout of the coordination service.
        """
        waits = COORDINATION_WAITS if brokers > 1 else 0.0
        super().__init__(seed, session_ms=session_seconds * 1000, waits=waits, waits_within=lambda _: True)
        self.shared = brokers > 1
        """True when the coordination service is on its own; a single broker has it in its process."""
        self.look = TreeView(self.tree)
        """A view of the coordination tree."""
        self.programs: dict[str, Program] = {}
        self.brokers = {
            n: SimulatedBroker(self, n, settings, shared=self.shared, data_folders=data_folders)
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
        """Let time pass until it holds. Raises `TimeoutError` when it does not within `limit` seconds."""
        self.scheduler.run_until(condition, limit * 1000)

    # --- users

    def program(self, name: str, run: Run, *, restart_after: float | None = None) -> Program:
        """Start `run(program)` on a machine of its own; `restart_after`: see `Program`."""
        made = self.programs[name] = Program(self, name, run, self._bootstrap, restart_after=restart_after)
        made.start()
        return made

    def client(self, name: str = "client") -> Program:
        """A machine for clients of the caller: `Producer(world.client())`. Time passes while the caller waits."""
        made = self.programs.get(name)
        if made is None:
            made = self.programs[name] = Program(self, name, None, self._bootstrap)
        return made

    # --- inspection

    def partition(self, broker_id: int, topic: str, number: int) -> Partition | None:
        """Return a broker's replica of a partition; None if it has none or does not run."""
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
