"""A whole broker without threads, sockets or disks: its clock stands still unless a test lets time pass.

What it is asked is done at once, in the test's own thread.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..app.broker.lifecycle.broker_server import BrokerServer
from ..app.compose.broker import outside_of, plugin_host
from ..app.config import BrokerConfig
from ..core.message.batch_writer import encode_batch
from ..core.message.message import Message
from ..core.message.message_set import MessageSet
from ..plugins.builtin.codecs import builtin_codecs
from ..ports.broker_api.envelope import Caller, Origin, Request
from ..ports.broker_api.fetch import Fetch, FetchPartition, FetchResult
from ..ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from ..ports.broker_api.topics import CreateTopics, NewTopic
from ..ports.coordination import Coordination
from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, BarnabasError
from ..ports.report import Level, Line
from .by_hand import (
    ManualClock,
    ManualScheduler,
    MemoryDisk,
    MemoryLogDir,
    MemoryMetrics,
    MemoryNetwork,
    MemoryTree,
    SeededEntropy,
)

if TYPE_CHECKING:
    from ..app.broker.state.tiering import RemoteOutside
    from ..plugins.host import PluginHost

ResultT = TypeVar("ResultT")
HERE = Caller(client_id="test", host="127.0.0.1", connection=1)
ITSELF = Caller(origin=Origin.BROKER)
"""The broker, where it asks itself."""


class ManualBroker:
    """Starts at once; `restart` stops it in order and starts it on the same disk and tree.

        broker = ManualBroker(plugins=["newest"], log_retention_check_interval_ms=1000)
        broker.create("orders", deletion_policy="newest:3")
        broker.produce("orders", b"one")
        broker.wait(1000)

    `settings` are those of `Broker`. `disk` is a `MemoryDisk`, which outlives the broker and crashes (`after_crash`);
    `tree` the coordination tree. `clock` is its clock, `lines` what it would log, `network` what leads to its listener,
    `node` the broker itself.
    """

    def __init__(
        self,
        *,
        disk: MemoryDisk | None = None,
        tree: MemoryTree | None = None,
        plugins: Sequence[object] = (),
        wrap_session: Callable[[Coordination], Coordination] = lambda session: session,
        shared: bool = False,
        **settings: object,
    ) -> None:
        """`wrap_session` may put something before each session of the tree; `shared`: others may share the tree."""
        self.shared = shared
        self.wrap_session = wrap_session
        self.disk = disk or MemoryDisk()
        self.tree = tree or MemoryTree()
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.network = MemoryNetwork(self.scheduler)
        self.metrics = MemoryMetrics()
        self.lines: list[str] = []
        self.plugins = plugins
        self.settings = settings
        self.node = self._started()

    def _started(self) -> BrokerServer:
        config = BrokerConfig.from_mapping(
            {"listeners": "kafka://broker:9092", "storage": "memory", "coordination": "memory"}, self.settings
        )
        plugins = plugin_host(config, self.plugins)
        outside = outside_of(
            config,
            scheduler=self.scheduler,
            transport=self.network.transport("broker"),
            clock=self.clock,
            entropy=SeededEntropy(7),
            metrics=self.metrics,
            open_log_dirs=lambda: [MemoryLogDir(self.disk)],
            open_coordination=lambda: self.wrap_session(self.tree.session(deliver=self.scheduler.call_soon)),
            report=self.lines.append,
            shared=self.shared,
            open_remote_storage=lambda: self._remote_of(config, plugins),
        )
        node = BrokerServer(config, outside, plugins)
        node.start()
        if self.shared:
            self.scheduler.run_until(lambda: node.ready)
        return node

    def _remote_of(self, config: BrokerConfig, plugins: "PluginHost") -> "RemoteOutside":
        """Open the remote storage of the settings; the scheduler makes its calls."""
        from ..app.broker.state.tiering import RemoteOutside
        from ..app.compose.remote_storage import open_remote_storage

        storage = open_remote_storage(
            config.remote_log_storage_manager_class_name or "", config.remote_settings, plugins
        )
        offload = self.scheduler.offload
        return RemoteOutside(storage=storage, offload_copy=offload, offload_read=offload, close=storage.close)

    @property
    def reports(self) -> list[str]:
        """The warnings and errors among `lines`."""
        return [line for line in self.lines if not isinstance(line, Line) or line.level >= Level.WARNING]

    def wait(self, ms: float) -> None:
        """Let time pass, with all that is due in it."""
        self.scheduler.advance(ms)

    def stop(self) -> None:
        """Stop the broker in order."""
        stopped: list[bool] = []
        self.node.stop(lambda: stopped.append(True))
        self.scheduler.run_until(lambda: bool(stopped))

    def restart(self) -> None:
        """Stop the broker in order, and start it again over the same disk."""
        self.stop()
        self.node = self._started()

    def submit(self, request: Request[ResultT], caller: Caller = HERE) -> list[ResultT]:
        """Ask something of `ports.broker_api`; the list gets the answer, now or later. Raises `BarnabasError`."""
        answers: list[ResultT] = []

        def reply(result: ResultT | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                raise result
            answers.append(result)

        self.node.api.submit(request, caller, reply)
        return answers

    def ask(self, request: Request[ResultT], caller: Caller = HERE) -> ResultT:
        """Return the answer. Raises `AssertionError` if it does not come without time passing, `BarnabasError`."""
        answers = self.submit(request, caller)
        self.scheduler.run_pending()
        if len(answers) != 1:
            raise AssertionError(f"{len(answers)} answers to {type(request).__name__}; one that waits needs wait()")
        return answers[0]

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic; its settings in snake case. Raises `ApiError`."""
        new = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=1,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        outcome = self.ask(CreateTopics(topics=[new])).topics[0]
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error, outcome.error_message or "")

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = 1) -> ProduceResultPartition:
        """Produce one batch with this `acks`; the result has `error` and `base_offset`."""
        records = batch(*values, timestamp_ms=self.clock.now_ms())
        request = Produce(partitions=[ProducePartition(topic, partition, records)], acks=acks)
        result: ProduceResult = self.ask(request)
        return result.partitions[0]

    def fetch(self, topic: str, offset: int = 0, partition: int = 0, **options: Any) -> FetchResult:
        """Fetch as a consumer does; the fetch does not wait for messages unless `max_wait_ms` says so."""
        return self.ask(fetch(topic, offset, partition, **{"max_wait_ms": 0, **options}))

    def values(self, topic: str, offset: int = 0, partition: int = 0) -> list[bytes | None]:
        """Return all values from `offset` to the end of the partition. Raises `ApiError`."""
        found: list[bytes | None] = []
        while True:
            result = self.fetch(topic, offset, partition).partitions[0]
            if result.error is not ErrorCode.NONE:
                raise ApiError(result.error, f"{topic}-{partition} at offset {offset}")
            messages = list(MessageSet(result.records, builtin_codecs(), from_offset=offset))
            if not messages:
                return found
            found += [message.value for message in messages]
            offset = messages[-1].offset + 1


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, codec: str = "") -> memoryview:
    """Return a writable record batch."""
    named = builtin_codecs().by_name(codec) if codec else None
    return memoryview(encode_batch([Message(value) for value in values], now_ms=timestamp_ms, codec=named))


def produce(topic: str, *values: bytes, partition: int = 0, acks: int = 1, **options: Any) -> Produce:
    """Return a request with one batch."""
    return Produce(partitions=[ProducePartition(topic, partition, batch(*values))], acks=acks, **options)


def fetch(topic: str, offset: int = 0, partition: int = 0, *, partition_bytes: int = 1 << 20, **options: Any) -> Fetch:
    """Return a request for one partition."""
    return Fetch(partitions=[FetchPartition(topic, partition, offset, partition_bytes)], **options)
