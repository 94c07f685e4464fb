"""The common parts of the commands that kill processes repeatedly and check for faults."""

import argparse
import random
from collections.abc import Sequence

_SHOWN = 50


def kill_parser(name: str, text: str | None, rounds: int) -> argparse.ArgumentParser:
    """With --rounds and --seed."""
    parser = argparse.ArgumentParser(prog=name, description=text)
    parser.add_argument("--rounds", type=int, default=rounds)
    seed = random.SystemRandom().randrange(1_000_000)
    parser.add_argument("--seed", type=int, default=seed, help="of what is killed, and when; by chance")
    return parser


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def verdict(faults: Sequence[str], fine: str) -> int:
    """Print the first faults and how many there are, or that all is `fine`; the exit code."""
    for fault in faults[:_SHOWN]:
        say(fault)
    print(f"{len(faults)} faults" if faults else fine)
    return 1 if faults else 0
