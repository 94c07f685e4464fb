"""Run the long proofs within a bound, one after the other: what `make prove` runs.

    python tools/prove.py [--minutes N] [--only STAGE] [--record]

slow    the tests that `make test` leaves out (`-m slow`), about 20 minutes on two cores; in runs of 10 minutes and more
properties  the properties of Hypothesis with 300 examples each; in runs of 10 minutes and more
specs   the TLA+ specifications of docs/spec; no bound of time, about two minutes
seeds   fresh seeds of all stories of the simulation, for two fifths of the time
chaos   real clusters with transactions under faults, half over ZooKeeper, half over etcd, for three fifths

The exit code is 1 if a stage failed. `--record` adds seeds and chaos runs to the running totals of the repository.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("slow", "properties", "specs", "seeds", "chaos")
LONG = ("slow", "properties")
"""Stages that short runs leave out."""
LONG_FROM_MINUTES = 10.0
SEEDS_SHARE, CHAOS_SHARE = 0.4, 0.6


def stages(minutes: float, *, record: bool) -> dict[str, list[str]]:
    """Return the command of each stage, by its name."""
    python = [sys.executable, "-P"]
    seeds = ["tools/simulate.py", "--fresh", "--minutes", f"{minutes * SEEDS_SHARE:g}"]
    chaos = ["-m", "chaos", "--transactions", "--brokers", "4", "--minutes", f"{minutes * CHAOS_SHARE:g}"]
    tests = ["-m", "pytest", "-q", "--workers", "4"]
    return {
        "slow": [*python, *tests, "-m", "slow"],
        "properties": [*python, *tests, "-m", "hypothesis and not slow"],
        "specs": [*python, "tools/check_specs.py"],
        "seeds": [*python, *seeds, *(["--record"] if record else [])],
        "chaos": [*python, *chaos, *(["--record"] if record else [])],
    }


def environment(stage: str) -> dict[str, str]:
    chosen = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return {**chosen, "HYPOTHESIS_PROFILE": "prove"} if stage == "properties" else chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--only", choices=STAGES)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    commands = stages(chosen.minutes, record=chosen.record)
    passed, failed = [], []
    for name, command in commands.items():
        if chosen.only not in (None, name):
            continue
        if name in LONG and chosen.only is None and chosen.minutes < LONG_FROM_MINUTES:
            continue
        sys.stdout.write(f"--- {name}\n")
        sys.stdout.flush()
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment(name), check=False)
        (failed if done.returncode else passed).append(name)
        outcome = "FAILED" if done.returncode else "passed"
        sys.stdout.write(f"--- {name} {outcome} after {time.monotonic() - began:.0f} s\n")
    sys.stdout.write(f"proofs: {len(passed)} passed, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
