"""The broker-epoch file: the broker epochs of a data folder, by which a start knows what happened before."""

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from ....ports.storage import FileMissing, LogDir, StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...cluster.topics import LastRegistration

BROKER_EPOCH = "broker-epoch"
"""Ours; Kafka has it in the marker of an orderly stop (KIP-966)."""
UNKNOWN = -1
EPOCHS_MAX = 1000
"""Maximum number of listed epochs, the latest ones."""
_LISTED, _EARLIER, _FOLDERS = "lives:", "...", "folders:"
_SEEN, _DISTRUSTED, _ALL = "seen:", "distrusted:", "*"


@frozen(kw_only=True)
class BrokerEpochs:
    """The broker epochs in which a data folder was in use, ascending.

    `is_complete`: the folder was in use in no other epoch. False: its earlier epochs are unknown.
    """

    epochs: tuple[int, ...] = ()
    is_complete: bool = True
    folder_count: int = 0
    """Number of data folders of the broker in the latest epoch; 0: unknown."""
    seen: tuple[LastRegistration, ...] = ()
    """The registrations in the coordination tree: that of this broker, and the latest ones that it has seen of others.
    Empty: an earlier version wrote the file."""
    distrusted: frozenset[TopicPartition] | None = frozenset()
    """Partitions whose states the coordination service has lost, and which are not marked in the tree yet; None: all
    partitions of this folder."""

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else UNKNOWN

    def includes(self, epoch: int) -> bool:
        """Return False if the folder was certainly not in use in that epoch: it is newer, or an older copy."""
        return epoch in self.epochs or not (self.is_complete or (self.epochs and epoch > self.epochs[0]))

    def with_epoch(self, epoch: int, folder_count: int = 0) -> "BrokerEpochs":
        """Return the epochs with a new one that begins with this number of data folders."""
        epochs = (*self.epochs, epoch)
        is_complete = self.is_complete and len(epochs) <= EPOCHS_MAX
        return evolve(self, epochs=epochs[-EPOCHS_MAX:], is_complete=is_complete, folder_count=folder_count)


def recorded_epoch(log_dirs: Sequence[LogDir]) -> int:
    """Return the previous epoch if all data folders agree on it; -1 if one is missing, different or unreadable."""
    noted = {read_broker_epochs(log_dir, is_new=True).latest for log_dir in log_dirs}
    return noted.pop() if len(noted) == 1 else UNKNOWN


def largest_epoch(log_dirs: Sequence[LogDir]) -> int:
    """Return the largest epoch that any data folder has; -1 without one."""
    return max(
        (max(read_broker_epochs(log_dir, is_new=True).epochs, default=UNKNOWN) for log_dir in log_dirs), default=UNKNOWN
    )


def noted_registrations(log_dirs: Sequence[LogDir]) -> tuple[LastRegistration, ...]:
    """Return the registrations of the coordination tree, from the folders that were in use last."""
    latest: dict[int, LastRegistration] = {}
    for lives in _latest_lives(log_dirs):
        for each in lives.seen:
            known = latest.get(each.broker_id)
            if known is None or known.progress < each.progress:
                latest[each.broker_id] = each
    return tuple(latest[each] for each in sorted(latest))


def noted_distrusted(log_dirs: Sequence[LogDir]) -> frozenset[TopicPartition] | None:
    """Return the partitions that are not trusted yet, from the folders that were in use last; None: all."""
    found: frozenset[TopicPartition] = frozenset()
    for lives in _latest_lives(log_dirs):
        if lives.distrusted is None:
            return None
        found |= lives.distrusted
    return found


def _latest_lives(log_dirs: Sequence[LogDir]) -> list[BrokerEpochs]:
    """Return the epochs of the folders in use in the latest epoch: older content of other disks is obsolete."""
    found = [read_broker_epochs(log_dir, is_new=True) for log_dir in log_dirs]
    latest = max((each.latest for each in found), default=UNKNOWN)
    return [each for each in found if each.latest == latest]


def read_broker_epochs(log_dir: LogDir, *, is_new: bool) -> BrokerEpochs:
    """Read the broker epochs of a data folder; `is_new`: it has no logs, so that a missing file means no epochs."""
    try:
        return parse_broker_epochs(log_dir.root.read_small(BROKER_EPOCH))
    except FileMissing:
        return BrokerEpochs(is_complete=is_new)
    except (StorageError, ValueError):
        return BrokerEpochs(is_complete=False)


def parse_broker_epochs(content: bytes) -> BrokerEpochs:
    """Parse the file. Raises `ValueError` for garbage."""
    version, latest, *others = content.decode().split("\n")
    if version != "0":
        raise ValueError(f"version {version[:20]!r}, expected 0")
    named, *listed = others[0].split() if others and others[0] else [""]
    if named != _LISTED:  # a version that stored the latest epoch only
        return BrokerEpochs(epochs=(int(latest),), is_complete=False)
    is_complete = listed[:1] != [_EARLIER]
    epochs = tuple(int(each) for each in (listed if is_complete else listed[1:]))
    if not epochs or epochs[-1] != int(latest):
        raise ValueError("the last listed epoch is not the latest")
    lines = {name: rest.split() for name, _, rest in (line.partition(" ") for line in others[1:])}
    distrusted = lines.get(_DISTRUSTED, [])
    return BrokerEpochs(
        epochs=epochs,
        is_complete=is_complete,
        folder_count=int(lines[_FOLDERS][0]) if lines.get(_FOLDERS) else 0,
        seen=_parse_seen(lines.get(_SEEN, [])),
        distrusted=None if distrusted == [_ALL] else frozenset(map(_parse_partition, distrusted)),
    )


def _parse_seen(listed: Iterable[str]) -> tuple[LastRegistration, ...]:
    found = []
    for each in listed:
        broker, epoch, ended = map(int, each.split(":"))
        found.append(LastRegistration(broker, epoch, bool(ended)))
    return tuple(found)


def _parse_partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def format_broker_epochs(lives: BrokerEpochs) -> bytes:
    """Format the file for `parse_broker_epochs`."""
    listed = [_LISTED, *([] if lives.is_complete else [_EARLIER]), *map(str, lives.epochs)]
    seen = [f"{each.broker_id}:{each.broker_epoch}:{each.ended:d}" for each in lives.seen]
    distrusted = [_ALL] if lives.distrusted is None else sorted(map(str, lives.distrusted))
    named: Mapping[str, Sequence[str]] = {_SEEN: seen, _DISTRUSTED: distrusted}
    lines = [" ".join((name, *values)) for name, values in named.items() if values]
    if lives.folder_count or lines:  # an earlier version expects the number of folders before unknown lines
        lines.insert(0, f"{_FOLDERS} {lives.folder_count}")
    return "\n".join(["0", str(lives.latest), " ".join(listed), *lines, ""]).encode()


def write_broker_epochs(log_dir: LogDir, lives: BrokerEpochs) -> None:
    """Write the broker epochs of a data folder; durable on return. Any thread. Raises `StorageError`."""
    log_dir.root.write_small(BROKER_EPOCH, format_broker_epochs(lives))
