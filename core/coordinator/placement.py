"""Which partition of an internal topic keeps what coordinators know of a key (facts C6)."""

from ..client.producer.hashing import java_string_hash


def partition_of(key: str, partition_count: int) -> int:
    """The partition that keeps a group, or a transactional id; its leader is the coordinator."""
    return (java_string_hash(key.encode()) & 0x7FFFFFFF) % partition_count
