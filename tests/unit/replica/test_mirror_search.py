"""Every interleaving of small scopes over an identical mirror of one partition (`support/mirror_search.py`).

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from support.history_search import BrokenPromise
from support.long_tests import first_is_quick
from support.mirror_search import Scope, search

from barnabas.app.broker.handlers import mirroring
from barnabas.app.broker.handlers.mirroring import MirrorService
from barnabas.app.mirror import identical
from barnabas.app.mirror.identical import IdenticalMirror, MirroredPartition
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.mirroring import MirrorRecords

_MIRRORED = ("rest",)
_PROMOTED = ("rest", "kill 1", "promote", "rest")

COPY = Scope({"append_source": 1})
ANSWER_IS_LOST = Scope({"lose": 1, "append_source": 1})
CUT_ANSWER = Scope({"cut": 1})
KILLED = Scope({"kill": 1, "start": 1, "append_source": 1})
TRUNCATED = Scope({"truncate": 1, "append_source": 1})
ELECTED = Scope({"elect_source": 1, "append_source": 1}, before=_MIRRORED)
FOLLOWERS = Scope({"elect": 1}, followers=True, appended=1)
PROMOTED = Scope({"promote": 1, "append_target": 1}, appended=1, before=_MIRRORED)
BACK = Scope({"elect_source": 1, "append_source": 1}, appended=1, before=(*_PROMOTED, "append_target", "start back"))
LATE = Scope({"late_call": 1, "truncate": 1, "append_source": 1}, before=_MIRRORED)
LATE_AND_PROMOTED = Scope(
    {"promote": 1}, before=("rest", "truncate", "append_source", "copy 1", "late_call 1", "kill 1")
)
"""A request to cut the log is under way; it has the length again that the request names, with other records."""
PROMOTED_WITH_FOLLOWERS = Scope({"elect": 1}, mirrors=0, appended=1, followers=True, before=("promote",))
ELECTED_UNHEARD = Scope(
    {"append_source": 1},
    appended=1,
    followers=True,
    before=("rest", "promote_unheard y2", "append_target", "follow y2", "follow y2", "elect", "see y2"),
)
"""A broker is elected that has not heard of the promotion, while a mirror runs that has not either."""
PROMOTED_THEN_CUT = Scope({"truncate": 1}, appended=1, before=("rest", "promote"))
OVERWRITES = Scope(
    {"start": 1, "append_target": 1}, overwrite=True, appended=1, before=("rest", "kill 1", "promote", "rest")
)
PROMOTED_BACK = Scope(
    {"kill": 1, "promote_back": 1, "append_source": 1},
    appended=1,
    before=(*_PROMOTED, "append_target", "start back", "rest"),
)
SCOPES = {
    "copy": COPY,
    "lost_answer": ANSWER_IS_LOST,
    "cut_answer": CUT_ANSWER,
    "killed": KILLED,
    "truncated_source": TRUNCATED,
    "elections": ELECTED,
    "followers": FOLLOWERS,
    "elected_before_it_hears_of_the_promotion": ELECTED_UNHEARD,
    "late_request_and_promotion": LATE_AND_PROMOTED,
    "promotion": PROMOTED,
    "way_back_and_promotion": PROMOTED_BACK,
    "way_back": BACK,
    "late_requests": LATE,
    "killed_promotion": evolve(PROMOTED, most={**PROMOTED.most, "kill": 1, "start": 1}),
    "promotion_of_a_truncated_source": PROMOTED_THEN_CUT,
    "promotion_with_followers": PROMOTED_WITH_FOLLOWERS,
    "mirror_that_overwrites": OVERWRITES,
    "two_mirrors": Scope({"truncate": 1, "append_source": 1}, mirrors=2, appended=1),
}


@pytest.mark.parametrize(("name", "scope"), first_is_quick(SCOPES.items(), 4))
def test_no_history_of_a_mirror_breaks_a_promise(name: str, scope: Scope) -> None:
    print(f"{name}: {search(scope)} states")


def takes_batches_for_another_log_of_the_same_length(patch: pytest.MonkeyPatch) -> None:
    change = MirrorService._change

    def _change(self: MirrorService, partition: Partition, request: MirrorRecords) -> Any:
        return change(self, partition, evolve(request, last_epoch=partition.log.epochs.latest))

    patch.setattr(MirrorService, "_change", _change)


def takes_batches_of_any_source(patch: pytest.MonkeyPatch) -> None:
    append = MirrorService.append

    def _append(self: MirrorService, request: MirrorRecords, caller: Any, reply: Any) -> None:
        partition = self._state.replicas.led_for_append("t", 0, all_in_sync=True)
        source = partition.log.config.mirror_source
        if not source:
            partition.log.update_config(evolve(partition.log.config, mirror_source=request.source))
        append(self, request, caller, reply)
        partition.log.update_config(evolve(partition.log.config, mirror_source=source))

    patch.setattr(MirrorService, "append", _append)


def appends_before_the_leader_epoch_is_raised(patch: pytest.MonkeyPatch) -> None:
    append = MirrorService.append
    patch.setattr(
        MirrorService,
        "append",
        lambda self, request, caller, reply: append(self, evolve(request, leader_epoch=-1), caller, reply),
    )


def cuts_at_the_offset_of_the_source_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mirroring, "truncation_offset", lambda _epochs, log_end, found: min(log_end, found.end_offset + 1))


def does_not_verify_at_the_start(patch: pytest.MonkeyPatch) -> None:
    def _verify(self: IdenticalMirror, each: MirroredPartition) -> None:
        self._send(each, self._description(each.tp))
        each.is_verified, each.last_epoch = True, -1

    patch.setattr(IdenticalMirror, "_verify", _verify)


def leaves_a_refused_topic_for_ever(patch: pytest.MonkeyPatch) -> None:
    leave = IdenticalMirror._leave

    def _leave(self: IdenticalMirror, topic: str, why: str) -> None:
        self._ended.add(topic)
        leave(self, topic, why)

    patch.setattr(IdenticalMirror, "_leave", _leave)


def promotes_before_copy_is_complete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MirroredPartition, "is_complete", property(lambda self: self.is_verified))


def promotes_what_one_replica_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        MirroredPartition,
        "is_complete",
        property(lambda self: self.is_verified and self.log_end >= self.source_end >= 0),
    )


def raises_the_leader_epoch_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(identical, "EPOCHS_OF_PROMOTION", 1)


def overwrites_what_was_promoted_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdenticalMirror, "_last_promotion", lambda *_: 0)


def believes_its_own_image(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MirrorService, "_is_confirmed", lambda *_: True)


@pytest.mark.parametrize(
    ("mutate", "scope"),
    [
        (does_not_verify_at_the_start, evolve(KILLED, most={"kill": 1, "start": 1, "truncate": 1, "append_source": 1})),
        (appends_before_the_leader_epoch_is_raised, ELECTED),
        (cuts_at_the_offset_of_the_source_alone, TRUNCATED),
        (leaves_a_refused_topic_for_ever, BACK),
        pytest.param(raises_the_leader_epoch_by_one, BACK, marks=pytest.mark.slow),
        (promotes_before_copy_is_complete, Scope({"promote": 1, "cut": 1}, mirrors=0)),
        pytest.param(promotes_what_one_replica_has, PROMOTED_WITH_FOLLOWERS, marks=pytest.mark.slow),
        (overwrites_what_was_promoted_later, OVERWRITES),
        pytest.param(believes_its_own_image, ELECTED_UNHEARD, marks=pytest.mark.slow),
        pytest.param(takes_batches_for_another_log_of_the_same_length, LATE_AND_PROMOTED, marks=pytest.mark.slow),
        pytest.param(takes_batches_of_any_source, PROMOTED_THEN_CUT, marks=pytest.mark.slow),
    ],
)
def test_search_of_mirrors_finds_a_broken_promise_after_each_mutation(
    mutate: Callable[[pytest.MonkeyPatch], None], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(BrokenPromise) as found:
        search(scope)
    print(found.value)
