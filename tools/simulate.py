"""Play many seeds of the stories of `tests/simulation`, on all cores: what `make sim` runs.

    python tools/simulate.py [--seeds N | --minutes N | --rare] [--first SEED | --fresh] [--story NAME] [--jobs N]
                             [--record]

A seed that fails is reported at once, with the command that plays it again, and makes the exit code 1. So does a rare
state (a fault, an act of an operator, a kind of election...) that no seed of a long run has reached: it is not tested.

--minutes play the stories in turn, and begin no seeds after this time.
--fresh   begin with the first seed that was never recorded.
--rare    play the few seeds of tests/simulation/rare_seeds.json, which reach all rare states between them.
--record  add what was played to tests/simulation/seeds.json, after each 50 seeds; of a long run that reaches all rare
          states of a story, write the few seeds that do so to rare_seeds.json.

Where the output is no terminal, a line is written after each hundred seeds. SIGTERM ends a run at once; what was
recorded until then stays.
"""

import argparse
import gc
import json
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import chain, count, cycle, islice
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

TESTS = Path(__file__).resolve().parents[1] / "tests"
OTHERS_SHARE = 10
"""The stories of single brokers and of the classic generation play a tenth as many seeds as those of clusters."""
STORIES = [
    "cluster",
    "billing",
    "transactions",
    "restore",
    "recreate",
    "near",
    "partitions",
    "tiering",
    "security",
    "share",
    "durable",
    "group",
    "consumer-group",
    "classic",
]
CHUNK = 5
RECORD_EVERY = 50
"""The number of seeds after which a run with --record writes what was played."""
LINE_EVERY = 100
"""The number of seeds after which a run whose output is no terminal writes a line."""
FAILURES_MAX = 20
LONG = 200
"""A run of this number of cluster seeds, or more, must reach every rare state."""
RECORD = TESTS / "simulation" / "seeds.json"
"""By story: how many seeds were played since the record began, how many of them failed, and the next fresh one."""
RARE_SEEDS = TESTS / "simulation" / "rare_seeds.json"
"""By story: seeds that reach all of its rare states between them."""

Story = Callable[[int], Counter[str]]
"""Plays a seed, and returns how often it reached which rare state."""


def stories() -> dict[str, Story]:
    """Return the function that plays a seed, by story."""
    sys.path.insert(0, str(TESTS))
    from simulation.billing_story import BillingStory
    from simulation.cluster_story import ClusterStory
    from simulation.consumer_group_story import ConsumerGroupStory
    from simulation.group_story import GroupStory
    from simulation.near_story import NearStory
    from simulation.partitions_story import PartitionsStory
    from simulation.recreate_story import RecreateStory
    from simulation.restore_story import RestoreStory
    from simulation.security_story import SecurityStory
    from simulation.share_story import ShareStory
    from simulation.test_broker_story import DurableStory
    from simulation.test_classic_story import ClassicStory
    from simulation.tiering_story import TieringStory
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
        "near": of_cluster(NearStory),
        "partitions": of_cluster(PartitionsStory),
        "tiering": of_cluster(TieringStory),
        "security": of_cluster(SecurityStory),
        "share": of_cluster(ShareStory),
        "durable": of_others(lambda seed: DurableStory(seed, log_flush_interval_messages=1)),
        "group": of_others(GroupStory),
        "consumer-group": of_others(ConsumerGroupStory),
        "classic": of_others(ClassicStory),
    }


def rare_states() -> Mapping[str, Sequence[str]]:
    """Return the rare states that the seeds of a story must reach, by story."""
    sys.path.insert(0, str(TESTS))
    from simulation.swarm import RARE_STATES

    return RARE_STATES


def prepare_worker(cores: SimpleQueue[int]) -> None:
    """Prepare a process of this tool's own. Logging is off: log lines of clients about faults are expected.

    The clients of a seed are threads of which one runs at a time: on one core they hand over faster (a seed takes 18 %
    less time). Modules live as long as the process, and a seed makes many short-lived objects: collect cycles more
    rarely.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cores.get()})
    logging.disable(logging.CRITICAL)
    stories()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


class Played:
    """The outcome of some seeds of one story."""

    def __init__(
        self, name: str, seeds: Sequence[int], failed: Sequence[tuple[int, str]], reached: Mapping[int, Counter[str]]
    ) -> None:
        self.name = name
        self.seeds = seeds
        self.failed = failed
        """The seeds that failed, and why."""
        self.reached = reached
        """By seed: the number of times that it reached each rare state."""

    @property
    def count(self) -> int:
        """The number of seeds."""
        return len(self.seeds)


def play(name: str, seeds: Sequence[int]) -> Played:
    """Play these seeds of a story."""
    story = stories()[name]
    failed = []
    reached: dict[int, Counter[str]] = {}
    for seed in seeds:
        try:
            reached[seed] = +story(seed)
        except Exception as error:  # noqa: BLE001  # reported by the parent
            failed.append((seed, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"))
    return Played(name, seeds, failed, reached)


class Recorder:
    """Adds what was played to the record files while a run continues.

    Chunks of seeds end in any order: a story's seeds count once all seeds before them were played, so that a run which
    continues at the recorded seed leaves none out. What other processes have recorded meanwhile stays.
    """

    def __init__(self, firsts: Mapping[str, int], states: Mapping[str, Sequence[str]]) -> None:
        """`firsts`: the first seed of each story; `states`: the rare states by story."""
        self._next = dict(firsts)
        self._states = states
        self._waiting: dict[tuple[str, int], Played] = {}
        """By story and first seed: the chunks before which others are missing."""
        self._unsaved: list[Played] = []
        self._reached: dict[str, dict[int, Counter[str]]] = {name: {} for name in states}
        self._rare_saved: dict[str, int] = {}
        """By story: how many seeds were played when its few seeds were written last."""

    def add(self, played: Played) -> None:
        """Take a chunk, and write the record when enough seeds are not in it yet."""
        name = played.name
        self._waiting[name, played.seeds[0]] = played
        while (each := self._waiting.pop((name, self._next[name]), None)) is not None:
            self._next[name] += each.count
            self._unsaved.append(each)
            if name in self._reached:
                self._reached[name].update(each.reached)
        if sum(each.count for each in self._unsaved) >= RECORD_EVERY:
            self.save()

    def save(self) -> None:
        """Write what is not recorded yet."""
        unsaved, self._unsaved = self._unsaved, []
        if not unsaved:
            return
        record = _recorded()
        for each in unsaved:
            known = record[each.name]
            known["played"] += each.count
            known["failed"] += len(each.failed)
            known["next"] = max(known["next"], each.seeds[-1] + 1)
        _replace(RECORD, json.dumps(record, indent=2) + "\n")
        for name in {each.name for each in unsaved} & self._reached.keys():
            by_seed = self._reached[name]
            # To choose the few seeds takes seconds in a run of thousands.
            if len(by_seed) >= 2 * self._rare_saved.get(name, 0) and _save_few(name, self._states[name], by_seed):
                self._rare_saved[name] = len(by_seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--seeds", type=int, default=10_000)
    amount.add_argument("--minutes", type=float)
    amount.add_argument("--rare", action="store_true")
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
    if chosen.rare and not RARE_SEEDS.exists():
        parser.error(f"--rare: {RARE_SEEDS.name} is not recorded yet; run --seeds {LONG} --record for each story first")
    rare = json.loads(RARE_SEEDS.read_text()) if chosen.rare else {}
    recorder = Recorder(firsts, rare_states()) if chosen.record and not chosen.rare else None
    if chosen.rare:
        firsts = {name: min(rare.get(name, [0]), default=0) for name in names}
        work = chain.from_iterable(_in_chunks(name, rare.get(name, [])) for name in names)
        played = _play_all(work, sum(len(rare.get(name, [])) for name in names), chosen.jobs, recorder)
    elif chosen.minutes is None:
        whole = ("cluster", "billing", chosen.story)
        planned = {name: chosen.seeds if name in whole else -(-chosen.seeds // OTHERS_SHARE) for name in names}
        work = chain.from_iterable(_chunks(name, firsts[name], seeds) for name, seeds in planned.items())
        played = _play_all(work, sum(planned.values()), chosen.jobs, recorder)
    else:
        played = _play_all(_in_turn(firsts, began + 60 * chosen.minutes), None, chosen.jobs, recorder)
    failed = sum(len(each.failed) for each in played)
    counts = {name: sum(each.count for each in played if each.name == name) for name in names}
    played_seeds = ", ".join(f"{seeds} of {name} from {firsts[name]}" for name, seeds in counts.items())
    sys.stdout.write(f"{played_seeds} in {time.monotonic() - began:.0f} s; {failed or 'none'} failed\n")
    if recorder is not None and failed < FAILURES_MAX:
        recorder.save()
    unreached = False
    for name, states in rare_states().items():
        if counts.get(name):
            is_long = chosen.rare or counts[name] >= LONG
            unreached |= _show_reached(name, states, played, is_long, records=recorder is not None)
    return 1 if failed or unreached else 0


def _recorded() -> dict[str, dict[str, int]]:
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: known.get(name, {"played": 0, "failed": 0, "next": 0}) for name in STORIES}


def _replace(path: Path, content: str) -> None:
    """Write a file that is whole at every moment."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(content)
    fresh.replace(path)


def _show_reached(name: str, states: Sequence[str], played: Iterable[Played], is_long: bool, *, records: bool) -> bool:
    """Write how often the seeds of a story reached each rare state; return True if a long run missed some."""
    by_seed = {seed: found for each in played if each.name == name for seed, found in each.reached.items()}
    times: Counter[str] = Counter()
    seeds: Counter[str] = Counter()
    for found in by_seed.values():
        times.update(found)
        seeds.update(found.keys())
    missing = [state for state in states if not seeds[state]]
    sys.stdout.write(f"{name}:\n")
    for state in sorted({*times, *missing}):
        sys.stdout.write(f"  {state:<60} {times[state]:>9,} times, by {seeds[state]:>7,} seeds\n")
    if missing and is_long:
        sys.stdout.write(f"no seed of {len(by_seed)} of {name} has reached: {', '.join(missing)}\n")
        return True
    if records:
        _save_few(name, states, by_seed)
    return False


def _save_few(name: str, states: Sequence[str], by_seed: Mapping[int, Counter[str]]) -> bool:
    """Write the few seeds that reach all rare states of a story; return False if these do not reach all of them."""
    if set(states) - set().union(*by_seed.values()):
        return False
    known = json.loads(RARE_SEEDS.read_text()) if RARE_SEEDS.exists() else {}
    known[name] = _few_that_reach(states, by_seed)
    _replace(RARE_SEEDS, json.dumps(known, indent=2) + "\n")
    return True


def _few_that_reach(states: Iterable[str], by_seed: Mapping[int, Counter[str]]) -> list[int]:
    """Return seeds that reach all of these states between them, each time the one that reaches most of the rest."""
    left, chosen = set(states), []
    while left:
        best = max(sorted(by_seed), key=lambda seed: len(left & by_seed[seed].keys()))
        chosen.append(best)
        left -= by_seed[best].keys()
    return sorted(chosen)


def _in_chunks(name: str, seeds: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
    for start in range(0, len(seeds), CHUNK):
        yield name, seeds[start : start + CHUNK]


def _chunks(name: str, first: int, seeds: int) -> Iterator[tuple[str, Sequence[int]]]:
    return _in_chunks(name, range(first, first + seeds))


def _in_turn(firsts: Mapping[str, int], until: float) -> Iterator[tuple[str, Sequence[int]]]:
    """Seeds of one story after the other, until this time by the monotonic clock."""
    for number in count():
        for name, first in firsts.items():
            if time.monotonic() >= until:
                return
            start = first + number * CHUNK
            yield name, range(start, start + CHUNK)


def _usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use: one, number 0, where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]


def _end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """Handle SIGTERM: the processes of this tool's own end with it, in the middle of their seeds."""
    for child in active_children():
        child.kill()
    raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def _ends_at_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, _end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _play_all(
    work: Iterator[tuple[str, Sequence[int]]], total: int | None, jobs: int, recorder: Recorder | None
) -> list[Played]:
    """Play all, or until too many have failed."""
    began = time.monotonic()
    failed = done_seeds = 0
    played: list[Played] = []
    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    cores = get_context().SimpleQueue()
    for core in islice(cycle(_usable_cores()), jobs):
        cores.put(core)
    with (
        _ends_at_sigterm(),
        ProcessPoolExecutor(jobs, initializer=prepare_worker, initargs=(cores,)) as pool,
        Progress(*bars, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
    ):
        has_bar = sys.stdout.isatty() and sys.stderr.isatty()

        def say(line: str) -> None:
            if has_bar:
                progress.console.print(line, markup=False)
            else:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

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
                    say(f"{name} {seed}: {why}")
                    say(f"  again: make sim STORY={name} FIRST={seed} SEEDS=1")
                if recorder is not None:
                    recorder.add(played[-1])
                before, done_seeds = done_seeds, done_seeds + len(seeds)
                if not has_bar and before // LINE_EVERY < done_seeds // LINE_EVERY:
                    of_all = f" of {total}" if total is not None else ""
                    say(f"{done_seeds}{of_all} seeds in {time.monotonic() - began:.0f} s; {failed or 'none'} failed")
                progress.advance(task, len(seeds))
                progress.update(task, description=f"seeds ({failed} failed)")
            if failed >= FAILURES_MAX:
                sys.stdout.write(f"{failed} failed: the run stops\n")
                pool.shutdown(cancel_futures=True)
                return played


if __name__ == "__main__":
    sys.exit(main())
