"""`make kills ROUNDS=n`: kill -9 under transactional load, `n` times. Ends with 1 if anything was wrong."""

import sys
import tempfile
from pathlib import Path

from kills.run import play
from support.kill_rounds import kill_parser, say, verdict


def main() -> int:
    parser = kill_parser("kills", __doc__, 100)
    parser.add_argument("--transformers", type=int, default=2, help="producers in transactions")
    given = parser.parse_args()
    print(f"{given.rounds} rounds, {given.transformers} producers in transactions, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-kills-") as scratch:
        outcome = play(
            Path(scratch),
            rounds=given.rounds,
            seed=given.seed,
            transformers=given.transformers,
            say=say,
        )
    print(
        f"  {outcome.messages} messages in {outcome.committed} transactions, {outcome.aborted} aborted,"
        f" {outcome.lives} lives of producers, {outcome.down_s / max(1, given.rounds):.2f} s down each time"
    )
    return verdict(outcome.faults, "nothing was lost, doubled or there in part")


if __name__ == "__main__":
    sys.exit(main())
