"""Sending of transaction markers: to the leader of each partition, until the marker is written or the partition is
deleted."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from attrs import evolve

from ....ports.broker_api.transactions import TxnMarker, WriteTxnMarkers, WriteTxnMarkersResult, WrittenTxnMarker
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.report import info
from ....ports.scheduler import Scheduler
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...client.driver import Submit
from ...cluster.topics import NO_LEADER

WriteHere = Callable[[Sequence[TxnMarker], Callable[[Sequence[WrittenTxnMarker]], None], float], None]
"""Write markers into partitions that this broker leads, with acks=all, within a timeout in milliseconds. The callback
gets the outcomes once, at once or later, in the order of the markers."""

_TIMEOUT_MS = 10_000.0
_RETRY_MS, _RETRY_MS_MAX = 20.0, 1000.0


@frozen
class PartitionLookup:
    """The coordination tree's answer about partitions.

    deleted:        the partitions that the tree does not have.
    not_known_here: partitions of topics that this broker's image does not have yet, or of which it has an earlier one
                    of the same name.
    is_answered:    False: the tree could not be read.
    """

    deleted: Collection[TopicPartition] = ()
    not_known_here: Collection[TopicPartition] = ()
    is_answered: bool = True


LookUp = Callable[[Collection[TopicPartition], Callable[[PartitionLookup], None]], None]
"""Ask the coordination tree about these partitions. The callback gets the answer, once, on the owner thread."""

_ABSENT_MS = 2000.0
"""A partition that is unknown for this time may be deleted: the tree is read, repeatedly at this interval. A broker
that has just begun to coordinate may receive new topics much later than its own leaderships."""
_TRIES_UNTOLD = 10
"""Attempts without a report, about five seconds: partitions may be without a leader for that time in normal
operation."""
_NAMED_MAX = 5
_AT_ONCE = 2
"""The most requests in flight to one leader; markers that come meanwhile share the next one."""
_PARTITIONS_MAX = 2000
"""The most partitions in one request."""
_COMPLETED = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,  # it knows a later producer: this one's transaction has ended there
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
)
_ORDINARY = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)
"""Temporary errors, which other parts of the broker report."""


class _Sending:
    """One transaction whose markers are being sent."""

    __slots__ = ("absent_since_ms", "done", "is_over", "left", "marker", "tries", "was_reported")

    def __init__(self, marker: TxnMarker, done: Callable[[], None]) -> None:
        self.marker = marker
        self.left = set(marker.partitions)
        self.done = done
        self.tries = 0
        self.absent_since_ms = -1.0
        self.is_over = self.was_reported = False

    def stop(self) -> None:
        self.is_over = True


class MarkerSender:
    """Sends markers to the leaders of their partitions, with retries. Owner thread only.

    `leader_of` returns the leader of a partition: -1 while it has none, None if this broker knows no such partition.
    `look_up` reads the tree. `write_here` writes to partitions that this broker leads, `submit` sends a request to
    another broker (None: there are no others).
    """

    def __init__(
        self,
        *,
        own_id: int,
        leader_of: Callable[[TopicPartition], int | None],
        look_up: LookUp,
        write_here: WriteHere,
        submit: Submit | None,
        clock: Clock,
        scheduler: Scheduler,
        report: Callable[[str], None],
    ) -> None:
        self._own_id = own_id
        self._leader_of = leader_of
        self._look_up = look_up
        self._write_here = write_here
        self._submit = submit
        self._clock = clock
        self._scheduler = scheduler
        self._report = report
        self._queues: dict[int, dict[_Sending, list[TopicPartition]]] = {}
        self._under_way: dict[int, int] = {}
        self._asking: set[int] = set()
        self._absent: dict[_Sending, Sequence[TopicPartition]] = {}
        self._unconfirmed: dict[_Sending, Sequence[TopicPartition]] = {}
        """Resumed transactions with the partitions to look up in the tree before their markers are sent: the leader
        known here may be that of an earlier topic of the same name."""
        self._is_looking_up = False
        self._is_due = self._is_closed = False
        self.without_leader = 0
        """The number of transactions that wait for partitions without a leader."""

    def send(self, marker: TxnMarker, done: Callable[[], None], *, is_resumed: bool = False) -> Callable[[], None]:
        """Send the marker to all its partitions; `done` is called once, later. Returns a function that ends the sending
        without a call of `done`.

        `is_resumed`: another coordinator added the partitions to the transaction. Its image may have been newer than
        this broker's, where an earlier topic may have the name; that topic's leader would accept the marker. So the
        tree is read first, and the markers wait until this broker knows the topics that the tree has.
        """
        sending = _Sending(marker, done)
        if is_resumed and sending.left:
            self._confirm(sending, marker.partitions)
        else:
            self._route(sending, marker.partitions)
        if not sending.left:
            self._scheduler.call_soon(lambda: self._finish_if_done(sending))
        return sending.stop

    def close(self) -> None:
        """Send no further markers."""
        self._is_closed = True
        self._queues.clear()
        self._absent.clear()
        self._unconfirmed.clear()

    # --- within

    def _route(self, sending: _Sending, partitions: Iterable[TopicPartition]) -> None:
        """Queue each partition for its leader; those without a leader are tried again later."""
        if sending.is_over or self._is_closed:
            return
        later, absent = [], []
        for partition in partitions:
            if partition not in sending.left:
                continue  # deleted meanwhile
            leader = self._leader_of(partition)
            if leader is None or leader == NO_LEADER or (leader != self._own_id and self._submit is None):
                later.append(partition)
                if leader is None:
                    absent.append(partition)
            else:
                self._queues.setdefault(leader, {}).setdefault(sending, []).append(partition)
        self._note_absent(sending, absent)
        if later:
            self.without_leader += 1
            if sending.tries >= _TRIES_UNTOLD:
                self._complain(sending, f"no leader of {_names_of(later)}")

            def again() -> None:
                self.without_leader -= 1
                self._route(sending, later)

            self._retry(sending, again)
        if self._queues and not self._is_due:
            self._is_due = True
            self._scheduler.call_soon(self._go)

    def _note_absent(self, sending: _Sending, partitions: list[TopicPartition]) -> None:
        """Note partitions that are not known here: if that lasts, look up in the tree whether they are deleted. An
        unknown partition need not be deleted: this broker's image may be behind, and a partition that is left out never
        gets its marker."""
        now_ms = self._clock.monotonic_ms()
        if not partitions:
            sending.absent_since_ms = -1.0
        elif sending.absent_since_ms < 0:
            sending.absent_since_ms = now_ms
        elif now_ms - sending.absent_since_ms >= _ABSENT_MS:
            sending.absent_since_ms = now_ms
            self._absent[sending] = partitions
            self._ask_tree()

    def _confirm(self, sending: _Sending, partitions: Sequence[TopicPartition]) -> None:
        if not (sending.is_over or self._is_closed):
            self._unconfirmed[sending] = partitions
            self._ask_tree()

    def _ask_tree(self) -> None:
        """Look up the partitions of all transactions in the tree, one lookup at a time."""
        if self._is_looking_up or not (self._absent or self._unconfirmed):
            return
        absent, self._absent = self._absent, {}
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        self._is_looking_up = True

        def looked(found: PartitionLookup) -> None:
            self._is_looking_up = False
            deleted, not_known = frozenset(found.deleted), frozenset(found.not_known_here)
            for sending, partitions in absent.items():
                self._pass_over(
                    sending, [each for each in partitions if each in deleted and self._leader_of(each) is None]
                )
                self._finish_if_done(sending)
            for sending, partitions in unconfirmed.items():
                self._confirmed(sending, partitions, deleted, not_known if found.is_answered else frozenset(partitions))
            self._ask_tree()

        asked = {each: None for some in (*absent.values(), *unconfirmed.values()) for each in some}
        self._scheduler.call_soon(lambda: self._look_up(asked.keys(), looked))

    def _confirmed(
        self,
        sending: _Sending,
        partitions: Sequence[TopicPartition],
        deleted: Collection[TopicPartition],
        not_known: Collection[TopicPartition],
    ) -> None:
        self._pass_over(sending, [each for each in partitions if each in deleted])
        self._finish_if_done(sending)
        left = [each for each in partitions if each in sending.left]
        self._route(sending, [each for each in left if each not in not_known])
        later = [each for each in left if each in not_known]
        if later:
            self._retry(sending, lambda: self._confirm(sending, later))

    def _pass_over(self, sending: _Sending, deleted: Sequence[TopicPartition]) -> None:
        """Send no marker to deleted partitions."""
        skipped = [each for each in deleted if each in sending.left]
        sending.left.difference_update(skipped)
        if skipped and not (sending.is_over or self._is_closed):
            what = f"{_producer_of(sending.marker)}, is not sent to {_names_of(skipped)}"
            self._report(info(f"{what}: the partitions were deleted"))

    def _retry(self, sending: _Sending, again: Callable[[], None]) -> None:
        delay_ms = min(_RETRY_MS_MAX, _RETRY_MS * 2**sending.tries)
        sending.tries = min(sending.tries + 1, 16)
        self._scheduler.call_later(delay_ms, again)

    def _go(self) -> None:
        self._is_due = False
        for node in list(self._queues):
            self._send_to(node)

    def _send_to(self, node: int) -> None:
        if node in self._asking:
            return  # answered at once: the outer call continues
        self._asking.add(node)
        try:
            while self._under_way.get(node, 0) < _AT_ONCE:
                batch = self._next_batch(node)
                if not batch:
                    return
                self._under_way[node] = self._under_way.get(node, 0) + 1
                self._request(node, batch)
        finally:
            self._asking.discard(node)

    def _next_batch(self, node: int) -> dict[_Sending, list[TopicPartition]]:
        queue, batch, room = self._queues.get(node, {}), {}, _PARTITIONS_MAX
        for sending in tuple(queue):
            if sending.is_over:
                del queue[sending]
                continue
            partitions = queue[sending]
            batch[sending], rest = partitions[:room], partitions[room:]
            room -= len(batch[sending])
            if rest:
                queue[sending] = rest
            else:
                del queue[sending]
            if room <= 0:
                break
        if not queue:
            self._queues.pop(node, None)
        return batch

    def _request(self, node: int, batch: dict[_Sending, list[TopicPartition]]) -> None:
        markers = [
            sending.marker if partitions == sending.marker.partitions else evolve(sending.marker, partitions=partitions)
            for sending, partitions in batch.items()
        ]

        def answered(result: Any) -> None:
            self._under_way[node] -= 1
            if isinstance(result, WriteTxnMarkersResult):
                self._answered(batch, result.markers)
            else:
                for sending, partitions in batch.items():
                    self._try_again(sending, partitions)
            self._send_to(node)

        if node != self._own_id and self._submit is not None:
            self._submit(node, WriteTxnMarkers(markers=markers), answered)
            return
        try:
            self._write_here(markers, lambda written: answered(WriteTxnMarkersResult(markers=written)), _TIMEOUT_MS)
        except Exception as error:  # noqa: BLE001  reported; it is tried again
            self._report(f"writing the markers of transactions failed: {type(error).__name__}: {error}")
            answered(error)

    def _answered(self, batch: dict[_Sending, list[TopicPartition]], written: Sequence[WrittenTxnMarker]) -> None:
        for number, (sending, partitions) in enumerate(batch.items()):
            results = written[number].partitions if number < len(written) else ()
            codes = {TopicPartition(each.topic, each.partition): each.error for each in results}
            failed = [each for each in partitions if codes.get(each) not in _COMPLETED]
            sending.left.difference_update(each for each in partitions if codes.get(each) in _COMPLETED)
            strange = {code for each in failed if (code := codes.get(each)) is not None and code not in _ORDINARY}
            if strange:
                self._complain(sending, ", ".join(sorted(code.name for code in strange)))
            if failed:
                self._try_again(sending, failed)
            self._finish_if_done(sending)

    def _complain(self, sending: _Sending, why: str) -> None:
        """Report a failure, once for each transaction."""
        if not sending.was_reported:
            sending.was_reported = True
            self._report(f"{_producer_of(sending.marker)}, cannot be written everywhere yet: {why}")

    def _try_again(self, sending: _Sending, partitions: Sequence[TopicPartition]) -> None:
        self._retry(sending, lambda: self._route(sending, partitions))

    def _finish_if_done(self, sending: _Sending) -> None:
        if not sending.left and not sending.is_over and not self._is_closed:
            sending.is_over = True
            sending.done()


def _producer_of(marker: TxnMarker) -> str:
    return f"the marker of producer {marker.producer_id}, epoch {marker.producer_epoch}"


def _names_of(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions[:_NAMED_MAX])) + (", ..." if len(partitions) > _NAMED_MAX else "")
