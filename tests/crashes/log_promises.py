"""The promises of a broker's logs up to a moment, and whether the state after a crash fulfils them."""

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen
from crashes.committed import check_compacted, check_transactions
from crashes.written import Broken, Written, serve

from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import BatchHeader, parse_header
from barnabas.ports.types import TopicPartition


@frozen
class Began:
    """A partition is made, or its log starts again at an offset."""

    place: TopicPartition
    topic_id: bytes
    offset: int = 0


@frozen
class Appended:
    place: TopicPartition
    written: Written


@frozen
class Cutting:
    """All from the offset on goes."""

    place: TopicPartition
    offset: int


@frozen
class CutNoted:
    """The checkpoints know that it was cut."""

    place: TopicPartition


@frozen
class StartMoved:
    """Messages below the start are no longer required."""

    place: TopicPartition
    offset: int


@frozen
class Durable:
    """The log says that everything below the offset is on the disk."""

    place: TopicPartition
    offset: int


@frozen
class Gone:
    """The topic is deleted, or about to be."""

    place: TopicPartition


@frozen
class Found:
    """After a crash the broker continues with this."""

    place: TopicPartition
    start: int
    batches: Sequence[Written]
    durable: int


@define
class Book:
    """One partition."""

    topic_id: bytes
    start: int = 0
    durable: int = 0
    batches: list[Written] = field(factory=list)
    cutting: bool = False
    """The checkpoints may say yet that what was cut is durable: a follower that dies now reports it as lost."""
    older: list[list[Written]] = field(factory=list)
    """Earlier contents of the log, before a truncation: they may return until the truncation is durable."""


class Promises:
    """`take` what was noted, in order; then `check` what was found."""

    def __init__(self) -> None:
        self.books: dict[TopicPartition, Book] = {}
        self._taken = 0

    def take(self, noted: Sequence[object]) -> None:
        for event in noted[self._taken :]:
            self._take(event)
        self._taken = len(noted)

    def _take(self, event: object) -> None:
        match event:
            case Began(place, topic_id, offset):
                book = self.books.get(place)
                if book is None or book.topic_id != topic_id:
                    self.books[place] = Book(topic_id, offset)
                else:
                    book.older.append(book.batches)
                    book.batches, book.start, book.durable, book.cutting = [], offset, 0, True
            case Appended(place, written):
                self.books[place].batches.append(written)
            case Cutting(place, offset):
                book = self.books[place]
                book.older.append(book.batches)
                book.batches = [each for each in book.batches if each.end <= offset]
                cut_end = book.batches[-1].end if book.batches else book.start  # a batch that reaches over it goes, too
                book.durable, book.cutting = min(book.durable, offset, cut_end), True
            case CutNoted(place):
                self.books[place].cutting = False
            case StartMoved(place, offset):
                self.books[place].start = max(self.books[place].start, offset)
            case Durable(place, offset):
                self.books[place].durable = max(self.books[place].durable, offset)
            case Gone(place):
                self.books.pop(place, None)
            case Found(place, start, batches, durable):
                book = self.books[place]
                book.older.append(book.batches)
                book.start, book.batches, book.durable, book.cutting = start, list(batches), durable, False
            case _:
                raise TypeError(f"unknown event {event!r}")

    def check(
        self, logs: Mapping[TopicPartition, UnifiedLog], *, alarms: bool = True
    ) -> dict[TopicPartition, list[Written]]:
        """Raises `Broken`; returns what is served. `alarms`: no log may say without need that it has lost something."""
        served = {}
        for tp, book in self.books.items():
            log = logs.get(tp)
            wanted = [each for each in book.batches if each.base >= book.start and each.end <= book.durable]
            if log is None:
                if wanted:
                    raise Broken(f"lost: {tp} is not there, and had offsets up to {wanted[-1].end} durable")
                continue
            served[tp] = found = serve(log)
            histories = [book.batches, *reversed(book.older)]
            if log.config.compacted:
                check_compacted(tp, log, found, histories, wanted)
            else:
                _check_content(tp, book, found, histories, wanted)
            if log.recovery_point > log.log_end_offset:
                raise Broken(f"beyond: the recovery point of {tp} is {log.recovery_point} of {log.log_end_offset}")
            if alarms and log.is_end_lost and not book.cutting:
                raise Broken(f"false alarm: {tp} says that it has lost durable messages")
            if log.format_name != "classic":
                _check_state(tp, log, found)
                _check_producers(tp, log, book)
        return served


def _check_content(
    tp: TopicPartition,
    book: Book,
    found: Sequence[Written],
    histories: Sequence[Sequence[Written]],
    wanted: Sequence[Written],
) -> None:
    lost = sorted(set(wanted) - set(found), key=lambda each: each.base)
    if lost:
        raise Broken(f"lost: {tp} was durable up to {book.durable}, and offset {lost[0].base} is not as it was")
    if not any(_is_part_of(found, history) for history in histories):
        last = max((each for each in found), key=lambda each: each.base)
        raise Broken(f"never so: {tp} serves {found[0].base} to {last.end}, which it has never had like this")


def _is_part_of(found: Sequence[Written], history: Sequence[Written]) -> bool:
    """Return True if it is one run of the history."""
    if not found:
        return True
    at = next((n for n, each in enumerate(history) if each.base == found[0].base), None)
    return at is not None and list(history[at : at + len(found)]) == list(found)


def _check_producers(tp: TopicPartition, log: UnifiedLog, book: Book) -> None:
    """Producers are known for what is durable, also if retention has removed it since."""
    for each in (each for each in book.batches if each.end <= book.durable):
        header = parse_header(each.data, 0)
        if header.producer_id < 0 or header.base_sequence < 0:
            continue
        known = log.producers.producers.get(header.producer_id)
        if known is None or known.last_sequence < header.last_sequence:
            observed = None if known is None else known.last_sequence
            text = f"which wrote {header.last_sequence} at {each.base}"
            raise Broken(f"producers: {tp} knows {observed} of {header.producer_id}, {text}")


def _check_state(tp: TopicPartition, log: UnifiedLog, found: Sequence[Written]) -> None:
    """Producers and leader epochs are those of the batches."""
    newest: dict[int, BatchHeader] = {}
    for each in found:
        header = parse_header(each.data, 0)
        if header.leader_epoch >= 0 and log.epochs.epoch_at(header.base_offset) != header.leader_epoch:
            epoch = log.epochs.epoch_at(header.base_offset)
            raise Broken(f"epochs: {tp} has {header.leader_epoch} at {header.base_offset}, and says {epoch}")
        if header.producer_id >= 0 and header.base_sequence >= 0:
            newest[header.producer_id] = header
    for producer_id, header in newest.items():
        known = log.producers.producers.get(producer_id)
        if known is None or (known.epoch, known.last_sequence) != (header.producer_epoch, header.last_sequence):
            observed = None if known is None else (known.epoch, known.last_sequence)
            raise Broken(f"producers: {tp} knows {observed} of {producer_id}, which wrote {header.last_sequence}")
    end = log.log_end_offset
    for producer_id, known in log.producers.producers.items():
        if known.batches and known.batches[-1].last_offset >= end:
            raise Broken(f"producers: {tp} ends at {end}, and knows of a batch of {producer_id} behind that")
    check_transactions(tp, log, found)
