"""The batches in the logs of each broker, read from its files."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

_HEADER = struct.Struct(">qiibI")
"""Base offset, length of the rest, leader epoch, magic, CRC (facts B1)."""
_LENGTH_FROM = 12


def read_replicas(
    folders: Sequence[tuple[int, Path]], topics: Sequence[str]
) -> dict[str, dict[int, list[tuple[int, int, int]]]]:
    """Partition's folder → broker → (base offset, leader epoch, CRC) of its batches. `folders`: of stopped brokers."""
    found: dict[str, dict[int, list[tuple[int, int, int]]]] = {}
    for broker, folder in folders:
        for log in sorted(folder.iterdir()):
            if log.is_dir() and log.name.rpartition("-")[0] in topics:
                found.setdefault(log.name, {})[broker] = list(_batches(log))
    return found


def _batches(log: Path) -> Iterator[tuple[int, int, int]]:
    for segment in sorted(log.glob("*.log")):
        data = segment.read_bytes()
        at = 0
        while at + _HEADER.size <= len(data):
            base, length, epoch, _magic, crc = _HEADER.unpack_from(data, at)
            if length <= 0 or at + _LENGTH_FROM + length > len(data):
                return  # an end that is torn
            yield base, epoch, crc
            at += _LENGTH_FROM + length
