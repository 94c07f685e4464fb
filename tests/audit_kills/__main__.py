"""`make audit-proof ROUNDS=n`: kill -9 anything between producer and table; the audit must explain every message."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from audit_kills.run import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="audit_kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None, help="of what is killed, and when; by chance")
    parser.add_argument("--no-table", action="store_true", help="without Spark")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    print(f"{given.rounds} rounds, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-audit-") as scratch:
        outcome = play(
            Path(scratch),
            rounds=given.rounds,
            seed=seed,
            with_table=not given.no_table,
            say=lambda line: print(f"  {line}", flush=True),
        )
    found = outcome.found
    totals: dict[str, list[int]] = {}
    for window in found.windows:
        for tier in window.tiers:
            sums = totals.setdefault(tier.tier, [0, 0, 0])
            sums[:] = [sums[0] + tier.count, sums[1] + tier.arrived, sums[2] + tier.unconfirmed]
    for name, (count, arrived, unconfirmed) in totals.items():
        print(f"  {name}: {count} counted, {arrived} of those expected, {unconfirmed} unconfirmed")
    print(f"  kills: {', '.join(f'{name} {count}' for name, count in outcome.kills.items() if count)}")
    for fault in outcome.faults[:50]:
        print(f"  {fault}")
    print(f"{len(outcome.faults)} faults" if outcome.faults else "0 messages unexplained")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
