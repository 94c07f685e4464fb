"""A disk on which operations are played, and the states that may be found on it after a power cut.

File systems differ in what they keep of calls without a sync. Two models are tried (see docs/reliability.md):

journalled: as ext4 (data=ordered) and XFS. All changes of names and all cuts go into one journal in their order, and
            a crash leaves the journal up to some moment. `fsync` of a file makes the journal durable up to the last
            change of that file, `fsync` of a folder up to the last change of a name in it. Bytes that were written and
            not synced are there or not, block by block.
loose:      only what POSIX guarantees. Each folder keeps its own names in their order, `fsync` of a file does not cover
            its name, each file its own cuts and bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ...ports.entropy import Entropy
from .operations import ROOT, Cut, Made, Moved, Note, Operation, Removed, Synced, Wrote

BLOCK = 512
"""A block is there as a whole or not, but for the last one that was being written. Small, as the files of tests are."""

_NameOp = Made | Moved | Removed
_Names = dict[int, dict[str, int]]


class Left:
    """One state after a crash: the content of each file by its path below the folder, and all folders there."""

    __slots__ = ("files", "folders", "loose")

    def __init__(self, files: Mapping[str, bytes], folders: Sequence[str], *, loose: bool = False) -> None:
        self.files = files
        self.folders = folders
        self.loose = loose
        """True if only a file system that keeps no order between folders leaves this."""

    @property
    def key(self) -> int:
        """A hash of the content: equal contents have equal keys."""
        return hash((frozenset(self.files.items()), frozenset(self.folders)))

    def write_to(self, folder: Path) -> None:
        """Make it again, below a folder that is empty or missing."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.folders:
            (folder / name).mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


class _Node:
    """A file as the platters are known to have it, and what came later."""

    __slots__ = ("_whole", "later", "synced")

    def __init__(self, synced: bytes) -> None:
        self.synced = synced
        self.later: list[tuple[int, Wrote | Cut]] = []
        self._whole: bytes | None = None

    def add(self, index: int, operation: Wrote | Cut) -> None:
        self.later.append((index, operation))
        self._whole = None

    def whole(self) -> bytes:
        """Return all of it, as programs see it."""
        if self._whole is None:
            self._whole = bytes(_played(self.synced, [op for _, op in self.later]))
        return self._whole

    def sync(self) -> None:
        self.synced = self.whole()
        self.later.clear()


def _played(content: bytes, operations: Sequence[Wrote | Cut]) -> bytearray:
    data = bytearray(content)
    for op in operations:
        if isinstance(op, Cut):
            del data[op.size :]
        else:
            data.extend(bytes(max(0, op.position - len(data))))
            data[op.position : op.position + len(op.data)] = op.data
    return data


def _changed(names: _Names, op: _NameOp, within: Callable[[int], bool]) -> None:
    """Do what an operation does to the names of the folders that `within` admits."""
    if isinstance(op, Made):
        if within(op.folder):
            names.setdefault(op.folder, {})[op.name] = op.node
        if op.is_folder:
            names.setdefault(op.node, {})
    elif isinstance(op, Removed):
        if within(op.folder):
            names.setdefault(op.folder, {}).pop(op.name, None)
    else:
        if within(op.folder) and names.setdefault(op.folder, {}).get(op.name) == op.node:
            del names[op.folder][op.name]
        if within(op.to_folder):
            names.setdefault(op.to_folder, {})[op.to_name] = op.node


def _folders_of(op: _NameOp) -> tuple[int, ...]:
    return (op.folder, op.to_folder) if isinstance(op, Moved) else (op.folder,)


class Disk:
    """Play operations with `play`, and ask for what may be `left` at any moment."""

    def __init__(self) -> None:
        self.played = 0
        self._files: dict[int, _Node] = {}
        self._journal: list[tuple[int, _NameOp]] = []
        """Changes of names behind `_journalled`, in order."""
        self._journalled = 0
        """The journal is durable up to this operation."""
        self._names: _Names = {ROOT: {}}
        """The names as the journal has them up to there."""
        self._loose: list[tuple[int, _NameOp, set[int]]] = []
        """Changes of names, and in which of their folders they are not durable."""
        self._loose_names: _Names = {ROOT: {}}

    def play(self, operation: Operation) -> None:
        self.played += 1
        index = self.played
        match operation:
            case Note():
                return
            case Wrote() | Cut():
                self._files[operation.node].add(index, operation)
            case Synced():
                self._sync(operation.node)
            case _:
                if isinstance(operation, Made) and not operation.is_folder and operation.node not in self._files:
                    self._files[operation.node] = _Node(operation.content)
                self._journal.append((index, operation))
                self._loose.append((index, operation, set(_folders_of(operation))))
                if isinstance(operation, Made) and operation.is_folder:
                    self._loose_names.setdefault(operation.node, {})

    def _sync(self, number: int) -> None:
        node = self._files.get(number)
        if node is None:
            concerned = [index for index, op in self._journal if number in _folders_of(op) or _node(op) == number]
            self._sync_folder(number)
        elif node.later:
            concerned = [self.played]
        else:
            concerned = [index for index, op in self._journal if _node(op) == number]
        self._journalled = max(self._journalled, *concerned, 0)
        while self._journal and self._journal[0][0] <= self._journalled:
            _changed(self._names, self._journal.pop(0)[1], lambda _: True)
        if node is not None:
            node.sync()

    def _sync_folder(self, number: int) -> None:
        waiting = []
        for index, op, folders in self._loose:
            if number in folders:
                _changed(self._loose_names, op, lambda folder: folder == number)
                folders.discard(number)
            if folders:
                waiting.append((index, op, folders))
        self._loose = waiting

    # --- what is left

    def left(self, entropy: Entropy, more: int, *, loose: bool = True) -> Iterator[Left]:
        """Yield states that may be found now: the extremes of what is possible, then `more` random ones. Some may be
        equal.
        """
        now = self.played
        yield self._tree(self._names_at(now), lambda node: node.whole())
        nothing = lambda node: _surviving_bytes(node, now, lambda _base, _whole: None)  # noqa: E731
        yield self._tree(self._names_at(now), nothing)
        durable = self._journalled
        yield self._tree(
            self._names_at(durable), lambda node: _surviving_bytes(node, durable, lambda _base, _whole: None)
        )
        for _ in range(more):
            yield self._left_loosely(entropy) if loose and entropy.below(3) == 0 else self._left_in_order(entropy)

    def _left_in_order(self, entropy: Entropy) -> Left:
        now, durable = self.played, self._journalled
        upto = durable + entropy.below(now - durable + 1) if entropy.below(2) else now
        lose = lambda base, whole: _torn(base, whole, entropy)  # noqa: E731
        return self._tree(self._names_at(upto), lambda node: _surviving_bytes(node, upto, lose))

    def _left_loosely(self, entropy: Entropy) -> Left:
        names = {folder: dict(entries) for folder, entries in self._loose_names.items()}
        bounds: dict[int, int] = {}
        for index, op, folders in self._loose:
            for folder in folders:
                if folder not in bounds:
                    bounds[folder] = entropy.below(self.played + 1)
            # A move from one folder to another is in both or in none.
            if all(index <= bounds[folder] for folder in folders):
                _changed(names, op, folders.__contains__)
            else:
                bounds.update({folder: min(bounds[folder], index - 1) for folder in folders})
        lose = lambda base, whole: _torn(base, whole, entropy)  # noqa: E731
        return self._tree(names, lambda node: _surviving_bytes(node, entropy.below(self.played + 1), lose), loose=True)

    def _names_at(self, upto: int) -> _Names:
        names = {folder: dict(entries) for folder, entries in self._names.items()}
        for index, op in self._journal:
            if index <= upto:
                _changed(names, op, lambda _: True)
        return names

    def _tree(self, names: _Names, content: Callable[[_Node], bytes], *, loose: bool = False) -> Left:
        files: dict[str, bytes] = {}
        folders: list[str] = []
        waiting = [("", ROOT)]
        while waiting:
            path, number = waiting.pop()
            for name, node in names[number].items():
                if node in self._files:
                    file = self._files[node]
                    files[path + name] = content(file) if file.later else file.synced
                else:
                    folders.append(path + name)
                    waiting.append((f"{path}{name}/", node))
        return Left(files, sorted(folders), loose=loose)


def _node(op: _NameOp) -> int | None:
    return None if isinstance(op, Removed) else op.node


def _surviving_bytes(node: _Node, upto: int, lose: Callable[[bytes, bytes], bytes | None]) -> bytes:
    """Return the content up to an operation: cuts count, of the bytes written later `lose` decides (None: all are
    lost)."""
    operations = [op for index, op in node.later if index <= upto]
    base = bytes(_played(node.synced, [op for op in operations if isinstance(op, Cut) and op.size < len(node.synced)]))
    whole = bytes(_played(node.synced, operations))
    surviving = lose(base, whole) if base != whole else whole
    return base if surviving is None else surviving


def _torn(base: bytes, whole: bytes, entropy: Entropy) -> bytes | None:
    """Return a file of which `base` was durable and `whole` was written."""
    kind = entropy.below(5)
    if kind == 0:
        return None
    if kind == 1:
        return whole
    grown = len(whole) - len(base)
    end = len(base) + entropy.below(grown + 1) if grown > 0 else len(whole)
    if kind == 2:
        return whole[:end]  # cut at any byte
    if kind == 3:
        return whole[:end] + bytes(len(whole) - end)  # the size is there, the bytes are not
    blocks = bytearray(whole)
    for start in range(0, len(whole), BLOCK):
        if entropy.below(2):
            old = base[start : start + BLOCK]
            blocks[start : start + BLOCK] = (old + bytes(BLOCK))[: len(whole[start : start + BLOCK])]
    return bytes(blocks)
