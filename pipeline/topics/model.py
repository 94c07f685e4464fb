"""Interface of a cluster for the pipeline; `connect.py` and `connect_classic.py` implement it with `app.clients`."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from attrs import asdict, frozen

from ...ports.errors import ConfigError
from .damage import DamagedRange

if TYPE_CHECKING:
    import pyarrow as pa

    from ...app.clients.arrow.varints import Flags, Numbers

REMOTE_STORAGE = "remote.storage"
"""The setting of a reader that has keys of the cluster's remote storage: its URL."""
EARLIEST = -2
LATEST = -1
NO_OFFSET = -1
NO_BROKER = -1
_KEY = re.compile(r"(?:(\d{1,10})-)?(\d{1,10})")
_CLASSIC = "classic://"
PLACE_SETTINGS = ("broker.list", "zk.connect", "etcd.connect", "coordination")
"""Settings that say where a classic cluster is."""


class ClusterPartition(NamedTuple):
    """A partition. In a classic cluster each broker has its own ones of a topic; else `broker` is NO_BROKER."""

    topic: str
    partition: int
    broker: int = NO_BROKER

    @property
    def key(self) -> str:
        """The key within its topic: `partition`, or as in the classic registries `broker-partition`."""
        return str(self.partition) if self.broker == NO_BROKER else f"{self.broker}-{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic}-{self.key}"

    @classmethod
    def parse(cls, topic: str, key: str) -> "ClusterPartition | None":
        """Return the reverse of `key`; None for a text that is none."""
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        broker, partition = match.groups()
        return cls(topic, int(partition), NO_BROKER if broker is None else int(broker))


@frozen(kw_only=True)
class Where:
    """The address of a cluster: exactly one is not empty. Anything but a `bootstrap` HOST:PORT is a classic one."""

    bootstrap: str = ""
    """HOST:PORT[,...], or of classic brokers, which get the ids 0, 1, ... in this order, classic://HOST:PORT[,...]."""
    broker_list: str = ""
    """ID:HOST:PORT[,...]"""
    zk_connect: str = ""
    etcd_connect: str = ""
    coordination: str = ""
    """zookeeper://HOST:PORT/CHROOT or etcd://HOST:PORT/PREFIX"""

    @property
    def classic(self) -> bool:
        return not self.bootstrap or self.bootstrap.startswith(_CLASSIC)

    @property
    def options(self) -> dict[str, str]:
        """The address by the names of settings: `zk.connect` and so on."""
        return {name.replace("_", "."): text for name, text in asdict(self).items() if text}

    @classmethod
    def of(cls, bootstrap: str, settings: Mapping[str, str], *, named: str = "bootstrap") -> Self:
        """From what the user calls the bootstrap, if anything (a coordination URL will do), and settings, others than
        those of this class among them. Raises `ConfigError` unless exactly one of them says where."""
        text = bootstrap.strip()
        is_coordination = "://" in text and not text.startswith((_CLASSIC, "kafka://"))
        found = {"coordination" if is_coordination else "bootstrap": text} if text else {}
        given = [named] if text else []
        places = {name: settings[name].strip() for name in PLACE_SETTINGS if settings.get(name, "").strip()}
        if len(found) + len(places) != 1:
            raise ConfigError(
                f"give one address of the cluster, by {named} HOST:PORT; of a classic cluster by one of zk.connect, "
                "etcd.connect, coordination (zookeeper://... or etcd://...), broker.list ID:HOST:PORT (command line: "
                f"--set zk.connect=...) or as {_CLASSIC}HOST:PORT; given: {' and '.join([*given, *places]) or 'none'}"
            )
        return cls(**{name.replace(".", "_"): text for name, text in {**found, **places}.items()})


@frozen
class TopicInfo:
    """A topic as the cluster knows it; `topic_id` is "" where the cluster has none."""

    name: str
    partitions: Sequence[ClusterPartition]
    """The partitions; in a classic cluster those on live brokers, as brokers come and go."""
    topic_id: str = ""


@frozen
class PartitionColumns:
    """Some consecutive records of one partition, a list or an Arrow or numpy array per column.

    All have the length of `offsets`; but one that is empty is null in all rows (of a classic cluster: all those that
    its messages do not have).
    `next_offset` is where to read on: more than the last offset + 1 when the log has a gap there.
    """

    next_offset: int
    offsets: "Sequence[int] | Numbers"
    timestamps_ms: "Sequence[int] | Numbers"
    log_append_time: "Sequence[bool] | Flags"
    keys: "Sequence[bytes | None] | pa.Array"
    values: "Sequence[bytes | None] | pa.Array"
    headers: "Sequence[Sequence[tuple[str, bytes | None]]] | pa.Array"
    wrapper_indexes: Sequence[int | None] = ()
    """The index of each message in its compressed wrapper; None = it is in none."""
    size_bytes: int = 0
    """The approximate memory of keys and values."""
    damage: DamagedRange | None = None
    """The damage that was left out before `next_offset`; there are no records then."""

    @classmethod
    def without_records(cls, damage: DamagedRange) -> "PartitionColumns":
        return cls(damage.end, (), (), (), (), (), (), damage=damage)


class Cluster(Protocol):
    """A connection to a cluster. Used by one thread at a time; every call may block and raises `BarnabasError`.

    Offsets of a classic cluster are byte positions: that of a record is where its message, or the compressed wrapper
    around it, begins. So `start ≤ offset < end` always takes whole wrappers.
    """

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicInfo]:
        """Return those of these topics that exist; None: every topic that is not internal."""
        ...

    def offsets(self, partitions: Iterable[ClusterPartition], timestamp_ms: int) -> Mapping[ClusterPartition, int]:
        """Return per partition the first offset whose record is of that time or later, or EARLIEST or LATEST; -1 =
        none.

        A classic cluster knows times only of segments: there it is the beginning of the newest one that was last
        written at that time or earlier, or of the log.
        """
        ...

    def read(
        self, tp: ClusterPartition, start: int, end: int, *, with_headers: bool = False
    ) -> Iterable[PartitionColumns]:
        """Read the records with start ≤ offset < end, in pieces of bounded size; `headers` is empty unless asked for.

        Raises `ApiError(OFFSET_OUT_OF_RANGE)` when the log no longer has `start`, or ends before `end`; `CorruptRecord`
        for damaged records, in place of which the setting `skip.damaged` yields a piece with the `damage`.
        """
        ...

    def in_bucket(self, tp: ClusterPartition, start: int, end: int) -> int:
        """Return the end of the offsets from `start` up to `end` that `read` takes from remote storage, past the
        brokers; `start` if there are none."""
        ...

    def boundary(self, tp: ClusterPartition, start: int, wanted: int) -> int:
        """Return the greatest offset up to `wanted` at which a read may end that began at `start` (which may be one),
        but past the first record. Offsets that count records are all of this kind."""
        ...

    def where(self, tp: ClusterPartition) -> Where:
        """Return the address at which a task finds this partition."""
        ...

    def close(self) -> None:
        """Give the connections back. Twice is harmless."""
        ...
