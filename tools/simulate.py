"""Plays many seeds of the stories of `tests/simulation`, on all cores: what `make sim` runs.

    python tools/simulate.py [--seeds N] [--first SEED] [--story NAME] [--jobs N]

A seed that fails is told at once, with the command that plays it again, and makes the exit code 1.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, islice
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

TESTS = Path(__file__).resolve().parents[1] / "tests"
OTHERS_SHARE = 10
"""The stories of single brokers and of the classic generation play a tenth as many seeds as those of clusters."""
STORIES = ["cluster", "billing", "transactions", "durable", "group", "classic"]
CHUNK = 5
FAILURES_MAX = 20


def stories() -> dict[str, Callable[[int], object]]:
    """By name, what plays a seed."""
    sys.path.insert(0, str(TESTS))
    from simulation.billing_story import BillingStory
    from simulation.cluster_story import ClusterStory
    from simulation.test_broker_story import DurableStory
    from simulation.test_classic_story import ClassicStory
    from simulation.test_group_story import GroupStory
    from simulation.transaction_story import TransactionStory

    return {
        "cluster": lambda seed: ClusterStory(seed).play(),
        "billing": lambda seed: BillingStory(seed).play(),
        "transactions": lambda seed: TransactionStory(seed).play(),
        "durable": lambda seed: DurableStory(seed, log_flush_interval_messages=1).play(),
        "group": lambda seed: GroupStory(seed).play(),
        "classic": lambda seed: ClassicStory(seed).play(),
    }


def be_quiet() -> None:
    """In a process of this tool's own: what clients log of their troubles is no news."""
    logging.disable(logging.CRITICAL)


def play(name: str, seeds: Sequence[int]) -> list[tuple[int, str]]:
    """The seeds that failed, and why."""
    story = stories()[name]
    failed = []
    for seed in seeds:
        try:
            story(seed)
        except Exception as error:  # noqa: BLE001  # told by the parent
            failed.append((seed, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"))
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--story", choices=STORIES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    names = [chosen.story] if chosen.story else STORIES
    whole = ("cluster", "billing", chosen.story)
    counts = {name: chosen.seeds if name in whole else -(-chosen.seeds // OTHERS_SHARE) for name in names}
    work = chain.from_iterable(_chunks(name, chosen.first, count) for name, count in counts.items())
    began = time.monotonic()
    failed = _play_all(work, sum(counts.values()), chosen.jobs)
    told = ", ".join(f"{count} of {name}" for name, count in counts.items())
    sys.stdout.write(f"{told} in {time.monotonic() - began:.0f} s; {failed or 'none'} failed\n")
    return 1 if failed else 0


def _chunks(name: str, first: int, count: int) -> Iterator[tuple[str, Sequence[int]]]:
    for start in range(first, first + count, CHUNK):
        yield name, range(start, min(start + CHUNK, first + count))


def _play_all(work: Iterator[tuple[str, Sequence[int]]], total: int, jobs: int) -> int:
    """Returns how many failed."""
    failed = 0
    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(jobs, initializer=be_quiet) as pool,
        Progress(*bars, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("seeds", total=total)
        under_way: dict[Future[list[tuple[int, str]]], tuple[str, Sequence[int]]] = {}
        while True:
            for name, seeds in islice(work, 2 * jobs - len(under_way)):
                under_way[pool.submit(play, name, seeds)] = name, seeds
            if not under_way:
                return failed
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                name, seeds = under_way.pop(done)
                for seed, why in done.result():
                    failed += 1
                    progress.console.print(f"{name} {seed}: {why}", markup=False)
                    progress.console.print(f"  again: make sim STORY={name} FIRST={seed} SEEDS=1", markup=False)
                progress.advance(task, len(seeds))
                progress.update(task, description=f"seeds ({failed} failed)")
            if failed >= FAILURES_MAX:
                sys.stdout.write(f"{failed} failed: no more are played\n")
                pool.shutdown(cancel_futures=True)
                return failed


if __name__ == "__main__":
    sys.exit(main())
