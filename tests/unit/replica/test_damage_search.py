"""Every short history of a damaged replica, producers and repairs (`support/damage_search.py`).

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable
from typing import Any

import pytest
from support.damage_search import IDEMPOTENT, TRANSACTIONAL, Scope, search
from support.history_search import BrokenPromise
from support.long_tests import first_is_quick

from barnabas.core.log.partition_log.unified_log import LogTransactions, UnifiedLog
from barnabas.core.log.producers.producer_state_manager import ProducerStateManager
from barnabas.core.log.segment import segment
from barnabas.core.log.segment.segment import Segment
from barnabas.core.replica.partition.local_partitions import LocalPartitions
from barnabas.ports.types import Offset

ONE, TWO = f" {IDEMPOTENT}", f" {TRANSACTIONAL}"
SENT = ("send" + ONE, "send" + ONE, "send" + TWO)
ABORTED = ("send" + TWO, "abort", "send" + TWO)

RETRIES = Scope({"rot": 1, "kill": 1, "elect": 1, "again": 1}, before=SENT, rots=2, kinds=1)
HIDDEN_MARKER = Scope({"elect": 1, "commit": 1, "repair": 1}, before=(*ABORTED, "rot 4", "kill"))
CUT_IN_DAMAGE = Scope({"elect": 1, "send": 1, "roll": 1}, before=(*SENT, "send_alone" + ONE, "rot 8", "rot 11", "roll"))
RESTARTS = Scope({"roll": 1, "elect": 1, "again": 1, "stop": 1}, before=(*SENT, "rot 4", "kill"))
CUTS = Scope(
    {"elect": 2, "again": 1, "rot": 1}, before=("send" + ONE, "roll", "send" + ONE, "send_alone" + ONE), rots=3
)
HIDDEN_RECORDS = Scope({"rot": 1, "kill": 1, "repair": 1}, before=("send" + TWO, "send" + TWO, "abort"), rots=3)
SCOPES = {
    "retries": (RETRIES, 110),
    "hidden_marker": (HIDDEN_MARKER, 15),
    "cut_in_damage": (CUT_IN_DAMAGE, 9),
    "restarts": (RESTARTS, 60),
    "cuts": (CUTS, 35),
    "hidden_records": (HIDDEN_RECORDS, 30),
    "killed_repair": (Scope({"repair_killed": 1}, before=(*ABORTED, "commit", "roll", "rot 4", "kill")), 3),
    "killed_repairs": (
        Scope(
            {"rot": 1, "repair_killed": 1},
            before=("send" + TWO, "abort", "send" + TWO, "roll", "commit", "roll"),
            rots=4,
        ),
        20,
    ),
    "two_places": (
        Scope(
            {"rot": 2, "kill": 1, "repair": 1},
            before=("send" + TWO, "send" + ONE, "abort", "send" + TWO, "roll", "commit"),
            rots=5,
        ),
        500,
    ),
    "transactions": (
        Scope({"rot": 1, "kill": 1, "elect": 1, "commit": 1, "send": 1}, before=ABORTED, rots=3, kinds=2),
        1_000,
    ),
    "rolls": (
        Scope({"rot": 1, "kill": 1, "roll": 1, "elect": 1, "again": 1, "stop": 1}, before=SENT[1:], rots=2, kinds=1),
        1_000,
    ),
}


@pytest.mark.parametrize(
    ("name", "scope", "states"), first_is_quick([(name, *each) for name, each in SCOPES.items()], 3)
)
def test_no_history_of_a_damaged_replica_breaks_a_promise(name: str, scope: Scope, states: int) -> None:
    found = search(scope)
    print(f"{name}: {found} states")
    assert found >= states


def appends_what_damage_may_hide(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalPartitions, "check_producers_known", lambda *_: None)


def takes_snapshots_without_what_is_hidden(patch: pytest.MonkeyPatch) -> None:
    close = UnifiedLog.close

    def closed(self: UnifiedLog, now_ms: int = 0) -> None:
        self._state.producers.take_shutdown_snapshot(self.log_end_offset, 0)
        self._state.durable.new_names = True
        self.flushes.now()
        close(self, now_ms)

    patch.setattr(UnifiedLog, "close", closed)


def leaves_the_transaction_indexes_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "_correct_indexes", lambda *_: None)


def lets_a_later_marker_decide(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogTransactions, "undecided_from", property(lambda _: None))


def does_not_look_for_what_a_truncation_hides(patch: pytest.MonkeyPatch) -> None:
    truncate = UnifiedLog._truncate

    def truncated(self: UnifiedLog, offset: Offset, now_ms: int) -> None:
        hidden = self._state.producers._hidden
        truncate(self, offset, now_ms)
        self._state.producers._hidden = hidden

    patch.setattr(UnifiedLog, "_truncate", truncated)


def believes_headers_that_are_damaged(patch: pytest.MonkeyPatch) -> None:
    batches = Segment.batches
    patch.setattr(Segment, "batches", lambda self, position=0, **_: batches(self, position))


def has_damage_beyond_its_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment, "evolve", lambda gap, **_: gap)


def forgets_what_is_hidden_after_a_repair(patch: pytest.MonkeyPatch) -> None:
    def done(self: UnifiedLog, _now_ms: int) -> Any:
        self._state.producers._hidden = ()
        yield None

    patch.setattr(UnifiedLog, "reload_producers", done)


MUTATIONS: tuple[tuple[Callable[[pytest.MonkeyPatch], None], Scope], ...] = (
    (appends_what_damage_may_hide, RETRIES),
    (takes_snapshots_without_what_is_hidden, RESTARTS),
    (leaves_the_transaction_indexes_as_they_are, HIDDEN_RECORDS),
    (lets_a_later_marker_decide, HIDDEN_MARKER),
    (does_not_look_for_what_a_truncation_hides, CUTS),
    (believes_headers_that_are_damaged, CUTS),
    (has_damage_beyond_its_end, CUT_IN_DAMAGE),
    (forgets_what_is_hidden_after_a_repair, HIDDEN_MARKER),
)


@pytest.mark.parametrize(
    ("mutation", "scope"),
    [
        pytest.param(each, scope, id=each.__name__, marks=[pytest.mark.slow] * (number > 0))
        for number, (each, scope) in enumerate(MUTATIONS)
    ],
)
def test_the_search_finds(
    mutation: Callable[[pytest.MonkeyPatch], None], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(BrokenPromise) as broken:
        search(scope)
    print(broken.value)
