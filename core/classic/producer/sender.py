"""The sender of a producer: it chooses partition and request of each run of values, without threads (facts A6)."""

from collections.abc import Callable, Iterable, Sequence

from attrs import field

from ....ports.broker_api.classic import RANDOM_PARTITION, ClassicProduce, ClassicProducePartition, ClassicProduceResult
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.scheduler import Scheduler
from ....ports.transport import TransportError
from ....ports.values import define, frozen
from ...message.codec import Codec
from ..registry.directory import Directory, NoBrokersForPartition
from ..registry.layout import BrokerPartition
from .pool import BrokerPool
from .run import Run, encode_runs

Choose = Callable[[Run, int], int]
"""Takes a run and the number of partitions; returns the index in their sorted list. Raises `BarnabasError`."""
Settled = Callable[[Sequence[Run], BarnabasError | None], None]

REQUEST_BYTES_MAX = 8_388_608
"""A request grows no larger by a further run. A broker takes 100 MiB at most (facts A1)."""
REQUEST_SETS_MAX = 10_000
"""The wire counts the sets of a request with 16 bits."""
REREAD_PAUSE_MS = 100.0


@frozen(kw_only=True)
class SendingSettings:
    """The names are those of facts A6."""

    num_retries: int = 0
    zk_read_num_retries: int = 3
    max_message_bytes: int = 1_000_000


@define
class _Unplaced:
    """Runs of a topic that wait until the registries were read."""

    runs: list[Run] = field(factory=list)
    attempts: int = 0


@define
class _Request:
    """Runs for one broker, by topic and partition."""

    groups: dict[tuple[str, int], list[Run]] = field(factory=dict)
    size: int = 0


class ProducerSender:
    """Places runs, encodes one message set per topic and partition, hands requests to the pool. Owner thread only.

    The order of runs is kept per partition. Each run is settled once: it has been handed to the broker's connection,
    or the error says why not.
    """

    def __init__(
        self,
        directory: Directory,
        pool: BrokerPool,
        scheduler: Scheduler,
        entropy: Entropy,
        settings: SendingSettings,
        *,
        choose: Choose,
        codec_for: Callable[[str], Codec | None],
        settled: Settled,
    ) -> None:
        self._directory = directory
        self._pool = pool
        self._scheduler = scheduler
        self._entropy = entropy
        self._settings = settings
        self._choose = choose
        self._codec_for = codec_for
        self._settled = settled
        self._unplaced: dict[str, _Unplaced] = {}
        self.messages = 0
        """Given to `dispatch` and not settled."""

    def dispatch(self, runs: Iterable[Run]) -> None:
        """Send these, in their order."""
        placed = []
        for run in runs:
            self.messages += run.count
            unplaced = self._unplaced.get(run.topic)
            if unplaced is not None:
                unplaced.runs.append(run)
                continue
            try:
                found = self._place(run)
            except BarnabasError as error:
                self._complete_runs([run], error)
                continue
            if found:
                placed.append(run)
            else:
                self._wait_for_registries(run)
        self._send(placed)

    def fail_unplaced(self, error: BarnabasError) -> None:
        """The producer closes."""
        unplaced, self._unplaced = self._unplaced, {}
        for each in unplaced.values():
            self._complete_runs(each.runs, error)

    # --- where

    def _place(self, run: Run) -> bool:
        """Decide where the run goes; False when no live broker that is known of will do."""
        places = self._directory.places(run.topic)
        if not places:
            return False
        wish = run.wish
        if wish is None:
            run.place = places[0] if len(places) == 1 else places[self._choose(run, len(places))]
        elif isinstance(wish, BrokerPartition):
            run.place = wish if self._directory.address(wish.broker_id) is not None else None
        elif len(places) == 1:
            there = wish == places[0].partition or RANDOM_PARTITION in (wish, places[0].partition)
            run.place = BrokerPartition(places[0].broker_id, wish) if there else None
        else:
            brokers = sorted({place.broker_id for place in places if wish in (place.partition, RANDOM_PARTITION)})
            if places[0].partition == RANDOM_PARTITION:  # which partitions those brokers have is not known here
                brokers = [place.broker_id for place in places]
            chosen = brokers[self._entropy.below(len(brokers))] if brokers else None
            run.place = None if chosen is None else BrokerPartition(chosen, wish)
        return run.place is not None

    def _wait_for_registries(self, run: Run) -> None:
        self._unplaced[run.topic] = _Unplaced([run])
        self._directory.learn(run.topic, lambda error: self._learnt(run.topic, error))

    def _learnt(self, topic: str, error: BarnabasError | None) -> None:
        unplaced = self._unplaced.get(topic)
        if unplaced is None:
            return
        unplaced.attempts += 1
        over = unplaced.attempts > self._settings.zk_read_num_retries or isinstance(error, ClosedError)
        ready, failed = [], []
        for number, run in enumerate(unplaced.runs):
            try:
                if self._place(run):
                    ready.append(run)
                elif over:
                    failed.append((run, error or NoBrokersForPartition(_no_broker_text(run))))
                else:
                    unplaced.runs = unplaced.runs[number:]
                    break
            except BarnabasError as refusal:
                failed.append((run, refusal))
        else:
            del self._unplaced[topic]
        for run, reason in failed:
            self._complete_runs([run], reason)
        self._send(ready)
        if self._unplaced.get(topic) is unplaced:
            pause_ms = 0.0 if error is None else REREAD_PAUSE_MS
            self._scheduler.call_later(
                pause_ms, lambda: self._directory.learn(topic, lambda error: self._learnt(topic, error))
            )

    # --- what

    def _send(self, runs: Iterable[Run]) -> None:
        requests: dict[int, _Request] = {}
        for run in runs:
            place = run.place
            assert place is not None
            request = requests.get(place.broker_id)
            full = request is not None and request.size + run.size > REQUEST_BYTES_MAX
            if request is not None and (full or len(request.groups) >= REQUEST_SETS_MAX):
                self._submit(place.broker_id, request)
                request = None
            if request is None:
                request = requests[place.broker_id] = _Request()
            request.groups.setdefault((run.topic, place.partition), []).append(run)
            request.size += run.size
        for broker_id, request in requests.items():
            self._submit(broker_id, request)

    def _submit(self, broker_id: int, request: _Request) -> None:
        sets, groups, size = [], [], 0
        for (topic, partition), runs in request.groups.items():
            encoded = self._encode(topic, runs)
            if encoded:
                sets.append(ClassicProducePartition(topic, partition, memoryview(encoded)))
                groups.append([run for run in runs if not run.done])
                size += len(encoded)
        if sets:
            self._attempt(broker_id, ClassicProduce(partitions=sets), groups, size, self._settings.num_retries)

    def _encode(self, topic: str, runs: list[Run]) -> bytes:
        """Encode the runs as a message set; runs that cannot be encoded fail."""
        codec, limit = self._codec_for(topic), self._settings.max_message_bytes
        try:
            return encode_runs(runs, codec, limit)
        except Exception as error:  # noqa: BLE001  # a codec's or a value's; the handles raise it
            if len(runs) == 1:
                self._complete_runs(runs, error if isinstance(error, BarnabasError) else _not_encoded(error))
                return b""
        # One of them is to blame: the others are sent in sets of their own.
        return b"".join(self._encode(topic, [run]) for run in runs)

    def _attempt(
        self, broker_id: int, request: ClassicProduce, groups: Sequence[Sequence[Run]], size: int, retries: int
    ) -> None:
        def done(result: ClassicProduceResult | BarnabasError) -> None:
            if isinstance(result, TransportError) and retries:
                self._attempt(broker_id, request, groups, size, retries - 1)
            elif isinstance(result, BarnabasError):
                self._complete_runs([run for runs in groups for run in runs], result)
            else:
                self._answered(result, groups)

        address = self._directory.address(broker_id)
        if address is None:  # it died while the sets were made, or before another attempt
            done(NoBrokersForPartition(f"broker {broker_id} is no longer alive"))
        else:
            self._pool.submit(broker_id, address, request, size, done)

    def _answered(self, result: ClassicProduceResult, groups: Sequence[Sequence[Run]]) -> None:
        if not result.partitions:  # the wire has no answers
            self._complete_runs([run for runs in groups for run in runs], None)
            return
        for outcome, runs in zip(result.partitions, groups, strict=True):
            wrong = outcome.error is not ErrorCode.NONE
            self._complete_runs(runs, ApiError(outcome.error, outcome.error_message or "") if wrong else None)

    def _complete_runs(self, runs: Sequence[Run], error: BarnabasError | None) -> None:
        self.messages -= sum(run.count for run in runs)
        self._settled(runs, error)


def _no_broker_text(run: Run) -> str:
    where = "" if run.wish is None else f" {run.wish}"
    return f"no live broker has partition{where} of topic {run.topic}, also after reading the registries again"


def _not_encoded(error: Exception) -> BarnabasError:
    failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the message set could not be encoded: {error!r}")
    failure.__cause__ = error
    return failure
