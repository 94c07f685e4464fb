"""Loads into a table, recorded; after a crash at any moment each is in effect as a whole, or not at all."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen
from crashes.examine_crashes import examine_crashes

from barnabas.adapters.system import SeededEntropy
from barnabas.pipeline.tables.commits import CommitLog, LoggedCommit
from barnabas.pipeline.tables.state import TopicState
from barnabas.testing.crashes import Crash, Recording


@frozen
class Loading:
    """A load is about to be committed; afterwards the table has these files."""

    number: int
    files: Mapping[str, bytes]


@frozen
class Loaded:
    """The load has reported success."""

    number: int


class TableStory:
    """One seed, played."""

    def __init__(self, seed: int, folder: Path, *, loads: int = 4) -> None:
        self._entropy = SeededEntropy(f"table/{seed}")
        self._loads = loads
        self._files: dict[str, bytes] = {}
        folder.mkdir()
        self.recording = Recording(folder)

    def play(self) -> None:
        with self.recording as recording:
            for _ in range(self._loads):
                self._load(recording)

    def _load(self, recording: Recording) -> None:
        log = CommitLog(recording.folder)
        with log.locked():
            log.recover()
            number, staging = log.begin_commit()
            new = {}
            for part in range(1 + self._entropy.below(3)):
                name = f"topic=t/day=2026-11-{20 + self._entropy.below(2)}/part-{number:06d}-{part:05d}.parquet"
                new[name] = self._entropy.token(self._entropy.below(3_000))
                path = staging / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(new[name])
            removed = [name for name in self._files if self._entropy.below(3) == 0]
            if self._entropy.below(5) == 0:  # it dies before its commit
                return
            self._files = {name: data for name, data in self._files.items() if name not in removed} | new
            recording.note(Loading(number, dict(self._files)))
            log.commit(_commit(number, staging.name, list(new), removed))
            recording.note(Loaded(number))


def _commit(number: int, staging: str, files: list[str], removed: list[str]) -> LoggedCommit:
    topics = {"t": TopicState(next_offsets={"0": number})}
    return LoggedCommit(
        number=number,
        staging=staging,
        created_ms=0,
        topics=topics,
        ranges=[],
        rows=1,
        files=files,
        removed=removed,
    )


def try_table_crashes(seed: int, folder: Path, points: int) -> int:
    """Play a story and examine at most `points` crashes of it; return how many there were."""
    story = TableStory(seed, folder / "recorded")
    story.play()
    return examine_crashes(story.recording, seed, folder / "left", points, _examine)


def _examine(place: Path, crash: Crash) -> None:
    noted = crash.noted
    possible = {0: dict[str, bytes]()} | {each.number: dict(each.files) for each in noted if isinstance(each, Loading)}
    observed = max((each.number for each in noted if isinstance(each, Loaded)), default=0)
    seen = []
    for _ in range(2):
        log = CommitLog(place)
        with log.locked():
            log.recover()
        assert not log.unfinished()
        last = log.last()
        number = last.number if last is not None else 0
        assert number >= observed, f"lost: load {observed} was done, the table is at {number}"
        assert _content(place) == possible[number], f"torn: not what load {number} has left"
        seen.append(number)
    assert seen[0] == seen[1]
    _load_once_more(place, possible[seen[0]])


def _load_once_more(place: Path, before: Mapping[str, bytes]) -> None:
    log = CommitLog(place)
    with log.locked():
        number, staging = log.begin_commit()
        name = "topic=t/day=2026-12-01/part.parquet"
        (staging / name).parent.mkdir(parents=True)
        (staging / name).write_bytes(b"after the crash")
        log.commit(_commit(number, staging.name, [name], []))
    assert _content(place) == {**before, name: b"after the crash"}


def _content(place: Path) -> dict[str, bytes]:
    """Return the files that readers find: they ignore folders with an underscore."""
    files = (path for path in place.rglob("*") if path.is_file())
    named = {path.relative_to(place).as_posix(): path for path in files}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith("_")}
