"""Play many seeds of the stories of `tests/simulation`, on all cores: what `make sim` runs.

    python tools/simulate.py [--seeds N | --minutes N] [--first SEED | --fresh] [--story NAME] [--jobs N] [--record]

A seed that fails is reported at once, with the command that plays it again, and makes the exit code 1. So does a rare
state (a fault, an act of an operator, a kind of election...) that no seed of a long run has reached: it is not tested.

--minutes play the stories in turn, and begin no seeds after this time.
--fresh   begin with the first seed that was never recorded.
--record  add what was played to tests/simulation/seeds.json.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

TESTS = Path(__file__).resolve().parents[1] / "tests"
OTHERS_SHARE = 10
"""The stories of single brokers and of the classic generation play a tenth as many seeds as those of clusters."""
STORIES = ["cluster", "billing", "transactions", "restore", "recreate", "durable", "group", "classic"]
CHUNK = 5
FAILURES_MAX = 20
LONG = 200
"""A run of this number of cluster seeds, or more, must reach every rare state."""
RECORD = TESTS / "simulation" / "seeds.json"
"""By story: how many seeds were played since the record began, how many of them failed, and the next fresh one."""

Story = Callable[[int], Counter[str]]
"""Plays a seed, and returns how often it reached which rare state."""


def stories() -> dict[str, Story]:
    """Return the function that plays a seed, by story."""
    sys.path.insert(0, str(TESTS))
    from simulation.billing_story import BillingStory
    from simulation.cluster_story import ClusterStory
    from simulation.recreate_story import RecreateStory
    from simulation.restore_story import RestoreStory
    from simulation.test_broker_story import DurableStory
    from simulation.test_classic_story import ClassicStory
    from simulation.test_group_story import GroupStory
    from simulation.transaction_story import TransactionStory

    def of_cluster(make: Callable[[int], ClusterStory]) -> Story:
        def play(seed: int) -> Counter[str]:
            story = make(seed)
            story.play()
            return story.world.reached

        return play

    def of_others(make: Callable[[int], Any]) -> Story:
        def play(seed: int) -> Counter[str]:
            make(seed).play()
            return Counter()

        return play

    return {
        "cluster": of_cluster(ClusterStory),
        "billing": of_others(BillingStory),
        "transactions": of_cluster(TransactionStory),
        "restore": of_cluster(RestoreStory),
        "recreate": of_cluster(RecreateStory),
        "durable": of_others(lambda seed: DurableStory(seed, log_flush_interval_messages=1)),
        "group": of_others(GroupStory),
        "classic": of_others(ClassicStory),
    }


def rare_states() -> Sequence[str]:
    """Return the rare states that the story of a cluster must reach."""
    sys.path.insert(0, str(TESTS))
    from simulation.swarm import RARE_STATES

    return RARE_STATES


def be_quiet() -> None:
    """Disable logging, in a process of this tool's own: log lines of clients about faults are expected."""
    logging.disable(logging.CRITICAL)


class Played:
    """The outcome of some seeds of one story."""

    def __init__(
        self, name: str, count: int, failed: Sequence[tuple[int, str]], reached: Counter[str], seeds: Counter[str]
    ) -> None:
        self.name = name
        self.count = count
        self.failed = failed
        """The seeds that failed, and why."""
        self.reached = reached
        """The number of times that each rare state was reached."""
        self.seeds = seeds
        """The number of seeds by which it was reached."""


def play(name: str, seeds: Sequence[int]) -> Played:
    """Play these seeds of a story."""
    story = stories()[name]
    failed = []
    reached: Counter[str] = Counter()
    by: Counter[str] = Counter()
    for seed in seeds:
        try:
            found = story(seed)
        except Exception as error:  # noqa: BLE001  # reported by the parent
            failed.append((seed, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"))
            continue
        reached += found
        by.update(found.keys())
    return Played(name, len(seeds), failed, reached, by)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--minutes", type=float)
    first = parser.add_mutually_exclusive_group()
    first.add_argument("--first", type=int, default=0)
    first.add_argument("--fresh", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--story", choices=STORIES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    names = [chosen.story] if chosen.story else STORIES
    record = _recorded()
    firsts = {name: record[name]["next"] if chosen.fresh else chosen.first for name in names}
    began = time.monotonic()
    if chosen.minutes is None:
        whole = ("cluster", "billing", chosen.story)
        planned = {name: chosen.seeds if name in whole else -(-chosen.seeds // OTHERS_SHARE) for name in names}
        work = chain.from_iterable(_chunks(name, firsts[name], seeds) for name, seeds in planned.items())
        played = _play_all(work, sum(planned.values()), chosen.jobs)
    else:
        played = _play_all(_in_turn(firsts, began + 60 * chosen.minutes), None, chosen.jobs)
    failed = sum(len(each.failed) for each in played)
    counts = {name: sum(each.count for each in played if each.name == name) for name in names}
    played_seeds = ", ".join(f"{seeds} of {name} from {firsts[name]}" for name, seeds in counts.items())
    sys.stdout.write(f"{played_seeds} in {time.monotonic() - began:.0f} s; {failed or 'none'} failed\n")
    if chosen.record and failed < FAILURES_MAX:
        for name, seeds in counts.items():
            known = record[name]
            known["played"] += seeds
            known["failed"] += sum(len(each.failed) for each in played if each.name == name)
            known["next"] = max(known["next"], firsts[name] + seeds)
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
    unreached = _show_reached(played, counts.get("cluster", 0))
    return 1 if failed or unreached else 0


def _recorded() -> dict[str, dict[str, int]]:
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: known.get(name, {"played": 0, "failed": 0, "next": 0}) for name in STORIES}


def _show_reached(played: Iterable[Played], clusters: int) -> bool:
    """Write how often each rare state was reached; True if a long run missed some."""
    reached: Counter[str] = Counter()
    seeds: Counter[str] = Counter()
    for each in played:
        if each.name == "cluster":
            reached += each.reached
            seeds += each.seeds
    if not clusters:
        return False
    missing = [state for state in rare_states() if not reached[state]]
    for state in sorted({*reached, *missing}):
        sys.stdout.write(f"  {state:<60} {reached[state]:>9,} times, by {seeds[state]:>7,} seeds\n")
    if missing and clusters >= LONG:
        sys.stdout.write(f"no seed of {clusters} has reached: {', '.join(missing)}\n")
        return True
    return False


def _chunks(name: str, first: int, seeds: int) -> Iterator[tuple[str, Sequence[int]]]:
    for start in range(first, first + seeds, CHUNK):
        yield name, range(start, min(start + CHUNK, first + seeds))


def _in_turn(firsts: Mapping[str, int], until: float) -> Iterator[tuple[str, Sequence[int]]]:
    """Seeds of one story after the other, until this time by the monotonic clock."""
    for number in count():
        for name, first in firsts.items():
            if time.monotonic() >= until:
                return
            start = first + number * CHUNK
            yield name, range(start, start + CHUNK)


def _play_all(work: Iterator[tuple[str, Sequence[int]]], total: int | None, jobs: int) -> list[Played]:
    """Play all, or until too many have failed."""
    failed = 0
    played: list[Played] = []
    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(jobs, initializer=be_quiet) as pool,
        Progress(*bars, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("seeds", total=total)
        under_way: dict[Future[Played], tuple[str, Sequence[int]]] = {}
        while True:
            for name, seeds in islice(work, 2 * jobs - len(under_way)):
                under_way[pool.submit(play, name, seeds)] = name, seeds
            if not under_way:
                return played
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                name, seeds = under_way.pop(done)
                played.append(done.result())
                for seed, why in played[-1].failed:
                    failed += 1
                    progress.console.print(f"{name} {seed}: {why}", markup=False)
                    progress.console.print(f"  again: make sim STORY={name} FIRST={seed} SEEDS=1", markup=False)
                progress.advance(task, len(seeds))
                progress.update(task, description=f"seeds ({failed} failed)")
            if failed >= FAILURES_MAX:
                sys.stdout.write(f"{failed} failed: the run stops\n")
                pool.shutdown(cancel_futures=True)
                return played


if __name__ == "__main__":
    sys.exit(main())
