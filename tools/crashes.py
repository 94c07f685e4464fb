"""Opens what recorded work has left on a disk after a crash at every moment of it: what `make crashes` runs.

    python tools/crashes.py [--points N] [--first SEED] [--jobs N]

A seed that fails is reported at once, with the command that plays it again, and makes the exit code 1.
"""

import argparse
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

TESTS = Path(__file__).resolve().parents[1] / "tests"
TABLE_EVERY = 20
"""One seed of this number each is of a table, of remote storage, of an import and of retention; others are of logs."""
FAILURES_MAX = 20


def play(seed: int, points: int) -> tuple[int, str]:
    """(how many crashes were tried, what was found)."""
    sys.path.insert(0, str(TESTS))
    from crashes.import_check import try_import_crashes
    from crashes.log_check import try_crashes, try_retention_crashes
    from crashes.quick_folder import quick_folder
    from crashes.table_check import try_table_crashes
    from crashes.tier_check import try_tier_crashes

    others = {
        TABLE_EVERY - 1: try_table_crashes,
        TABLE_EVERY // 2 - 1: try_tier_crashes,
        TABLE_EVERY // 4 - 1: try_import_crashes,
        TABLE_EVERY // 5 - 1: try_retention_crashes,
    }
    attempt = others.get(seed % TABLE_EVERY, try_crashes)
    # A story of an import depends on the remainders of its number.
    number = seed // TABLE_EVERY if attempt is try_import_crashes else seed
    with quick_folder() as folder:
        try:
            return attempt(number, folder, points), ""
        except Exception as error:  # noqa: BLE001  # the parent reports it
            notes = "; ".join(getattr(error, "__notes__", ()))
            return 0, f"{type(error).__name__}: {' '.join(str(error).split())[:400]} ({notes})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    began = time.monotonic()
    tried, played, failed = _play_all(chosen.points, chosen.first, chosen.jobs)
    seconds = time.monotonic() - began
    sys.stdout.write(f"{tried} crashes of {played} stories in {seconds:.0f} s; {failed or 'none'} failed\n")
    return 1 if failed else 0


def _play_all(points: int, first: int, jobs: int) -> tuple[int, int, int]:
    tried = played = failed = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    seeds = count(first)
    under_way: dict[Future[tuple[int, str]], int] = {}
    with (
        Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
        ProcessPoolExecutor(jobs) as pool,
    ):
        task = progress.add_task("crashes", total=points)
        while True:
            while tried < points and failed < FAILURES_MAX and len(under_way) < jobs:
                seed = next(seeds)
                under_way[pool.submit(play, seed, points)] = seed
            if not under_way:
                return tried, played, failed
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                seed = under_way.pop(done)
                found, why = done.result()
                tried, played = tried + found, played + 1
                if why:
                    failed += 1
                    progress.console.print(f"{seed}: {why}", markup=False)
                    progress.console.print(f"  again: make crashes FIRST={seed} POINTS=1000", markup=False)
                progress.update(task, completed=min(tried, points), description=f"crashes ({failed} failed)")


if __name__ == "__main__":
    sys.exit(main())
