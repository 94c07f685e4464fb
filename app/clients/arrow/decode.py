"""Record batches v2 to Arrow columns. Results and errors are those of `core.message.batch_reader`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from attrs import asdict

from ....core.message.batch_header import HEADER_SIZE, BatchHeader, records_of, verify_crc
from ....core.message.batch_reader import decode_columns, whole_batches
from ....core.message.codec import DECOMPRESSED_BYTES_MAX, Codecs
from ....core.message.corrupt_record import is_damage
from ....core.message.message import Headers
from ....core.message.message_set import MessageSet
from ....ports.errors import ApiError
from ....ports.types import Buffer
from ....ports.values import define
from .record_columns import HEADERS_TYPE, RecordColumns, RecordRun, columns_of
from .varints import OddError

PIECE_BYTES = 8 * 1024 * 1024
"""The size of records, about, that are decoded at once: more gains nothing, and compressed data may expand a lot."""

OnDamage = Callable[[BatchHeader, ApiError], object]


@define(eq=False)
class ArrowColumns(RecordColumns):
    """Some records of a partition. `next_offset` is the offset at which to continue, even if there are no records."""

    next_offset: int = 0
    size_bytes: int = 0
    """The size of the records."""

    def __len__(self) -> int:
        return len(self.offsets)


@define(eq=False)
class _Opened:
    """A batch, and its decompressed records."""

    batch: memoryview
    data: bytes
    run: RecordRun


def decode_arrow(
    records: Buffer,
    codecs: Codecs,
    *,
    from_offset: int = 0,
    upto: int | None = None,
    with_headers: bool = False,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = True,
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
    on_damage: OnDamage | None = None,
) -> Iterator[ArrowColumns]:
    """Yield the records of consecutive batches with offsets in [from_offset, upto), without those of control batches.

    batches:   (position, header) of the batches to read, where they are known; None: all complete ones.
    on_damage: called with each batch whose records cannot be read; the batch is then skipped.

    Raises the errors of `core.message.batch_reader.decode_columns`, after all records before the batch in question.
    """
    reader = _Reader(codecs, from_offset, upto, with_headers, max_bytes, check_crc, on_damage)
    return reader.read(records, batches)


class _Reader:
    """Collects batches, and decodes them when they reach `PIECE_BYTES`."""

    def __init__(
        self,
        codecs: Codecs,
        from_offset: int,
        upto: int | None,
        with_headers: bool,
        max_bytes: int,
        check_crc: bool,
        on_damage: OnDamage | None,
    ) -> None:
        self._codecs = codecs
        self._from = self._reached = from_offset
        self._upto = upto
        self._with_headers = with_headers
        self._max_bytes = max_bytes
        self._check_crc = check_crc
        self._on_damage = on_damage
        self._waiting: list[_Opened] = []
        self._waiting_bytes = 0
        self._before = self._yielded = from_offset
        self._whole = b""

    def read(self, records: Buffer, batches: Iterable[tuple[int, BatchHeader]] | None) -> Iterator[ArrowColumns]:
        view, upto = memoryview(records), self._upto
        try:
            for at, header in whole_batches(view) if batches is None else batches:
                if upto is not None and header.base_offset >= upto:
                    break
                is_skipped = header.control or header.next_offset <= self._from
                # Damage may have made it a control batch, or one that ends before.
                if not is_skipped or self._check_crc:
                    try:
                        self._open(view, at, header, is_skipped=is_skipped)
                    except ApiError as error:
                        if self._on_damage is None or not is_damage(error):
                            raise
                        yield from self._decode_waiting()
                        self._on_damage(header, error)
                self._reached = max(self._reached, self._end(header))
                if self._waiting_bytes >= PIECE_BYTES:
                    yield from self._decode_waiting()
        except ApiError:
            yield from self._decode_waiting()
            raise
        yield from self._decode_waiting()
        if self._yielded < self._reached:
            yield _nothing(self._reached, self._with_headers)

    def _end(self, header: BatchHeader) -> int:
        return header.next_offset if self._upto is None else min(header.next_offset, self._upto)

    def _open(self, view: memoryview, at: int, header: BatchHeader, *, is_skipped: bool) -> None:
        batch = view[at : at + header.size]
        if self._check_crc:
            verify_crc(batch, header)
        if is_skipped:
            return
        content = records_of(batch, header)
        if not header.count:
            return
        if header.codec_id:
            data = self._codecs.by_id(header.codec_id).decompress(content, self._max_bytes)
            run = RecordRun(header, 0, len(data))
        else:
            if not self._whole:
                self._whole = view.obj if type(view.obj) is bytes and len(view.obj) == len(view) else bytes(view)
            data, run = self._whole, RecordRun(header, at + HEADER_SIZE, at + header.size)
        self._before = self._before if self._waiting else self._reached
        self._waiting.append(_Opened(batch, data, run))
        self._waiting_bytes += run.end - run.start

    def _decode_waiting(self) -> Iterator[ArrowColumns]:
        """Decode the collected batches at once; after an `OddError` one by one, an odd one by `core.message`."""
        group, self._waiting, self._waiting_bytes = self._waiting, [], 0
        found = self._together(group, self._reached) if group else None
        if found is not None:
            self._yielded = self._reached
            yield found
            return
        reached = self._before
        for opened in group:
            header = opened.run.header
            reached = max(reached, self._end(header))  # what lies about its offset may lie behind what follows
            found = self._together([opened], reached)
            if found is None:
                try:
                    found = self._one_by_one(opened, reached)
                except ApiError as error:
                    if self._on_damage is None or not is_damage(error):
                        raise
                    self._on_damage(header, error)
                    continue
            self._yielded = reached
            yield found

    def _together(self, group: Sequence[_Opened], reached: int) -> ArrowColumns | None:
        """Decode batches at once; return None after an `OddError`."""
        data, runs = group[0].data, [opened.run for opened in group]
        if any(opened.data is not data for opened in group):
            data = b"".join(memoryview(opened.data)[opened.run.start : opened.run.end] for opened in group)
            ends = list(accumulate(run.end - run.start for run in runs))
            runs = [RecordRun(run.header, end - run.end + run.start, end) for run, end in zip(runs, ends, strict=True)]
        try:
            found = columns_of(data, runs, self._from, self._upto, with_headers=self._with_headers)
        except OddError:
            return None
        size = sum(run.end - run.start for run in runs)
        return ArrowColumns(**asdict(found, recurse=False), next_offset=reached, size_bytes=size)

    def _one_by_one(self, opened: _Opened, reached: int) -> ArrowColumns:
        rows = decode_columns(
            opened.batch,
            self._codecs,
            from_offset=self._from,
            upto=self._upto,
            with_headers=self._with_headers,
            max_bytes=self._max_bytes,
            check_crc=False,
        )
        return ArrowColumns(
            pa.array(rows.keys, pa.binary()),
            pa.array(rows.values, pa.binary()),
            np.array(rows.offsets, dtype=np.int64),
            np.array(rows.timestamps, dtype=np.int64),
            np.array(rows.log_append_time, dtype=np.bool_),
            pa.array(map(_header_rows, rows.headers), HEADERS_TYPE) if self._with_headers else None,
            reached,
            opened.run.end - opened.run.start,
        )


def _header_rows(headers: Headers) -> list[dict[str, object]] | None:
    return [{"key": key, "value": value} for key, value in headers] or None


def _nothing(next_offset: int, with_headers: bool) -> ArrowColumns:
    none, numbers = pa.nulls(0, pa.binary()), np.zeros(0, dtype=np.int64)
    headers = pa.nulls(0, HEADERS_TYPE) if with_headers else None
    return ArrowColumns(none, none, numbers, numbers, np.zeros(0, dtype=np.bool_), headers, next_offset)


def decode_set(
    messages: MessageSet, *, from_offset: int | None = None, upto: int | None = None, with_headers: bool = False
) -> Iterator[ArrowColumns]:
    """Yield the messages of a set, the same as its iteration. Raises its errors too, after the messages before them."""

    def batches() -> Iterator[tuple[int, BatchHeader]]:
        for position, header in messages.positioned_batches():
            if not header.control:
                messages.leader_epoch = header.leader_epoch
            yield position, header

    records = messages.records
    return decode_arrow(
        records if isinstance(records, bytes | bytearray | memoryview) else records.read(),
        messages.codecs,
        from_offset=messages.from_offset if from_offset is None else from_offset,
        upto=upto,
        with_headers=with_headers,
        max_bytes=messages.max_bytes,
        check_crc=messages.check_crc,
        batches=batches(),
        on_damage=messages.on_damage,
    )
