"""`make audit-proof ROUNDS=n`: kill -9 anything between producer and table; the audit must explain every message."""

import sys
import tempfile
from pathlib import Path

from audit_kills.run import play
from support.kill_rounds import kill_parser, say, verdict


def main() -> int:
    parser = kill_parser("audit_kills", __doc__, 30)
    parser.add_argument("--no-table", action="store_true", help="without Spark")
    given = parser.parse_args()
    print(f"{given.rounds} rounds, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-audit-") as scratch:
        outcome = play(
            Path(scratch),
            rounds=given.rounds,
            seed=given.seed,
            with_table=not given.no_table,
            say=say,
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
    return verdict(outcome.faults, "0 messages unexplained")


if __name__ == "__main__":
    sys.exit(main())
