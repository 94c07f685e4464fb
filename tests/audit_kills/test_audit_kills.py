"""A few kills between two clusters; `make audit-proof` does more, and loads a table, too."""

from pathlib import Path

import pytest
from audit_kills.run import play

pytestmark = pytest.mark.slow

ROUNDS = 4


@pytest.mark.process
def test_the_audit_explains_every_message_after_kills(tmp_path: Path) -> None:
    outcome = play(tmp_path, rounds=ROUNDS, seed=1, with_table=False, say=lambda line: None)
    assert outcome.faults == []
    assert outcome.produced > 1000
    assert sum(outcome.kills.values()) == ROUNDS
