"""`make chaos MINUTES=n`: half of the time over ZooKeeper, half over etcd. Ends with 1 if anything was wrong."""

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from chaos.faults import FAULTS
from chaos.report import add_to_total, write
from chaos.run import Plan, play

BUILD = Path(__file__).resolve().parents[2] / ".build" / "chaos"
TOTAL = Path(__file__).with_name("runs.json")
"""The running total of the recorded runs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of faults, in all")
    parser.add_argument("--over", choices=("zookeeper", "etcd"), action="append", help="default: both")
    parser.add_argument("--seed", type=int, default=None, help="default: by chance")
    parser.add_argument("--faults", default=",".join(FAULTS), metavar="NAME,...", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--in-turn", action="store_true", help="the faults in their order, not by chance")
    parser.add_argument("--rate", type=float, default=100, help="messages a second of each producer")
    parser.add_argument("--members", type=int, default=3, help="of the coordination service")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--transactions", action="store_true", help="with transactions and a recreated topic")
    parser.add_argument("--shares", action="store_true", help="with a share group")
    parser.add_argument("--new-groups", action="store_true", help="with groups by KIP-848 and classic ones")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the brokers, to look at them")
    parser.add_argument("--record", action="store_true", help="add the runs to tests/chaos/runs.json")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is stopped on the way out
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    overs = given.over or ["zookeeper", "etcd"]
    clean = True
    for over in overs:
        plan = Plan(
            over=over,
            seconds=60 * given.minutes / len(overs),
            seed=seed,
            faults=tuple(given.faults.split(",")),
            in_turn=given.in_turn,
            per_second=given.rate,
            members=given.members,
            brokers=given.brokers,
            transactions=given.transactions,
            kip_848=given.new_groups,
            shares=given.shares,
        )
        clean = _one(plan, keep=given.keep, record=given.record) and clean
    return 0 if clean else 1


def _one(plan: Plan, *, keep: bool, record: bool) -> bool:
    print(f"{plan.brokers} brokers over {plan.over}, {plan.seconds:g} s, seed {plan.seed}", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-chaos-"))
    try:
        outcome = play(plan, scratch, lambda line: print(line, flush=True))
    except BaseException:
        print(f"the logs of all processes are in {scratch}", flush=True)
        raise
    page = write(outcome, BUILD / f"{plan.over}-{plan.seed}")
    if record:
        add_to_total(outcome, TOTAL)
    for name, value in outcome.figures.items():
        print(f"  {name}: {value}")
    for each in outcome.history.replaced:
        print(f"  replaced (client stood still): {each.client} at {each.at_s:.1f} s: {each.why}")
    for reason in outcome.history.not_replaced:
        print(f"  {reason}")
    for kind, count in outcome.verdict.counts.items():
        print(f"  {kind}: {count}, such as {outcome.verdict.examples[kind][0]}")
    print(f"{'nothing was wrong' if outcome.verdict.clean else 'ANOMALIES'}; see {page}", flush=True)
    if keep or not outcome.verdict.clean:
        print(f"folders and logs: {scratch}", flush=True)
    else:
        _remove(scratch)
    return outcome.verdict.clean


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
