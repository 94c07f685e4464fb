"""Committed offsets of groups in remote storage, for a restore: one object for each partition of `__consumer_offsets`,
which the broker that leads it replaces.

Only offsets in tiered topics are there, as others are not restored.
"""

from collections.abc import Iterable

from attrs import astuple

from ...ports.remote_storage import ObjectMissing, RemoteStorage
from ...ports.values import frozen
from .compressed_json import decode_json, encode_json

FOLDER = "groups"
"""The first name of the keys; folders of topics end in a topic id."""
_FORMAT = 1
_CONTENT_MAX = 1 << 30


@frozen(kw_only=True)
class GroupOffset:
    """The committed offset of a group in a partition."""

    group: str
    topic: str
    topic_id: str
    """In hexadecimal digits."""
    partition: int
    offset: int


@frozen(kw_only=True)
class CopiedOffsets:
    """The offsets that the coordinator of one partition of `__consumer_offsets` had at a moment."""

    partition: int
    leader_epoch: int
    """The epoch of that leader; an earlier one does not replace what it has stored."""
    copied_ms: int
    offsets: tuple[GroupOffset, ...]


def group_offsets_key(cluster_id: str, partition: int) -> str:
    return f"{FOLDER}/{cluster_id}/{partition}.json.gz"


def encode_group_offsets(copied: CopiedOffsets) -> bytes:
    """Return gzip-compressed JSON."""
    content = {
        "format": _FORMAT,
        "partition": copied.partition,
        "leaderEpoch": copied.leader_epoch,
        "copiedMs": copied.copied_ms,
        "offsets": [astuple(each) for each in copied.offsets],
    }
    return encode_json(content)


def decode_group_offsets(content: bytes) -> CopiedOffsets:
    """Raises `ValueError`."""
    try:
        found = decode_json(content, _FORMAT, size_max=_CONTENT_MAX)
        return CopiedOffsets(
            partition=int(found["partition"]),
            leader_epoch=int(found["leaderEpoch"]),
            copied_ms=int(found["copiedMs"]),
            offsets=tuple(
                GroupOffset(
                    group=str(group),
                    topic=str(topic),
                    topic_id=str(topic_id),
                    partition=int(partition),
                    offset=int(offset),
                )
                for group, topic, topic_id, partition, offset in found["offsets"]
            ),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not the offsets of groups: {error!r}") from None


def store_group_offsets(storage: RemoteStorage, key: str, copied: CopiedOffsets) -> None:
    """Replace what an earlier leader, or this one, has stored. Any thread. Raises `RemoteStorageError`."""
    version = None
    try:
        found = storage.read(key)
    except ObjectMissing:
        pass
    else:
        version = found.version
        try:
            if decode_group_offsets(found.content).leader_epoch > copied.leader_epoch:
                return
        except ValueError:
            version = found.version  # it is replaced
    storage.replace(key, encode_group_offsets(copied), version)


def newest_offsets(all_copied: Iterable[CopiedOffsets]) -> list[GroupOffset]:
    """Return the offset of each group in each partition that was copied last: groups move where there are more
    partitions of `__consumer_offsets` than before."""
    found: dict[tuple[str, str, int], GroupOffset] = {}
    for copied in sorted(all_copied, key=lambda each: each.copied_ms):
        found.update({(each.group, each.topic_id, each.partition): each for each in copied.offsets})
    return list(found.values())
