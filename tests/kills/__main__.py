"""`make kills ROUNDS=n`: kill -9 under transactional load, so many times. Ends with 1 if anything was wrong."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from kills.run import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--transformers", type=int, default=2, help="producers in transactions")
    parser.add_argument("--seed", type=int, default=None, help="of when it is killed, and what is aborted; by chance")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    print(f"{given.rounds} rounds, {given.transformers} producers in transactions, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-kills-") as scratch:
        outcome = play(
            Path(scratch),
            rounds=given.rounds,
            seed=seed,
            transformers=given.transformers,
            say=lambda line: print(f"  {line}", flush=True),
        )
    print(
        f"  {outcome.messages} messages in {outcome.committed} transactions, {outcome.aborted} aborted,"
        f" {outcome.lives} lives of producers, {outcome.down_s / max(1, given.rounds):.2f} s down each time"
    )
    for fault in outcome.faults[:50]:
        print(f"  {fault}")
    print(f"{len(outcome.faults)} faults" if outcome.faults else "nothing was lost, doubled or there in part")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
