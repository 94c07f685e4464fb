"""kill -9 at every step of a commit that adds files and replaces one, without Spark: `sweep.py FORMAT FOLDER STEP`.

The process makes one commit and dies at a step of it; its parent checks the table and begins the next one.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from attrs import frozen
from support.tables import Rows, commit_rows
from table_kills.foreign import AT_ANY_TIME, READERS
from table_kills.loader import Steps, say, watch_iceberg
from table_kills.verdict import Offsets, faults, went_back

from barnabas.pipeline.tables.formats import open_store

_DAY = "2024-01-01"
_STEPS_MAX = 60
_TOPICS = {"a": 2}


@frozen
class Sweep:
    kills: Counter[str]
    """By format."""
    faults: list[str]


def sweep(folder: Path, formats: tuple[str, ...]) -> Sweep:
    """Kill a commit to a table of each format at its first step, at its second, and so on, until none remains."""
    kills: Counter[str] = Counter()
    found: list[str] = []
    for named in formats:
        table = folder / f"sweep-{named}"
        for _ in range(2):
            commit_rows(open_store(table, named), *_new_rows(table, named))
        for step, reached, wrong in _killed(table, named):
            kills[named] += 1
            found += [f"{named}, killed at step {step}, at {dict(reached)}: {text}" for text in wrong]
    return Sweep(kills, found)


def _killed(table: Path, named: str) -> Iterator[tuple[int, Offsets, list[str]]]:
    before: Offsets = READERS[named](table, _TOPICS)[1]
    for step in range(_STEPS_MAX):
        command = [sys.executable, "-P", "-m", "table_kills.sweep", named, str(table), str(step)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if named not in AT_ANY_TIME:
            open_store(table).finish_commit()
        seen, reached = READERS[named](table, _TOPICS)
        wrong = [*faults(seen, reached), *went_back(before, reached)]
        before = reached
        if done.returncode == 0:
            return
        yield step, reached, wrong
    raise TimeoutError(f"a commit of {named} has more than {_STEPS_MAX} steps")


def _new_rows(table: Path, named: str) -> list[Rows]:
    last = open_store(table, named).last()
    reached = last.topics["a"].next_offsets if last is not None else {}
    starts = {partition: reached.get(str(partition), 0) for partition in range(_TOPICS["a"])}
    return [Rows("a", _DAY, range(start, start + 5), partition) for partition, start in starts.items()]


def main() -> None:
    named, table, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    steps = Steps()
    watch_iceberg(steps)
    store = open_store(table, checkpoint=steps)
    with store.locked():
        store.recover()
    old = store.files()[0].name
    columns = pq.ParquetFile(table / old).read(["partition", "offset"]).to_pydict()
    by_partition = {
        p: [o for q, o in zip(columns["partition"], columns["offset"], strict=True) if q == p] for p in (0, 1)
    }
    again = [Rows("a", _DAY, offsets, partition) for partition, offsets in by_partition.items() if offsets]
    rows = _new_rows(table, named)
    steps.begin(step)
    commit_rows(store, *again, *rows, removed=[old])
    say(event="done")


if __name__ == "__main__":
    main()
