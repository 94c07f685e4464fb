"""`make table-kills ROUNDS=n`: kill -9 at every part of a load, `n` times. Ends with 1 if anything was wrong."""

import sys
import tempfile
import time
from pathlib import Path

from support.kill_rounds import kill_parser, say, verdict
from table_kills.foreign import READERS
from table_kills.run import Outcome, play
from table_kills.source import ONE, SOURCES, THREE
from table_kills.sweep import sweep


def main() -> int:
    parser = kill_parser("table_kills", __doc__, 100)
    parser.add_argument(
        "--cluster", type=int, default=None, help="number of rounds on a cluster, whose leaders are killed; 1/3"
    )
    parser.add_argument("--formats", default=",".join(READERS), help="with a comma between them")
    given = parser.parse_args()
    print(f"{given.rounds} rounds over {given.formats}, seed {given.seed}", flush=True)
    began = time.monotonic()
    formats = tuple(given.formats.split(","))
    with tempfile.TemporaryDirectory(prefix="barnabas-table-kills-", ignore_cleanup_errors=True) as scratch:
        swept = sweep(Path(scratch), formats)
        several = ", ".join(f"{named} {count}" for named, count in swept.kills.items())
        say(f"killed at every step of a commit: {several}; {time.monotonic() - began:.0f} s")
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
                seed=given.seed,
                formats=formats,
                say=lambda line: say(f"{line}, {time.monotonic() - began:.0f} s"),
            )
            print_outcome(outcome)
            wrong += outcome.faults
    return verdict(wrong, "each offset is present once, and no reader saw anything else")


def print_outcome(outcome: Outcome) -> None:
    for title, counts in (("killed", outcome.kills), ("at", outcome.steps), ("said", outcome.errors)):
        for text, count in sorted(counts.items()):
            say(f"{title}: {text}: {count}")
    say(f"{outcome.rows} rows in the largest table, read {outcome.reads} times meanwhile")


if __name__ == "__main__":
    sys.exit(main())
