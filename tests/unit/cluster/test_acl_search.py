"""Every interleaving of small scopes over the path of ACLs to the decisions of a broker (`support/acl_search.py`).

The counts of states are printed: `pytest -s`, or `-rA`.
"""

from collections.abc import Callable
from typing import Any

import pytest
from support.acl_search import BrokenPromise, Scope, search
from support.long_tests import first_is_quick

from barnabas.app.broker.state.authorization import AclDecider
from barnabas.app.broker.state.changes import Changes, EntityStore
from barnabas.core.cluster import entity_store
from barnabas.core.cluster.change_queue import elsewhere
from barnabas.core.cluster.layout import EntityKind
from barnabas.core.cluster.metadata_listener import MetadataListener
from barnabas.core.cluster.registry import ClusterRegistry

SESSION_IS_LOST = Scope({"revoke": 1, "connect_to_later": 1})
SERVER_LAGS = Scope({"revoke": 1, "connect_to_earlier": 1})
CALLS_FAIL = Scope({"revoke": 1, "fail": 1})
OWN_CHANGE_FAILS = Scope({"revoke_here": 1, "fail": 1, "revoke": 1})
ANSWER_IS_LOST = Scope({"revoke_here": 1, "lose_answer": 1})
GRANTED_AGAIN = Scope({"revoke": 1, "grant": 1})
SCOPES = {
    "session_lost": SESSION_IS_LOST,
    "calls_that_fail": CALLS_FAIL,
    "own_change_that_fails": OWN_CHANGE_FAILS,
    "lost_answer": ANSWER_IS_LOST,
    "granted_again": GRANTED_AGAIN,
    "not_granted_at_first": Scope({"grant": 1, "revoke": 1, "fail": 1}, granted=False),
    "server_that_lags": SERVER_LAGS,
    "other_controllers": Scope({"revoke": 1, "grant": 1, "elect": 1, "fail": 1}),
    "server_that_lags_and_calls_that_fail": Scope({"revoke": 1, "connect_to_earlier": 1, "fail": 1}),
    "server_that_lags_and_granted_again": Scope({"revoke": 1, "grant": 1, "connect_to_earlier": 1}),
    "session_lost_and_granted_again": Scope({"revoke": 1, "grant": 1, "connect_to_later": 1, "elect": 1}),
    "changes_here_and_elsewhere": Scope({"revoke_here": 1, "grant_here": 1, "revoke": 1, "lose_answer": 1}),
    "changes_here_that_fail": Scope({"revoke_here": 1, "grant": 1, "revoke": 1, "fail": 1}),
    "changes_here_and_session_lost": Scope({"revoke_here": 1, "revoke": 1, "lose_answer": 1, "connect_to_later": 1}),
}


@pytest.mark.parametrize(("name", "scope"), first_is_quick(SCOPES.items(), 2))
def test_no_history_leaves_a_broker_with_other_acls_than_the_tree(name: str, scope: Scope) -> None:
    print(f"{name}: {search(scope)} states")


def rereads_in_the_other_queue(patch: pytest.MonkeyPatch) -> None:
    """It may apply what it has read after the queue of entities has applied what is newer."""
    reread_on_failure = Changes.reread_on_failure
    patch.setattr(
        Changes,
        "reread_on_failure",
        lambda self, subject, reread, _queue=None: reread_on_failure(self, subject, reread),
    )


def rereads_only_what_exists(patch: pytest.MonkeyPatch) -> None:
    async def reread_all(self: ClusterRegistry) -> None:
        await elsewhere(self.coordination.heartbeat)
        found = await elsewhere(lambda: entity_store.list_entities(self.coordination, self._report))
        await self.reread_entities(found)

    patch.setattr(ClusterRegistry, "reread_all_entities", reread_all)


def forgets_what_a_failed_reading_should_have_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataListener, "_again", lambda *_: None)


def does_not_read_again_after_a_new_connection(patch: pytest.MonkeyPatch) -> None:
    note = MetadataListener._note
    patch.setattr(MetadataListener, "_note", lambda self, paths: note(self, paths or ()))


def forgets_unknown_outcomes(patch: pytest.MonkeyPatch) -> None:
    async def put_all(self: EntityStore, kind: EntityKind, changes: Any, **_: Any) -> None:
        await self._registry.change_entities(kind, changes)

    patch.setattr(EntityStore, "put_all", put_all)
    patch.setattr(MetadataListener, "_note", lambda *_: None)


def keeps_decisions_after_a_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AclDecider, "_on_delta", lambda *_: None)


def notes_changes_as_read_that_came_during_the_reading(patch: pytest.MonkeyPatch) -> None:
    read = MetadataListener._read_leaders

    async def reading(self: MetadataListener) -> None:
        await read(self)
        self._leaders.entities.clear()

    patch.setattr(MetadataListener, "_read_leaders", reading)


@pytest.mark.parametrize(
    ("mutate", "scope"),
    [
        (rereads_in_the_other_queue, OWN_CHANGE_FAILS),
        (rereads_only_what_exists, SESSION_IS_LOST),
        (forgets_what_a_failed_reading_should_have_read, CALLS_FAIL),
        (does_not_read_again_after_a_new_connection, SESSION_IS_LOST),
        (forgets_unknown_outcomes, ANSWER_IS_LOST),
        (keeps_decisions_after_a_change, CALLS_FAIL),
        (notes_changes_as_read_that_came_during_the_reading, GRANTED_AGAIN),
    ],
)
def test_search_finds_a_broker_with_other_acls_after_each_mutation(
    mutate: Callable[[pytest.MonkeyPatch], None], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(BrokenPromise):
        search(scope)
