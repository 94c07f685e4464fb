"""The data folders and the coordination of a stopped broker, for commands that look after them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...adapters.storage_fs import LOCK_FILE, is_in_use, look_into, open_log_dir
from ...core.log.manager.meta_properties import META_PROPERTIES
from ...core.log.names import CLASSIC_SEGMENT_FILE, SEGMENT_FILE
from ...core.logtools.verify.findings import Finding
from ...core.logtools.verify.tree_check import KnownTopics, known_topics
from ...ports.coordination import Coordination
from ...ports.errors import ConfigError
from ...ports.report import Report
from ...ports.storage import LogDir
from ...ports.values import frozen
from ..config import BrokerConfig
from .broker import open_log_dirs_of, plugin_host
from .coordination import COORDINATION_FILE, broker_backend, broker_session_request
from .memory import MemoryStorage


@contextmanager
def opened_offline(
    config: BrokerConfig, report: Report, *, to_write: bool
) -> Iterator[tuple[Sequence[LogDir], Coordination]]:
    """The data folders and the coordination of a broker that is stopped. Unless `to_write`, no file is made.

    Raises `ConfigError` for folders that are not there, `FolderLocked` while a broker has them.
    """
    missing = [path for path in config.data_dirs if not Path(path).is_dir()]
    if missing:
        raise ConfigError(f"{missing[0]} is not a data folder: it does not exist")
    with ExitStack() as closing:
        log_dirs = open_log_dirs_of(config)
        for log_dir in log_dirs:
            closing.callback(log_dir.close)
        backend, request = broker_backend(config, plugin_host(config)), broker_session_request(config, report)
        if to_write or backend.exists(request):
            coordination = backend.open(request)
        else:
            coordination = MemoryStorage(report).open_coordination()  # as empty as the file would be
        closing.callback(coordination.close)
        yield log_dirs, coordination


_MARKS = (LOCK_FILE, META_PROPERTIES, COORDINATION_FILE)


@frozen(kw_only=True)
class LogDirSelection:
    """A data folder and the chosen partitions of it; none: all of them."""

    path: Path
    partitions: tuple[str, ...] = ()

    @property
    def is_data_folder(self) -> bool:
        """False for any folder that a partition's was copied into."""
        return any((self.path / name).exists() for name in _MARKS)

    @property
    def in_use(self) -> bool:
        """True if a broker has it open now."""
        return is_in_use(self.path)

    @property
    def coordination_file(self) -> Path | None:
        """The tree of a broker that is alone; None where that is elsewhere."""
        file = self.path / COORDINATION_FILE
        return file if file.exists() else None


def select_log_dirs(paths: Sequence[Path]) -> list[LogDirSelection]:
    """Return the data folders that the paths name, or whose partitions they name. Raises `ConfigError`."""
    found: dict[Path, list[str]] = {}
    for given in paths:
        path = given.absolute()
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "does not exist"
            raise ConfigError(f"{given} {what}; give a partition's folder or a broker's data folder")
        if _has_segments(path):
            found.setdefault(path.parent, []).append(path.name)
        elif any(_has_segments(each) for each in path.iterdir() if each.is_dir()) or (path / META_PROPERTIES).exists():
            found[path] = []
        else:
            raise ConfigError(f"{given} has no segments; give a partition folder or a broker's data folder")
    return [LogDirSelection(path=path, partitions=tuple(names)) for path, names in found.items()]


def entries_of(path: Path) -> list[Path]:
    """Return what a data folder has, without the file by which it is locked."""
    return sorted(each for each in path.iterdir() if each.name != LOCK_FILE)


@frozen(kw_only=True)
class CheckedTree:
    """The topics, rows and findings of a coordination file."""

    topics: KnownTopics
    findings: list[Finding]
    rows: list[tuple[str, bytes, int]]
    is_damaged: bool
    """True if the file itself is, not only what stands in it."""


def check_tree(file: Path) -> CheckedTree:
    """Read a coordination file without a change to it, or to a process that has it open. Raises `OSError`."""
    from ...adapters.coord_embedded import look_at

    checked = look_at(file)
    remedy = "it is rewritten with what can be read; 'barnabas topics recover' finds topics again by their folders"
    findings = [
        Finding(kind="tree-damaged", file=file.name, text=text, remedy=remedy, needs_person=True)
        for text in checked.problems
    ]
    topics, wrong = known_topics([(path, data) for path, data, _ in checked.rows], file.name)
    whole = topics.whole and not findings
    return CheckedTree(
        topics=KnownTopics(topics=topics.topics, whole=whole),
        findings=findings + wrong,
        rows=checked.rows,
        is_damaged=bool(findings),
    )


def repair_tree(file: Path, checked: CheckedTree) -> None:
    """Write the file again with what could be read; the old one is kept next to it. Raises `CoordinationError`."""
    from ...adapters.coord_embedded import rewrite_file

    rewrite_file(file, checked.rows)


def _has_segments(path: Path) -> bool:
    return any(SEGMENT_FILE.match(each.name) or CLASSIC_SEGMENT_FILE.match(each.name) for each in path.iterdir())


@contextmanager
def open_selection(selection: LogDirSelection, *, to_write: bool) -> Iterator[LogDir]:
    """The folder, locked if it is to be written to and a broker might use it. Raises `FolderLocked`, `StorageError`."""
    log_dir = open_log_dir(selection.path) if to_write and selection.is_data_folder else look_into(selection.path)
    try:
        yield log_dir
    finally:
        log_dir.close()
