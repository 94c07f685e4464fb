"""A minute of faults over each coordination service; `make chaos MINUTES=n` does more of them, by chance."""

from pathlib import Path

import pytest
from chaos.faults import FAULTS
from chaos.report import fields_of, write
from chaos.run import NEEDS_A_SPARE, Plan, play

pytestmark = pytest.mark.slow

SECONDS = 60
IN_TURN = {
    "zookeeper": ("kill", "pause", "cut-from-brokers", "kill-member", "move-leaders", "restart-one-by-one", "cut-off"),
    "etcd": (
        "kill-two",
        "cut-from-coordination",
        "pause-members",
        "fill-disk",
        "move-leaders",
        "kill-all",
        "change-min-isr",
    ),
}


def test_between_them_they_do_everything() -> None:
    assert {name for names in IN_TURN.values() for name in names} | {NEEDS_A_SPARE} == FAULTS.keys()


@pytest.mark.process
@pytest.mark.xdist_group("chaos")
@pytest.mark.parametrize("over", IN_TURN)
def test_nothing_is_lost_doubled_or_out_of_order(over: str, tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(over=over, seconds=SECONDS, seed=1, faults=IN_TURN[over], in_turn=True, kip_848=True, shares=True)
    try:
        outcome = play(plan, tmp_path, said.append)
    finally:
        print(*said, sep="\n")
    write(outcome, tmp_path / "report")
    assert outcome.verdict.clean, fields_of(outcome)
    assert outcome.figures["acknowledged"] > SECONDS
    assert len(outcome.history.faults) >= 3
