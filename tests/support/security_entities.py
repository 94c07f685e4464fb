"""The suite for security entities, which every adapter of `ports.coordination` runs."""

from collections.abc import Mapping

import pytest

from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.entity_store import UnreadableEntity
from barnabas.core.cluster.layout import EntityKind, decode_entity, entity_path
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.ports.coordination import Coordination, NoNode
from barnabas.testing.contracts.coordination_harness import Harness

NAMES = ["alice", "User:bob", "a/b", ".", "..", "50 %", "user=\u00e9,client-id=\u4e2d", "__proto__", " "]


class SecurityEntitySuite:
    """Two registries over one session, which is all that some adapters have."""

    lines: list[str]

    def registry(self, session: Coordination) -> ClusterRegistry:
        made = ClusterRegistry(session, self.lines.append)
        complete(made.load())
        return made

    @pytest.fixture(autouse=True)
    def _lines(self) -> None:
        self.lines: list[str] = []

    @pytest.mark.parametrize("kind", EntityKind)
    def test_entity_changed_by_one_broker_is_read_by_another(self, harness: Harness, kind: EntityKind) -> None:
        session = harness.session()
        one, other = self.registry(session), self.registry(session)
        complete(one.change_entities(kind, {name: lambda _before: {"n": 1} for name in NAMES}))
        complete(other.reread_all_entities())
        assert dict(other.image.entities(kind)) == {name: {"n": 1} for name in NAMES}
        complete(
            other.change_entities(kind, {NAMES[0]: lambda before: {"n": [before]}, NAMES[1]: lambda _before: None})
        )
        complete(one.reread_entities([(kind, NAMES[0]), (kind, NAMES[1])]))
        expected: Mapping[str, object] = {"n": [{"n": 1}]}
        assert one.image.entities(kind)[NAMES[0]] == expected
        assert NAMES[1] not in one.image.entities(kind)
        assert dict(self.registry(session).image.entities(kind)) == dict(one.image.entities(kind))
        assert not self.lines

    def test_changes_of_two_brokers_are_both_stored(self, harness: Harness) -> None:
        session = harness.session()
        one, other = self.registry(session), self.registry(session)
        complete(one.change_entities(EntityKind.ACLS, {"t": lambda _before: {"users": ["a"]}}))

        def add_b(before: Mapping[str, object] | None) -> Mapping[str, object]:
            users = (before or {})["users"]
            assert isinstance(users, list)
            if users == ["a"]:  # between this reading and its write the other broker changes the entity
                complete(other.change_entities(EntityKind.ACLS, {"t": lambda _before: {"users": ["a", "c"]}}))
            return {"users": [*users, "b"]}

        complete(one.change_entities(EntityKind.ACLS, {"t": add_b}))
        assert one.image.entities(EntityKind.ACLS)["t"] == {"users": ["a", "c", "b"]}

    def test_unreadable_entity_is_named_once_and_replaced_only_on_request(self, harness: Harness) -> None:
        session = harness.session()
        path = entity_path(EntityKind.USERS, "alice")
        session.create(path, b'{"version":1,"password":"planted-secret"')
        registry = self.registry(session)
        assert registry.image.unreadable_entities(EntityKind.USERS) == {"alice"}
        assert "alice" not in registry.image.entities(EntityKind.USERS)
        assert len(self.lines) == 1
        assert path in self.lines[0]
        assert "planted-secret" not in self.lines[0]
        with pytest.raises(UnreadableEntity):
            complete(registry.change_entities(EntityKind.USERS, {"alice": lambda _before: {"n": 1}}))
        complete(
            registry.change_entities(EntityKind.USERS, {"alice": lambda _before: {"n": 1}}, replace_unreadable=True)
        )
        assert registry.image.unreadable_entities(EntityKind.USERS) == frozenset()
        assert decode_entity(session.get(path).data) == {"n": 1}
        complete(registry.change_entities(EntityKind.USERS, {"alice": lambda _before: None}))
        with pytest.raises(NoNode):
            session.get(path)
