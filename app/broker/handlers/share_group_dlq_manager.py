"""Dead letters of share groups (KIP-1191, facts D7): messages that a group has given up, in a topic of the group."""

from collections.abc import Callable, Sequence
from functools import partial

from ....core.cluster.topics import Topic
from ....core.coordinator.group.group_config import GroupConfig, GroupConfigManager
from ....core.message.batch_reader import Columns, decode_columns
from ....core.message.batch_writer import encode_batch
from ....core.message.message import Message
from ....core.replica.leader.appender import ALL_IN_SYNC
from ....core.replica.partition.fetch_isolation import FetchIsolation
from ....core.share.share_partition import DeadLetters
from ....core.share.share_partition_manager import LedSharePartition
from ....ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from ....ports.broker_api.topics import NewTopic
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.scheduler import Outcome
from ....ports.storage import StorageError
from ....ports.types import Buffer, Offset, TopicPartition
from ..state.broker_state import BrokerState
from .topics import TopicService

GROUP_ENABLE_KEY = "errors.deadletterqueue.group.enable"
_HEADER = "__dlq.errors."
_REJECTED = "Offset rejected by client."
_EXCEEDED = "Offset delivery count exceeded the threshold."

_WRITE_TIMEOUT_MS = 5_000
_GIVE_UP_MS = 60_000
"""Errors that may pass are retried for this time; then the messages are archived without dead letters."""
_RETRY_MS, _RETRY_MS_MAX = 50.0, 1_000.0
_READ_BYTES = 1 << 20
_RECORDS_AT_ONCE = 500
_BATCH_OVERHEAD = 1_000
"""An upper bound of the bytes that a dead letter adds to its record."""
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _Sending:
    """The dead letters of one range of offsets; `next_offset` is the first that is not written."""

    __slots__ = ("began_ms", "done", "last_offset", "led", "letters", "next_offset", "tries")

    def __init__(self, led: LedSharePartition, letters: DeadLetters, done: Callable[[], None], now_ms: float) -> None:
        self.led = led
        self.letters = letters
        self.done = done
        self.next_offset = letters.first_offset
        self.last_offset = letters.first_offset - 1
        """The last one of the batch that is being written."""
        self.tries = 0
        self.began_ms = now_ms


class ShareGroupDLQManager:
    """Writes dead letters into the topics that groups name. Owner thread only."""

    def __init__(self, state: BrokerState, topics: TopicService, configs: GroupConfigManager) -> None:
        self._state = state
        self._topics = topics
        self._configs = configs
        self._reported: set[tuple[str, str]] = set()
        metrics = state.metrics
        self._written = metrics.counter(
            "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total", "Dead letters that were written."
        )
        self._produced = metrics.counter(
            "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total", "Writes of dead letters."
        )
        self._failures = metrics.counter(
            "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
            "Messages that were archived without a dead letter, since it could not be written.",
        )

    def send(self, led: LedSharePartition, letters: DeadLetters, done: Callable[[], None]) -> None:
        """Write a dead letter for each record of a range. `done` is called once, at once or later: when they are
        written, or when they cannot be, which is reported. A record may get two of them if its leader changes."""
        self._continue(_Sending(led, letters, done, self._state.clock.monotonic_ms()))

    # --- within

    def _continue(self, sending: _Sending) -> None:
        if sending.led.is_dropped:
            return  # the next leader writes them
        if sending.next_offset > sending.letters.last_offset:
            sending.done()
            return
        config = self._configs.get(sending.led.key.group_id)
        name = config.errors_deadletterqueue_topic_name
        fault = self._fault_of(name)
        if fault:
            self._give_up(sending, fault)
        elif name not in self._state.image.topics:
            self._create(sending, name)
        else:
            self._read(sending, config, self._state.image.topics[name])

    def _fault_of(self, name: str) -> str:
        """Return why dead letters cannot be written to a topic, or an empty text."""
        static = self._state.settings.static
        prefix = static.errors_deadletterqueue_topic_name_prefix
        topic = self._state.image.topics.get(name)
        if not name:
            return "the group has no topic for them"
        if name.startswith("__"):
            return f"the name of topic {name} begins with __"
        if not name.startswith(prefix):
            return f"the name of topic {name} does not begin with {prefix} (errors.deadletterqueue.topic.name.prefix)"
        if topic is None:
            can_create = static.errors_deadletterqueue_auto_create_topics_enable
            return "" if can_create else f"there is no topic {name} (errors.deadletterqueue.auto.create.topics.enable)"
        config = self._state.settings.log_config(topic.configs, name)
        return "" if config.errors_deadletterqueue_group_enable else f"topic {name} lacks {GROUP_ENABLE_KEY}=true"

    def _create(self, sending: _Sending, name: str) -> None:
        async def create() -> None:
            if name not in self._state.image.topics:
                configs = {GROUP_ENABLE_KEY: "true", "message.timestamp.type": "CreateTime"}
                await self._topics.create_one(NewTopic(name=name, configs=configs))

        def created(error: BarnabasError | None) -> None:
            if error is None:
                self._continue(sending)
            else:
                self._retry(sending, f"creating topic {name} failed: {error}")

        self._state.changes.submit(f"making {name}", create, created)

    def _read(self, sending: _Sending, config: GroupConfig, topic: Topic) -> None:
        """Read the messages that the dead letters are to have, off the owner thread; then write the next batch."""
        if not config.errors_deadletterqueue_copy_record_enable:
            self._write(sending, topic, None)
            return
        partition = sending.led.partition
        first = Offset(max(sending.next_offset, partition.log.log_start_offset))
        records: Buffer = b""
        try:
            found = partition.read(first, _READ_BYTES, whole_first_batch=True, isolation=FetchIsolation.HIGH_WATERMARK)
            records = found if isinstance(found, bytes | bytearray | memoryview) else found.read()
        except (ApiError, StorageError) as error:
            self._report(sending, f"their messages cannot be read, so they have headers only: {error}")
        codecs = self._state.logs.codecs
        upto = min(sending.letters.last_offset + 1, sending.next_offset + _RECORDS_AT_ONCE)

        def decode() -> Columns:
            return decode_columns(records, codecs, from_offset=first, upto=upto, with_headers=True)

        def decoded(outcome: Outcome[Columns]) -> None:
            if outcome.error is not None:
                self._report(sending, f"their messages cannot be read, so they have headers only: {outcome.error}")
            self._write(sending, topic, outcome.get() if outcome.error is None else None)

        self._state.scheduler.offload(decode, decoded)

    def _write(self, sending: _Sending, topic: Topic, columns: Columns | None) -> None:
        if sending.led.is_dropped:
            return
        tp = TopicPartition(topic.name, sending.led.partition.topic_partition.partition % len(topic.partitions))
        limit = self._state.settings.log_config(topic.configs, topic.name).max_message_bytes
        messages = self._messages(sending, columns, limit)
        sending.last_offset = sending.next_offset + len(messages) - 1
        now_ms = self._state.clock.now_ms()
        try:
            records = memoryview(encode_batch(messages, now_ms=now_ms))
        except ApiError as error:
            self._give_up(sending, str(error))
            return
        entry = ProducePartition(tp.topic, tp.partition, records, topic_id=topic.topic_id)
        leader = self._state.image.state(tp).leader
        self._produced.add()
        if leader == self._state.node_id:
            try:
                self._state.replicas.append(
                    [entry], partial(self._appended, sending), acks=ALL_IN_SYNC, timeout_ms=_WRITE_TIMEOUT_MS
                )
            except ApiError as error:
                self._appended(sending, error)
        elif leader < 0 or self._state.ask is None:
            self._retry(sending, f"{tp} has no leader")
        else:
            request = Produce(partitions=[entry], acks=ALL_IN_SYNC, timeout_ms=_WRITE_TIMEOUT_MS)
            self._state.ask(leader, request, partial(self._produced_there, sending))

    def _messages(self, sending: _Sending, columns: Columns | None, limit: int) -> list[Message]:
        """Return the next dead letters, as many as a batch of the topic may have, at least one."""
        by_offset: dict[int, int] = {}
        if columns is not None:
            by_offset = {offset: row for row, offset in enumerate(columns.offsets)}
        group_id, _, number = sending.led.key
        topic = sending.led.partition.topic_partition.topic
        count = sending.letters.delivery_count
        is_exceeded = count >= self._configs.get(group_id).share_delivery_count_limit
        common = [
            (f"{_HEADER}topic", topic.encode()),
            (f"{_HEADER}partition", b"%d" % number),
            (f"{_HEADER}group", group_id.encode()),
            (f"{_HEADER}delivery.count", b"%d" % count),
            (f"{_HEADER}message", (_EXCEEDED if is_exceeded else _REJECTED).encode()),
        ]
        messages: list[Message] = []
        size = 0
        upto = min(sending.letters.last_offset + 1, sending.next_offset + _RECORDS_AT_ONCE)
        read_to = upto if columns is None else max(columns.next_offset, sending.next_offset + 1)
        for offset in range(sending.next_offset, min(upto, read_to)):
            headers = (*common[:2], (f"{_HEADER}offset", b"%d" % offset), *common[2:])
            message = Message(None, headers=headers)
            row = by_offset.get(offset)
            if columns is not None and row is not None:
                value, key = columns.values[row], columns.keys[row]
                message = Message(value, key, (*headers, *columns.headers[row]))
            size += (
                _BATCH_OVERHEAD
                + len(group_id)
                + sum(len(part or b"") for part in (message.value, message.key, *(each[1] for each in message.headers)))
            )
            if messages and size > limit:
                break
            messages.append(message)
        return messages

    def _appended(self, sending: _Sending, results: Sequence[ProduceResultPartition] | ApiError) -> None:
        if isinstance(results, ApiError):
            self._answered(sending, results.code, results.message)
        else:
            self._answered(sending, results[0].error, results[0].error_message or "")

    def _produced_there(self, sending: _Sending, result: object) -> None:
        if isinstance(result, ProduceResult) and len(result.partitions) == 1:
            self._appended(sending, result.partitions)
        else:
            self._retry(sending, str(result))

    def _answered(self, sending: _Sending, error: ErrorCode, text: str) -> None:
        if error is ErrorCode.NONE:
            self._written.add(sending.last_offset - sending.next_offset + 1)
            sending.next_offset = sending.last_offset + 1
            sending.tries = 0
            self._continue(sending)
        elif error in _PASSING:
            self._retry(sending, f"{error.name} {text}")
        else:
            self._give_up(sending, f"{error.name} {text}")

    def _retry(self, sending: _Sending, why: str) -> None:
        delay_ms = min(_RETRY_MS_MAX, _RETRY_MS * 2**sending.tries)
        sending.tries += 1
        if self._state.clock.monotonic_ms() + delay_ms > sending.began_ms + _GIVE_UP_MS:
            self._give_up(sending, why)
        else:
            self._state.scheduler.call_later(delay_ms, partial(self._continue, sending))

    def _give_up(self, sending: _Sending, why: str) -> None:
        self._failures.add(sending.letters.last_offset - sending.next_offset + 1)
        self._report(sending, f"they are archived without dead letters: {why}")
        sending.done()

    def _report(self, sending: _Sending, text: str) -> None:
        """Report a failure, the first time in each group."""
        key = sending.led.key.group_id, text
        if key not in self._reported and len(self._reported) < 1_000:
            self._reported.add(key)
            where = f"messages from offset {sending.next_offset} on of {sending.led.partition.topic_partition}"
            self._state.report(f"share group {key[0][:260]} has given up {where}, and {text}")
