"""The partitions of rows: those that the producer's partitioner would choose message by message, but faster."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.client.cluster_view import TopicView
from ....core.client.errors import no_partition
from ....core.client.producer.hashing import murmur2, murmur2_partition
from ....core.client.producer.partitioner import Partitioner
from ....plugins.builtin.partitioners import KeyedPartitioner
from ..shared.encoding import choose_index
from .record_layout import Rows
from .varints import Flags, Numbers

_M, _SEED = np.uint32(0x5BD1E995), 0x9747B28C
_LONG_KEY = 256
Hashes: TypeAlias = npt.NDArray[np.uint32]


def partitions_of(
    rows: Rows, given: Any, partitioner: Partitioner, topic: str, view: TopicView, batch_size: int
) -> Numbers:
    """Return a partition for each row. `given`: a column of partitions, null where the partitioner chooses; or None.

    Raises `ApiError` for a partition that the topic does not have, `EncodeError` when the partitioner fails.
    """
    count = len(view.leaders)
    chosen = np.full(len(rows), -1, dtype=np.int64)
    if given is not None:
        chosen = given.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).copy()
        wrong = chosen[(chosen >= count) | ((chosen < 0) & given.is_valid().to_numpy(zero_copy_only=False))]
        if wrong.size:
            raise no_partition(topic, count, int(wrong[0]))
    open_rows = np.flatnonzero(chosen < 0)
    if open_rows.size:
        part = rows if open_rows.size == len(rows) else rows.chosen(open_rows)
        chosen[open_rows] = _Choice(partitioner, topic, view, batch_size).of(part)
    return chosen


class _Choice:
    def __init__(self, partitioner: Partitioner, topic: str, view: TopicView, batch_size: int) -> None:
        self._partitioner = partitioner
        self._topic = topic
        self._view = view
        self._batch_size = batch_size

    def of(self, rows: Rows) -> Numbers:
        partitioner, keys = self._partitioner, rows.keys
        keyless = np.ones(len(rows), dtype=np.bool_) if keys is None else _is_null(keys)
        if type(partitioner) is KeyedPartitioner:
            return self._keyed(partitioner, rows, keyless)
        if partitioner.sticky and keyless.all():
            return self._sticky(rows.sizes())
        return self._each(rows)

    def _keyed(self, partitioner: KeyedPartitioner, rows: Rows, keyless: Flags) -> Numbers:
        """Choose by the hash of the key; rows without a key go by the partitioner."""
        count = len(self._view.leaders)
        if partitioner.empty_is_none and rows.keys is not None:
            keyless = keyless | (pc.binary_length(rows.keys).fill_null(0).to_numpy(zero_copy_only=False) == 0)
        chosen = np.full(len(rows), -1, dtype=np.int64)
        if rows.keys is not None and not keyless.all():
            chosen[~keyless] = _hashed(rows.keys.filter(pa.array(~keyless)), partitioner.hashed, count)
        left = np.flatnonzero(keyless)
        if left.size and partitioner.without_key is None:
            chosen[left] = partitioner.hashed(b"", count)
        elif left.size:
            part = rows if left.size == len(rows) else rows.chosen(left)
            chosen[left] = self._sticky(part.sizes()) if partitioner.sticky else self._each(part)
        return chosen

    def _sticky(self, sizes: Numbers) -> Numbers:
        """Choose one partition for all rows that fit into a batch."""
        chosen = np.empty(len(sizes), dtype=np.int64)
        firsts = batch_firsts(sizes, self._batch_size, len(sizes))
        for first, end in zip(firsts, [*firsts[1:], len(sizes)], strict=True):
            chosen[first:end] = partition = self._ask(None, None)
            if end < len(sizes):
                self._partitioner.next_batch(self._topic, partition)
        return chosen

    def _each(self, rows: Rows) -> Numbers:
        keys = [None] * len(rows) if rows.keys is None else rows.keys.to_pylist()
        found = [self._ask(key, value) for key, value in zip(keys, rows.values.to_pylist(), strict=True)]
        return np.array(found, dtype=np.int64)

    def _ask(self, key: bytes | None, value: bytes | None) -> int:
        view = self._view
        return choose_index(self._partitioner, self._topic, key, value, len(view.leaders), view.available)


def batch_firsts(sizes: Numbers, batch_size: int, batch_messages: int) -> Sequence[int]:
    """Return the rows at which batches begin, each batch as large as allowed, and of one row at least."""
    ends, firsts = np.cumsum(sizes), [0]
    while True:
        first = firsts[-1]
        before = int(ends[first - 1]) if first else 0
        fits = int(np.searchsorted(ends, batch_size + before, side="right"))
        following = max(first + 1, min(fits, first + batch_messages))
        if following >= len(sizes):
            return firsts
        firsts.append(following)


def _is_null(column: Any) -> Flags:
    found: Flags = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found


def _hashed(keys: Any, hashed: Callable[[bytes, int], int], count: int) -> Numbers:
    if hashed is murmur2_partition:
        return (murmur2_of(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    unique = keys.dictionary_encode()
    found = np.array([hashed(key, count) for key in unique.dictionary.to_pylist()], dtype=np.int64)
    partitions: Numbers = found[unique.indices.to_numpy()]
    return partitions


def murmur2_of(keys: Any) -> Hashes:
    """Return `core.client.producer.hashing.murmur2` of many keys, none of them null."""
    bounds = np.frombuffer(keys.buffers()[1], dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    begins, sizes = bounds[:-1].astype(np.int64), np.diff(bounds).astype(np.int64)
    data = np.frombuffer(bytes(keys.buffers()[2] or b"") + b"\0\0\0\0", dtype=np.uint8)
    words = np.ndarray(len(data) - 3, dtype="<u4", buffer=data.data, strides=(1,))  # at each byte the four from there
    h = (_SEED ^ sizes).astype(np.uint32)
    short = sizes <= _LONG_KEY
    most = int(sizes[short].max()) if short.any() else 0
    with np.errstate(over="ignore"):
        for number in range(most // 4):
            rows = np.flatnonzero(short & (sizes >> 2 > number))
            k = words[begins[rows] + 4 * number] * _M
            h[rows] = h[rows] * _M ^ (k ^ k >> np.uint32(24)) * _M
        rest = sizes & 3
        rows = np.flatnonzero(rest)
        tail = words[begins[rows] + (sizes[rows] & ~3)] & ((1 << 8 * rest[rows]) - 1).astype(np.uint32)
        h[rows] = (h[rows] ^ tail) * _M
        h = (h ^ h >> np.uint32(13)) * _M
        h = h ^ h >> np.uint32(15)
    for row in np.flatnonzero(~short):
        h[row] = murmur2(keys[int(row)].as_py())
    return h
