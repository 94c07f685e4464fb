"""A cluster that a test scripts, and two ways to drive clients against it: without threads, and through a connector."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from threading import Condition, Lock
from typing import Any

from barnabas.adapters.system import ManualClock, SeededEntropy, SystemClock, SystemEntropy
from barnabas.adapters.transport_tcp.reactor import Reactor
from barnabas.app.background import ReactorThread
from barnabas.core.client.effects import NEVER, Part, Send
from barnabas.core.message.batch_header import assign_offset, parse_header
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.envelope import BrokerLink, Caller, Request
from barnabas.ports.broker_api.fetch import Fetch, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult, PartitionMetadata, TopicMetadata
from barnabas.ports.broker_api.offsets import (
    EARLIEST,
    LATEST,
    ListOffsets,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from barnabas.ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.producers import InitProducerId, InitProducerIdResult
from barnabas.ports.broker_api.share_groups import ShareFetch, ShareFetchResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.scheduler import Scheduler
from barnabas.ports.transport import Address, TransportError
from barnabas.ports.types import TopicPartition

Script = Callable[[int, Any], Any]


def id_of(topic: str) -> bytes:
    """Return the id that a topic of this name has here."""
    return topic.encode().ljust(16, b"\0")[:16]


class PlainCluster:
    """Brokers 1 to n; partition p of a topic is led by broker 1 + p mod n. A bootstrap address reaches broker 1."""

    def __init__(self, brokers: int = 1, **topics: int) -> None:
        self.brokers = brokers
        self.only: set[int] | None = None
        """The topics in the metadata; None: all."""
        self.topics: dict[str, int] = dict(topics)
        self.other_ids: dict[str, bytes] = {}
        """The ids of topics that have others than `id_of` their names."""
        self.leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, list[bytes]] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.requests: list[tuple[int, Request[Any]]] = []
        self.scripts: list[Script] = []
        self.producer_ids = 0

    def script(self, answer: Script) -> None:
        """Ask `answer(broker, request)` before anything else; None lets the cluster answer itself."""
        self.scripts.insert(0, answer)

    def once(self, kind: type[Any], result: Any) -> None:
        """Answer the next request of that kind with this (or with what it returns for the request)."""
        left = [result]

        def answer(_: int, request: Any) -> Any:
            if isinstance(request, kind) and left:
                made = left.pop()
                return made(request) if callable(made) else made
            return None

        self.script(answer)

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the requests of that kind, in their order."""
        return [request for _, request in self.requests if isinstance(request, kind)]

    def leader(self, tp: TopicPartition) -> int:
        return self.leaders.get(tp, 1 + tp.partition % self.brokers)

    def end(self, tp: TopicPartition) -> int:
        log = self.logs.get(tp)
        return parse_header(log[-1]).next_offset if log else self.starts.get(tp, 0)

    def append(self, tp: TopicPartition, records: Any) -> int:
        """Append records as a broker does; return the base offset."""
        batch = bytearray(records)
        base = self.end(tp)
        assign_offset(batch, base, 0)
        self.logs.setdefault(tp, []).append(bytes(batch))
        return base

    def answer(self, broker: int, request: Request[Any]) -> Any:
        broker = max(1, broker)
        self.requests.append((broker, request))
        for script in self.scripts:
            result = script(broker, request)
            if result is not None:
                return result
        if isinstance(request, Metadata):
            return self._metadata(request)
        if isinstance(request, InitProducerId):
            self.producer_ids += 1
            return InitProducerIdResult(producer_id=self.producer_ids, producer_epoch=0)
        if isinstance(request, Produce):
            return ProduceResult(partitions=[self._produce(broker, p) for p in request.partitions])
        if isinstance(request, Fetch):
            return FetchResult(partitions=[self._fetch(broker, p) for p in request.partitions])
        if isinstance(request, ListOffsets):
            return ListOffsetsResult(partitions=[self._offset(broker, p) for p in request.partitions])
        raise AssertionError(f"nothing answers {request}")

    def _metadata(self, request: Metadata) -> MetadataResult:
        names = self.topics if request.topics is None else request.topics
        if request.topic_ids:
            names = [name for name in self.topics if self.other_ids.get(name, id_of(name)) in request.topic_ids]
        living = range(1, self.brokers + 1) if self.only is None else sorted(self.only)
        return MetadataResult(
            brokers=[BrokerNode(node_id=n, host=f"broker-{n}", port=9092) for n in living],
            cluster_id="plain",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> TopicMetadata:
        if name not in self.topics:
            return TopicMetadata(name=name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        tps = [TopicPartition(name, p) for p in range(self.topics[name])]
        partitions = [
            PartitionMetadata(
                partition=tp.partition,
                leader=self.leader(tp),
                leader_epoch=self.epochs.get(tp, 0),
                replicas=[self.leader(tp)],
                isr=[self.leader(tp)],
            )
            for tp in tps
        ]
        return TopicMetadata(name=name, topic_id=self.other_ids.get(name, id_of(name)), partitions=partitions)

    def _refusal(self, broker: int, tp: TopicPartition) -> ErrorCode:
        if tp.partition >= self.topics.get(tp.topic, 0):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if self.leader(tp) == broker else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _produce(self, broker: int, asked: Any) -> ProduceResultPartition:
        tp = TopicPartition(asked.topic, asked.partition)
        error = self._refusal(broker, tp)
        if error:
            return ProduceResultPartition(*tp, error)
        return ProduceResultPartition(*tp, base_offset=self.append(tp, asked.records))

    def _fetch(self, broker: int, asked: Any) -> FetchResultPartition:
        tp = TopicPartition(asked.topic, asked.partition)
        error = self._refusal(broker, tp)
        end, start = self.end(tp), self.starts.get(tp, 0)
        if not error and not start <= asked.offset <= end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        if error:
            return FetchResultPartition(*tp, error)
        batches = [b for b in self.logs.get(tp, ()) if parse_header(b).next_offset > asked.offset]
        records = b""
        for batch in batches:
            if records and len(records) + len(batch) > asked.max_bytes:
                break
            records += batch
        return FetchResultPartition(*tp, high_watermark=end, log_start_offset=start, records=records)

    def _offset(self, broker: int, asked: Any) -> ListOffsetsResultPartition:
        tp = TopicPartition(asked.topic, asked.partition)
        error = self._refusal(broker, tp)
        offset = -1
        if asked.timestamp == LATEST:
            offset = self.end(tp)
        elif asked.timestamp == EARLIEST:
            offset = self.starts.get(tp, 0)
        else:
            headers = [parse_header(b) for b in self.logs.get(tp, ())]
            offset = next((h.base_offset for h in headers if h.max_timestamp >= asked.timestamp), -1)
        return ListOffsetsResultPartition(topic=tp.topic, partition=tp.partition, error=error, offset=offset)


class ManualDriver:
    """Drives machines against a cluster under a manual clock; requests wait until `answer` or `run`."""

    def __init__(self, cluster: PlainCluster, *parts: Part) -> None:
        self.cluster = cluster
        self.clock = ManualClock()
        self.entropy = SeededEntropy(1)
        self.parts = list(parts)
        self.open: list[Send] = []
        self._held: list[tuple[float, Send]] = []
        self.lock = nullcontext()

    @property
    def now(self) -> float:
        return self.clock.monotonic_ms()

    def poll(self) -> float:
        """Poll every machine once; returns when to come back."""
        wake = NEVER
        for part in self.parts:
            poll = part.poll(self.now)
            self.open += poll.sends
            wake = min(wake, poll.wake_ms)
        return wake

    def answer(self) -> int:
        """Answer what is open; returns how much that was. A fetch that finds nothing waits as long as it says."""
        sends, self.open = [(self.now, send) for send in self.open], []
        sends, held = [*sends, *(pair for pair in self._held if pair[0] <= self.now)], self._held
        self._held = [pair for pair in held if pair[0] > self.now]
        answered = 0
        for since, send in sends:
            result = self.cluster.answer(send.node, send.request)
            if (
                isinstance(send.request, Fetch | ShareFetch)
                and since == self.now
                and is_empty(result)
                and (since, send) not in held
            ):
                self._held.append((self.now + send.request.max_wait_ms, send))
                continue
            send.answer(result, self.now)
            answered += 1
        return answered

    def run_until_idle(self) -> float:
        """Poll and answer until nothing happens at this moment; returns the next time that something would."""
        for _ in range(1000):
            wake = self.poll()
            if not self.answer() and wake > self.now:
                return min([wake, *(until for until, _ in self._held)])
        raise AssertionError("the machines do not come to rest")

    def run(self, until: Callable[[], bool], limit_ms: float = 600_000) -> None:
        """Let time pass until something is true."""
        end = self.now + limit_ms
        while not until():
            wake = self.run_until_idle()
            if until():
                return
            if wake > end:
                raise AssertionError(f"not within {limit_ms} ms")
            self.clock.advance_to(wake)


def is_empty(result: Any) -> bool:
    """Return True for a fetch's result without anything to return to a reader at once."""

    def has_data(part: FetchResultPartition) -> bool:
        has_records = isinstance(part.records, bytes) and bool(part.records)
        return has_records or bool(part.error) or part.diverging is not None or part.preferred_read_replica >= 0

    if isinstance(result, ShareFetchResult):
        return not result.error and not result.partitions
    return isinstance(result, FetchResult) and not result.error and not any(map(has_data, result.partitions))


class PlainConnector:
    """Fulfils `Connector`: links to a `PlainCluster`, on a reactor in a thread of its own."""

    def __init__(self, cluster: PlainCluster) -> None:
        self.cluster = cluster
        self.bootstrap: Sequence[Address] = (("bootstrap", 1),)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        self.refused: set[str] = set()
        """Hosts that cannot be connected to."""
        self.connects: list[str] = []
        self._reactor = Reactor(lambda text: None, workers=1)
        self._thread = ReactorThread(self._reactor, "plain-client")

    def start(self) -> Scheduler:
        self._thread.start()
        return self._reactor

    def condition(self, lock: Lock) -> Condition:
        return Condition(lock)

    def owns_thread(self) -> bool:
        return self._thread.owns_caller()

    def connect(self, address: Address, opened: Callable[[BrokerLink | TransportError], None]) -> None:
        host = address[0]
        self.connects.append(host)
        if host in self.refused:
            opened(TransportError(f"{host} refuses"))
        else:
            opened(PlainLink(self.cluster, int(host.rpartition("-")[2]) if "-" in host else 1, self._reactor))

    def stop(self) -> None:
        self._thread.stop()


class PlainLink:
    """Fulfils `BrokerLink`; answers on a later turn. A scripted `TransportError` breaks it, `WITHHELD` is no answer."""

    def __init__(self, cluster: PlainCluster, broker: int, scheduler: Scheduler) -> None:
        self._cluster = cluster
        self._broker = broker
        self._scheduler = scheduler
        self._failure: BarnabasError | None = None
        self._withheld: list[Callable[[Any], None]] = []

    def submit(self, request: Any, caller: Caller, reply: Callable[[Any], None]) -> None:
        if self._failure is not None:
            reply(self._failure)
            return
        result = self._cluster.answer(self._broker, request)
        if result is WITHHELD:
            self._withheld.append(reply)
            return
        if isinstance(request, Fetch | ShareFetch) and is_empty(result):
            self._scheduler.call_later(min(5, request.max_wait_ms), lambda: reply(result))
            return
        if isinstance(result, TransportError):
            self._failure = result
        self._scheduler.call_later(0, lambda: reply(result))

    def close(self) -> None:
        self._failure = TransportError("closed")
        withheld, self._withheld = self._withheld, []
        for reply in withheld:
            reply(self._failure)


WITHHELD = object()
"""A script's answer for a request that never gets one."""
