"""A user's program on a machine of the world: ordinary blocking code, whose waiting lets simulated time pass."""

from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import TypeVar

from ..adapters.wire_kafka.client import connect_kafka
from ..app.connector import Connector, Opened
from ..ports.clock import Clock
from ..ports.entropy import Entropy
from ..ports.errors import BarnabasError
from ..ports.scheduler import Scheduler, Timer
from ..ports.transport import Address
from .clock import SkewedClock
from .coroutine_thread import CoroutineThread, Killed
from .machine import Machine
from .surroundings import Surroundings

T = TypeVar("T")
Run = Callable[["Program"], None]


class Program(Machine):
    """A program that uses the world. Clients get it in place of a bootstrap address: `Producer(program)`,
    `Consumer(program, group_id="g")`.

    A thread of its own runs its code, and only one thread of all runs at a time; client calls that wait hand over to
    the world. Other waits (`time.sleep`, sockets, queues of other threads) know nothing of the world: use `sleep` and
    `now`.

    restart_after: the seconds after which a supervisor starts it again when it ended by a `BarnabasError` or was
    killed; any other exception leaves the world's `run`.
    """

    def __init__(
        self,
        world: Surroundings,
        name: str,
        run: Run | None,
        bootstrap: Sequence[Address],
        *,
        restart_after: float | None = None,
    ) -> None:
        super().__init__(world, name)
        self.bootstrap = bootstrap
        """The addresses of the brokers."""
        self.clock = SkewedClock.somehow(world.clock, world.entropy.child(f"clock {name}"))
        self.restart_after = restart_after
        self.lives = 0
        self.error: BaseException | None = None
        """The exception that ended it last."""
        self._run = run
        self._thread: CoroutineThread | None = None
        self._restart: Timer | None = None

    @property
    def running(self) -> bool:
        """True from `start` until its function has returned, or it was killed."""
        return self._thread is not None and not self._thread.ended

    @property
    def is_in_its_code(self) -> bool:
        """True in the thread of its function."""
        return self._thread is not None and self._thread.is_here

    # --- for its own code

    @property
    def now(self) -> float:
        """The time of day on this machine, as `time.time()` would return it."""
        return self.clock.now_ms() / 1000

    def sleep(self, seconds: float) -> None:
        """Sleep in the world's time, in place of `time.sleep`."""
        self.wait(Notice(), seconds)

    def connector_for(self, *, client_id: str, request_timeout_ms: float, connect_timeout_ms: float) -> Connector:
        """Return a connector for the clients of this program; `request_timeout_ms` and `connect_timeout_ms` as
        clients have.
        """
        return _ProgramConnector(self, client_id, request_timeout_ms, connect_timeout_ms)

    # --- for its supervisor

    def start(self) -> None:
        """Run its function from the beginning, on a machine that has just been switched on."""
        if self.running or self._run is None:
            return
        self.switch_on()
        self.lives += 1
        run = self._run

        def main() -> None:
            try:
                run(self)
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001  # `_step` reports it
                self.error = error

        self.error = None
        thread = self._thread = CoroutineThread(main, f"simulated-{self.name}")
        self.life.call_soon(lambda: self._step(thread))

    def kill(self) -> None:
        """Kill the program as `kill -9` does: none of its code has an effect from now on, not even in `finally`."""
        self.world.report(f"--- {self.name} is killed")
        self.cut_power()
        self._ended()

    def pause(self, seconds: float) -> None:
        """Stop the program as SIGSTOP does, and continue it after `seconds`."""
        self.world.report(f"--- {self.name} stands still for {seconds:.2f} s")
        self.stand_still(seconds * 1000)

    def cut_power(self) -> None:
        """End the program as `kill` does; it is not started again."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        super().cut_power()
        if self._thread is not None and not self._thread.ended:
            self._thread.kill()

    # --- inside

    def wait(self, notice: "Notice", seconds: float | None) -> bool:
        """Let time pass until the notice is given; False when the time was over before. Called by its code alone."""
        thread = self._thread
        if thread is None or not thread.is_here:
            return self._wait_as_caller(notice, seconds)
        awake = [False]

        def wake() -> None:
            if not awake[0]:
                awake[0] = True
                self._step(thread)

        timer = self.life.call_later(seconds * 1000, wake) if seconds is not None else None
        notice.wake = lambda: self.life.call_soon(wake)
        thread.wait()
        notice.wake = None
        if timer is not None:
            timer.cancel()
        return notice.given

    def _wait_as_caller(self, notice: "Notice", seconds: float | None) -> bool:
        scheduler = self.world.scheduler
        end = None if seconds is None else scheduler.clock.monotonic_ms() + seconds * 1000
        try:
            scheduler.run_until(lambda: notice.given, float("inf") if seconds is None else seconds * 1000)
        except TimeoutError:
            if end is None:
                raise
            scheduler.clock.advance_to(end)
        return notice.given

    def _step(self, thread: CoroutineThread) -> None:
        thread.step()
        if thread.ended and self._thread is thread and self.life.alive:
            error = self.error
            if error is not None:
                self.world.report(f"--- {self.name} ends: {error!r}")
            if error is not None and not (self.restart_after is not None and isinstance(error, BarnabasError)):
                raise error
            super().cut_power()
            if error is not None:
                self._ended()

    def _ended(self) -> None:
        if self.restart_after is not None:
            self._restart = self.world.scheduler.call_later(self.restart_after * 1000, self.start)


class Notice:
    """An event that a program waits for; given once."""

    def __init__(self) -> None:
        self.given = False
        self.wake: Callable[[], None] | None = None

    def give(self) -> None:
        if not self.given:
            self.given = True
            if self.wake is not None:
                self.wake()


class _SimulatedCondition(Condition):
    """Waits in the time of the world."""

    def __init__(self, lock: Lock, program: Program) -> None:
        super().__init__(lock)
        self._program = program
        self._notices: list[Notice] = []

    def wait(self, timeout: float | None = None) -> bool:
        notice = Notice()
        self._notices.append(notice)
        self.release()
        try:
            return self._program.wait(notice, timeout)
        finally:
            self._notices.remove(notice)
            self.acquire()

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        clock = self._program.world.clock
        end = None if timeout is None else clock.monotonic_ms() + timeout * 1000
        while not (result := predicate()):
            left = None if end is None else (end - clock.monotonic_ms()) / 1000
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for notice in [each for each in self._notices if not each.given][:n]:
            notice.give()

    def notify_all(self) -> None:
        self.notify(len(self._notices))


class _ProgramConnector:
    """Fulfils `Connector`: the program's machine is the reactor of its clients."""

    def __init__(self, program: Program, client_id: str, request_timeout_ms: float, connect_timeout_ms: float) -> None:
        self._program = program
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._life = program.life
        self.bootstrap = program.bootstrap
        self.clock: Clock = program.clock
        self.entropy: Entropy = program.world.entropy.child(f"{program.name} {program.lives} {client_id}")

    def start(self) -> Scheduler:
        return self._life

    def condition(self, lock: Lock) -> Condition:
        return _SimulatedCondition(lock, self._program)

    def owns_thread(self) -> bool:
        program = self._program
        return program.world.scheduler.running and not program.is_in_its_code

    def connect(self, address: Address, opened: Opened) -> None:
        connect_kafka(
            self._program.transport(),
            self._life,
            address,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
            opened=opened,
            sasl=self._program.world.sasl,
        )

    def stop(self) -> None:
        pass  # the machine keeps running
