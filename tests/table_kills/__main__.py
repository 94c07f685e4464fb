"""`make table-kills ROUNDS=n`: kill -9 at every part of a load, so many times. Ends with 1 if anything was wrong."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from table_kills.foreign import READERS
from table_kills.run import Outcome, play
from table_kills.source import ONE, SOURCES, THREE
from table_kills.sweep import sweep


def main() -> int:
    parser = argparse.ArgumentParser(prog="table_kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cluster", type=int, default=None, help="so many on a cluster, whose leaders are killed; 1/3")
    parser.add_argument("--formats", default=",".join(READERS), help="with a comma between them")
    parser.add_argument("--seed", type=int, default=None, help="of when it is killed; by chance")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    print(f"{given.rounds} rounds over {given.formats}, seed {seed}", flush=True)
    began = time.monotonic()
    formats = tuple(given.formats.split(","))
    with tempfile.TemporaryDirectory(prefix="barnabas-table-kills-", ignore_cleanup_errors=True) as scratch:
        swept = sweep(Path(scratch), formats)
        several = ", ".join(f"{named} {count}" for named, count in swept.kills.items())
        print(f"  killed at every step of a commit: {several}; {time.monotonic() - began:.0f} s", flush=True)
        wrong = list(swept.faults)
        on_three = given.rounds // 3 if given.cluster is None else given.cluster
        for name, rounds in {ONE: given.rounds - on_three, THREE: on_three}.items():
            if not rounds:
                continue
            folder = Path(scratch, name)
            folder.mkdir()
            print(f"{name}: {SOURCES[name].__doc__}", flush=True)
            outcome = play(
                folder,
                SOURCES[name],
                rounds=rounds,
                seed=seed,
                formats=formats,
                say=lambda line: print(f"  {line}, {time.monotonic() - began:.0f} s", flush=True),
            )
            tell(outcome)
            wrong += outcome.faults
    for fault in wrong[:50]:
        print(f"  {fault}")
    rest = "each offset is there once, and nobody saw anything else"
    print(f"{len(wrong)} faults" if wrong else rest)
    return 1 if wrong else 0


def tell(outcome: Outcome) -> None:
    for title, counts in (("killed", outcome.kills), ("at", outcome.steps), ("said", outcome.errors)):
        for text, count in sorted(counts.items()):
            print(f"  {title}: {text}: {count}")
    print(f"  {outcome.rows} rows in the largest table, read {outcome.reads} times meanwhile", flush=True)


if __name__ == "__main__":
    sys.exit(main())
