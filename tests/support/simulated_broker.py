"""A whole broker without threads, sockets or disks: its clock stands still unless a test lets time pass."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import evolve
from support.log_lines import warnings_of

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.adapters.transport_memory import MemoryNetwork
from barnabas.app.broker.gate import Authorizer, everyone
from barnabas.app.broker.node import BrokerServer
from barnabas.app.compose.broker import outside_of, plugin_host
from barnabas.app.config import BrokerConfig
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.core.message.message_set import MessageSet
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api import (
    Caller,
    CreateTopics,
    Fetch,
    FetchPartition,
    FetchResult,
    NewTopic,
    Origin,
    Produce,
    ProducePartition,
    ProduceResult,
    ProduceResultPartition,
    Request,
)
from barnabas.ports.coordination import Coordination
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError

ResultT = TypeVar("ResultT")
HERE = Caller(client_id="test", host="127.0.0.1", connection=1)
ITSELF = Caller(origin=Origin.BROKER)
"""The broker, where it asks itself."""


class SimulatedBroker:
    """Starts at once; `restart` stops it in order and starts it on the same disk and tree."""

    def __init__(
        self,
        *,
        disk: MemoryDisk | None = None,
        tree: MemoryTree | None = None,
        plugins: Sequence[object] = (),
        wrap_session: Callable[[Coordination], Coordination] = lambda session: session,
        authorizer: Authorizer = everyone,
        shared: bool = False,
        **settings: object,
    ) -> None:
        """`wrap_session` may put something before each session of the tree; `shared`: others may share the tree."""
        self.shared = shared
        self.wrap_session = wrap_session
        self.authorizer = authorizer
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
        )
        outside = evolve(outside, authorizer=self.authorizer)
        node = BrokerServer(config, outside, plugin_host(config, self.plugins))
        node.start()
        if self.shared:
            self.scheduler.run_until(lambda: node.ready)
        return node

    @property
    def reports(self) -> list[str]:
        """What somebody should look at."""
        return warnings_of(self.lines)

    def stop(self) -> None:
        stopped: list[bool] = []
        self.node.stop(lambda: stopped.append(True))
        self.scheduler.run_until(lambda: bool(stopped))

    def restart(self) -> None:
        self.stop()
        self.node = self._started()

    def submit(self, request: Request[ResultT], caller: Caller = HERE) -> list[ResultT]:
        """The list gets the answer, now or later."""
        answers: list[ResultT] = []

        def reply(result: ResultT | BarnabasError) -> None:
            if isinstance(result, BarnabasError):
                raise result
            answers.append(result)

        self.node.api.submit(request, caller, reply)
        return answers

    def ask(self, request: Request[ResultT], caller: Caller = HERE) -> ResultT:
        """The answer, which must come without time passing."""
        answers = self.submit(request, caller)
        self.scheduler.run_pending()
        assert len(answers) == 1, answers
        return answers[0]

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        new = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=1,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        outcome = self.ask(CreateTopics(topics=[new])).topics[0]
        assert outcome.error is ErrorCode.NONE, outcome

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = 1) -> ProduceResultPartition:
        result: ProduceResult = self.ask(produce(topic, *values, partition=partition, acks=acks))
        return result.partitions[0]

    def fetch(self, topic: str, offset: int = 0, partition: int = 0, **options: Any) -> FetchResult:
        return self.ask(fetch(topic, offset, partition, **{"max_wait_ms": 0, **options}))

    def values(self, topic: str, offset: int = 0, partition: int = 0) -> list[bytes | None]:
        """All values from `offset` to the end of the partition."""
        found: list[bytes | None] = []
        while True:
            result = self.fetch(topic, offset, partition).partitions[0]
            assert result.error is ErrorCode.NONE, result
            messages = list(MessageSet(result.records, builtin_codecs(), from_offset=offset))
            if not messages:
                return found
            found += [message.value for message in messages]
            offset = messages[-1].offset + 1


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, codec: str = "") -> memoryview:
    """A writable record batch."""
    named = builtin_codecs().by_name(codec) if codec else None
    return memoryview(encode_batch([Message(value) for value in values], now_ms=timestamp_ms, codec=named))


def produce(topic: str, *values: bytes, partition: int = 0, acks: int = 1, **options: Any) -> Produce:
    return Produce(partitions=[ProducePartition(topic, partition, batch(*values))], acks=acks, **options)


def fetch(topic: str, offset: int = 0, partition: int = 0, *, partition_bytes: int = 1 << 20, **options: Any) -> Fetch:
    return Fetch(partitions=[FetchPartition(topic, partition, offset, partition_bytes)], **options)
