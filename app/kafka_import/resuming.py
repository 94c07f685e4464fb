"""An interrupted import leaves a mark in each data folder, and a claim in the coordination tree, by which the same
command continues it.

The mark is a file of lines. The first one names the command, the later ones what is whole: a partition that was copied,
checked and is durable, and at last the tree. The claim says whose the nodes are, until all of them are there.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
from attrs import define, field

from ...core.cluster import layout
from ...core.cluster.brokers import next_broker_epoch, random_uuid, remove, stored_cluster_id
from ...core.cluster.topics import ALONE_EPOCH
from ...core.log.manager.meta_properties import IMPORT_INCOMPLETE
from ...ports.coordination import Coordination, CreateNode, NodeExists, NoNode
from ...ports.entropy import Entropy
from ...ports.errors import ConfigError
from ...ports.report import counted
from ...ports.values import frozen
from ..compose.log_files import entries_of

_CLAIM = "/barnabas/import"


@frozen(kw_only=True)
class Command:
    """The options of a command that make it the same import as another one."""

    sources: Sequence[str]
    targets: Mapping[int, str]
    coordination: str
    link: bool
    zookeeper: str | None

    @property
    def digest(self) -> str:
        """A short name of the command, without the passwords that URLs may have."""
        return hashlib.sha256(json.dumps(attrs.asdict(self), sort_keys=True).encode()).hexdigest()

    def marks_in(self, targets: Mapping[int, Path]) -> "dict[int, ImportMark]":
        """Return the marks that this command has left in the folders of brokers."""
        found = {broker: ImportMark.read(path) for broker, path in targets.items()}
        return {broker: each for broker, each in found.items() if each is not None and each.command == self.digest}


@frozen(kw_only=True)
class WholePartition:
    """A log that was copied and checked. `of` names the files that it comes from, as they were."""

    of: str
    end: int
    start: int
    cleaned: int | None
    largest_producer_id: int
    segments: int
    converted: int


@define
class ImportMark:
    """The mark in a data folder. Every change is durable on return."""

    path: Path
    command: str
    sources: Sequence[str]
    import_id: str
    topic_ids: Mapping[str, bytes]
    """The ids of all topics; some were made, and are in the folders."""
    whole: dict[str, WholePartition] = field(factory=dict)
    cluster_id: str | None = None
    """The cluster, once the coordination tree has all of it."""

    @classmethod
    def read(cls, path: Path) -> "ImportMark | None":
        """Return the mark of a data folder; None without one, or for one that says nothing."""
        file = path / IMPORT_INCOMPLETE
        try:
            lines = file.read_bytes().split(b"\n")[:-1]  # a line that was interrupted has no end
        except (FileNotFoundError, NotADirectoryError):
            return None
        mark: ImportMark | None = None
        for line in lines:
            try:
                read = json.loads(line)
                if mark is None:
                    ids = {name: layout.decode_id(text) for name, text in read["topics"].items()}
                    mark = cls(path, read["command"], read["sources"], read["import"], ids)
                elif "partition" in read:
                    name = read.pop("partition")
                    mark.whole[name] = WholePartition(**read)
                else:
                    mark.cluster_id = read["cluster"]
            except (ValueError, KeyError, TypeError, AttributeError):
                break  # what follows is unknown
        return mark

    def write_first(self) -> None:
        """Write the mark of an import of which nothing is whole but what it says."""
        ids = {name: layout.encode_id(topic_id) for name, topic_id in self.topic_ids.items()}
        first = {"import": self.import_id, "command": self.command, "sources": list(self.sources), "topics": ids}
        lines = [first, *({"partition": name, **attrs.asdict(each)} for name, each in self.whole.items())]
        new = self.path / f"{IMPORT_INCOMPLETE}.new"
        with new.open("wb") as file:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / IMPORT_INCOMPLETE)
        sync_folder(self.path)

    def note_whole(self, name: str, found: WholePartition) -> None:
        """Note that the folder of a partition is whole."""
        self.whole[name] = found
        sync_folder(self.path)
        self._append({"partition": name, **attrs.asdict(found)})

    def note_tree(self, cluster_id: str) -> None:
        """Note that the coordination tree has all topics and settings."""
        self.cluster_id = cluster_id
        self._append({"cluster": cluster_id})

    def _append(self, line: Mapping[str, object]) -> None:
        with (self.path / IMPORT_INCOMPLETE).open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_target(path: Path) -> None:
    """Raise `ConfigError` for a folder that is in use: neither empty nor one of an interrupted import."""
    above = next((each for each in (path, *path.parents) if each.exists()), path)
    if above.exists() and not above.is_dir():
        raise ConfigError(f"{above} is not a folder: name a new one for --into")
    names = {each.name for each in entries_of(path)} if path.exists() else set()
    if names and not names & {IMPORT_INCOMPLETE, f"{IMPORT_INCOMPLETE}.new"}:
        raise ConfigError(f"{path} is not empty: an import makes a data folder of its own")


def prepare_target(found: ImportMark | None, wanted: ImportMark, report: Callable[[str], None]) -> None:
    """Mark a data folder, which is locked, and remove from it what is not whole or not of this import.

    `found` is the mark that it has. `wanted.whole` are the partitions to keep.
    """
    wanted.write_first()
    staying = {IMPORT_INCOMPLETE, *wanted.whole}
    half = []
    for each in entries_of(wanted.path):
        if each.name not in staying:
            half += [each.name] if each.is_dir() else []
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    if found is not None and found.command != wanted.command:
        report(f"{wanted.path}: removed what an interrupted import of {', '.join(found.sources)} has left")
    elif wanted.whole or half:
        removed = f"; removed, since they were not whole: {', '.join(half)}" if half else ""
        there = counted(len(wanted.whole), "partition")
        report(f"{wanted.path}: an interrupted import continues with {there} that it has{removed}")


@frozen(kw_only=True)
class Claim:
    """The node by which an import owns the nodes of a new cluster."""

    import_id: str
    cluster_id: str
    broker_epoch: int

    @classmethod
    def acquire(
        cls,
        coordination: Coordination,
        entropy: Entropy,
        mark: ImportMark,
        cluster_id: str | None,
        where: str,
        shared: bool,
    ) -> "Claim":
        """Return the claim of this import, which may have it from before.

        `shared`: several brokers have the tree. Raises `ConfigError` if it has a cluster, or a part of one from another
        import; `CoordinationError`.
        """
        while True:
            try:
                known = layout.decode_entity(coordination.get(_CLAIM).data)
                claim = cls(
                    import_id=str(known["import"]),
                    cluster_id=str(known["cluster"]),
                    broker_epoch=int(str(known["epoch"])),
                )
            except (NoNode, ValueError, KeyError):
                claim = None
            stored = stored_cluster_id(coordination)
            if claim is not None and claim.import_id == mark.import_id and stored in (None, claim.cluster_id):
                return claim
            if stored is not None:
                if claim is not None and claim.cluster_id == stored:
                    raise ConfigError(
                        f"{where} has a part of the cluster of an interrupted import: run that command again, with its "
                        "folders, or empty the service"
                    )
                raise ConfigError(f"{where} has a cluster already: an import makes one, in an empty place")
            if claim is not None:
                remove(coordination, _CLAIM)  # of an import that has written nothing else
            made = cls(
                import_id=mark.import_id,
                cluster_id=cluster_id or layout.encode_id(random_uuid(entropy)),
                broker_epoch=next_broker_epoch(coordination) if shared else ALONE_EPOCH,
            )
            with suppress(NodeExists):
                coordination.commit([CreateNode(_CLAIM, made.encoded)])

    @property
    def encoded(self) -> bytes:
        return layout.encode_entity({"import": self.import_id, "cluster": self.cluster_id, "epoch": self.broker_epoch})

    def is_held(self, coordination: Coordination) -> bool:
        """Return False if another import has taken its place."""
        with suppress(NoNode):
            return coordination.get(_CLAIM).data == self.encoded
        return False


def release_claim(coordination: Coordination) -> None:
    """Remove the claim of an import whose tree is complete."""
    remove(coordination, _CLAIM)
