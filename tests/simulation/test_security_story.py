"""Clusters with SASL, and a guest whose ACLs come and go; `make sim STORY=security` plays more of them."""

from typing import Any

import pytest
from simulation.cluster_mutations import Mutation, by_cost
from simulation.security_story import SecurityStory

from barnabas.app.broker.handlers import authorization
from barnabas.app.broker.handlers.authorization import TOPIC, WRITE, AccessCheck, AllowedPart, Items
from barnabas.app.broker.state.authorization import AclDecider
from barnabas.core.cluster.deltas import EntityChanged
from barnabas.core.security.sasl.server_authenticator import ServerAuthenticator
from barnabas.ports.broker_api.fetch import Fetch
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.broker_api.produce import Produce


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_security_story_holds_for_seed(number: int) -> None:
    SecurityStory(number).play()


def replace_steps(patch: pytest.MonkeyPatch, kind: type, *steps: Any) -> None:
    patch.setattr(authorization, "STEPS", {**authorization.STEPS, kind: steps})


def lets_fetches_by_id_pass(patch: pytest.MonkeyPatch) -> None:
    """The gate goes by the names that a reader sends, and a fetch by id has none."""
    fetch = authorization.STEPS[Fetch][0]

    def fetched(check: AccessCheck, request: Fetch) -> Any:
        return None if any(part.topic_id != NO_TOPIC_ID for part in request.partitions) else fetch(check, request)

    replace_steps(patch, Fetch, fetched)


def keeps_removed_acls(patch: pytest.MonkeyPatch) -> None:
    """A broker hears of ACLs that were added, and not of those that were removed."""
    on_delta = AclDecider._on_delta

    def changed(self: AclDecider, delta: Any, before: Any) -> None:
        if not (isinstance(delta, EntityChanged) and delta.value is None):
            on_delta(self, delta, before)

    patch.setattr(AclDecider, "_on_delta", changed)


def remembers_what_was_allowed(patch: pytest.MonkeyPatch) -> None:
    """The decisions of before a change of the ACLs count after it."""

    def changed(self: AclDecider, delta: Any, _before: Any) -> None:
        self._is_stale |= isinstance(delta, EntityChanged)

    patch.setattr(AclDecider, "_on_delta", changed)


def appends_what_it_denies(patch: pytest.MonkeyPatch) -> None:
    """The answer says that a message was denied, and it stands in the log."""
    items = Items(WRITE, TOPIC)

    def produced(check: AccessCheck, request: Produce) -> Any:
        verdict = items(check, request)
        if verdict is None:
            return None
        failed = request.failed(authorization.denied(authorization.DENIED[TOPIC]))
        return AllowedPart(request, lambda _: failed)

    replace_steps(patch, Produce, produced)


def serves_ended_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServerAuthenticator, "is_expired", lambda *_: False)


ACL = frozenset({"acl"})
CALM = ("kill", "restart", "lose_connections")
MUTATIONS = (
    Mutation(lets_fetches_by_id_pass, ACL, CALM, story=SecurityStory),
    Mutation(keeps_removed_acls, ACL, CALM, story=SecurityStory),
    Mutation(remembers_what_was_allowed, ACL, CALM, story=SecurityStory),
    Mutation(appends_what_it_denies, frozenset({"visible", "inconsistent"}), CALM, story=SecurityStory),
    Mutation(serves_ended_sessions, frozenset({"session"}), CALM, story=SecurityStory),
)


@pytest.mark.parametrize("mutation", by_cost(MUTATIONS), ids=lambda mutation: mutation.name)
def test_the_story_finds(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.find(monkeypatch)
