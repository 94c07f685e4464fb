"""Counts messages of a tier: per topic and window, the sequences of each instance, and their delays."""

from collections.abc import Iterable

from attrs import define, field

from ..core.message.message import Message
from .delays import added, bucket_of
from .ranges import Range, compact
from .reports import CountReport, Reporter
from .stamp import HEADER, SEQUENCE_SIZE, decode_head, enveloped

_NO_NUMBER = -2


@define
class _Cell:
    """The counts of one topic, window and instance."""

    count: int = 0
    ranges: list[Range] = field(factory=list)
    delays: dict[int, int] = field(factory=dict)


class MessageCounts:
    """Counts that are not reported yet. Windows are `width_ms` long; a message belongs to that of its timestamp."""

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        self._cells: dict[tuple[str, int, str], _Cell] = {}

    def __bool__(self) -> bool:
        return bool(self._cells)

    def add(self, messages: Iterable[Message], now_ms: int) -> None:
        """Count messages that pass now. Runs of one batch need one comparison each."""
        last_topic, last_head, first, expected = "", b"", 0, _NO_NUMBER
        for message in messages:
            headers = message[2]
            content = headers[-1][1] if headers and headers[-1][0] == HEADER else _stamp_among(message)
            if content is None or len(content) <= SEQUENCE_SIZE:
                time_ms = message.timestamp_ms
                self.add_unstamped(message.topic, now_ms if time_ms is None or time_ms < 0 else time_ms, 1)
                continue
            head, number = content[:-SEQUENCE_SIZE], int.from_bytes(content[-SEQUENCE_SIZE:])
            if number == expected and head == last_head and message[4] == last_topic:
                expected += 1
                continue
            if expected != _NO_NUMBER:
                self.add_run(last_topic, last_head, first, expected - 1, now_ms)
            last_topic, last_head, first, expected = message[4], head, number, number + 1
        if expected != _NO_NUMBER:
            self.add_run(last_topic, last_head, first, expected - 1, now_ms)

    def add_run(self, topic: str, head: bytes, first: int, last: int, now_ms: int) -> None:
        """Count the messages of one batch with these sequences."""
        decoded, count = decode_head(head), last - first + 1
        if decoded is None:
            self._count(topic, now_ms, "", count, None, 0)
        else:
            self._count(topic, decoded.time_ms, decoded.instance, count, (first, last), now_ms - decoded.time_ms)

    def take_reports(self, origin: Reporter, *, failed: bool = False) -> list[CountReport]:
        """Return reports of all counts since the last call."""
        cells, self._cells = self._cells, {}
        return [
            CountReport(
                origin=origin,
                topic=topic,
                window_ms=window_ms,
                width_ms=self.width_ms,
                instance=instance,
                count=cell.count,
                ranges=compact(cell.ranges),
                delays=cell.delays,
                failed=failed,
            )
            for (topic, window_ms, instance), cell in sorted(cells.items(), key=lambda entry: entry[0])
        ]

    def absorb(self, other: "MessageCounts") -> None:
        """Add the counts of another one."""
        for key, cell in other._cells.items():
            own = self._cells.setdefault(key, _Cell())
            own.count += cell.count
            own.ranges += cell.ranges
            own.delays = added((own.delays, cell.delays))

    def add_unstamped(self, topic: str, time_ms: int, count: int) -> None:
        """Count messages of that time without a stamp."""
        self._count(topic, time_ms, "", count, None, 0)

    def _count(self, topic: str, time_ms: int, instance: str, count: int, numbers: Range | None, delay_ms: int) -> None:
        key = (topic, time_ms - time_ms % self.width_ms, instance)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        cell.count += count
        if numbers is not None:
            cell.ranges.append(numbers)
            bucket = bucket_of(delay_ms)
            cell.delays[bucket] = cell.delays.get(bucket, 0) + count


def _stamp_among(message: Message) -> bytes | None:
    for name, content in message.headers:
        if name == HEADER:
            return content
    return enveloped(message.value)
