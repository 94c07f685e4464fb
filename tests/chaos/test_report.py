"""The running total of recorded runs."""

import json
from pathlib import Path

from chaos.checker import Verdict
from chaos.history import History
from chaos.report import add_to_total
from chaos.run import Outcome, Plan


def _outcome(over: str, *, transactions: bool = False, anomalies: int = 0) -> Outcome:
    return Outcome(
        plan=Plan(over=over, seconds=60, seed=1, transactions=transactions),
        history=History(),
        verdict=Verdict(counts={"lost-write": anomalies} if anomalies else {}, examples={}),
        figures={"acknowledged": 1000},
    )


def test_recorded_runs_add_up_by_service_and_kind(tmp_path: Path) -> None:
    total = tmp_path / "runs.json"
    for outcome in (_outcome("etcd"), _outcome("etcd", anomalies=2), _outcome("zookeeper", transactions=True)):
        add_to_total(outcome, total)
    figures = {"runs": 2, "runs with anomalies": 1, "seconds": 120, "faults": 0, "readers replaced": 0}
    figures["acknowledged"] = 2000
    assert json.loads(total.read_text(encoding="utf-8")) == {
        "etcd": figures,
        "zookeeper, transactions": {
            "runs": 1,
            "runs with anomalies": 0,
            "seconds": 60,
            "faults": 0,
            "readers replaced": 0,
            "acknowledged": 1000,
        },
    }
