"""Security entities reach the image of every broker that follows the tree, and never a text."""

import pytest
from support.security_entities import NAMES

from barnabas.core.cluster import layout
from barnabas.core.cluster.deltas import EntityChanged
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.layout import EntityKind, decode_name, encode_name
from barnabas.testing.manual_broker import ManualBroker

ACLS = EntityKind.ACLS


def test_names_of_entities_survive_their_encoding() -> None:
    for name in NAMES:
        assert decode_name(encode_name(name)) == name
        assert "/" not in encode_name(name)


@pytest.mark.parametrize("part", ["", "a%2", "a%2f", "a b", "."])
def test_foreign_node_name_is_no_encoding(part: str) -> None:
    with pytest.raises(ValueError, match="name"):
        decode_name(part)


def test_image_returns_the_same_entities_until_one_changes() -> None:
    image = ClusterImage().after(EntityChanged(kind=ACLS, name="a", value={"n": 1}))
    entities = image.entities(ACLS)
    later = image.after(EntityChanged(kind=EntityKind.USERS, name="a", value={"n": 2}))
    assert later.entities(ACLS) is entities
    assert later.after(EntityChanged(kind=ACLS, name="a", value=None)).entities(ACLS) == {}


def test_image_and_delta_do_not_show_the_values_of_entities() -> None:
    delta = EntityChanged(kind=EntityKind.USERS, name="alice", value={"key": "planted-secret"})
    assert "planted-secret" not in f"{delta!r} {ClusterImage().after(delta)!r}"


def test_broker_follows_entities_that_another_broker_changes() -> None:
    broker = ManualBroker(shared=True)
    other = broker.tree.session()
    try:
        path = layout.entity_path(ACLS, "Topic:LITERAL:t")
        other.create(path, layout.encode_entity({"n": 1}))
        broker.wait(500)
        assert dict(broker.node.state.image.entities(ACLS)) == {"Topic:LITERAL:t": {"n": 1}}
        other.set(path, b"junk")
        broker.wait(500)
        assert broker.node.state.image.unreadable_entities(ACLS) == {"Topic:LITERAL:t"}
        assert sum(path in line for line in broker.reports) == 1
        broker.restart()
        assert broker.node.state.image.unreadable_entities(ACLS) == {"Topic:LITERAL:t"}
        other.delete(path)
        broker.wait(500)
        assert not broker.node.state.image.unreadable_entities(ACLS)
    finally:
        broker.stop()


def test_broker_stores_entities_in_the_order_of_their_requests() -> None:
    broker = ManualBroker()
    entities = broker.node.state.entities
    done: list[object] = []

    async def add(number: int) -> int:
        await entities.put(ACLS, "a", lambda before: {"n": [*list((before or {}).get("n", [])), number]})  # type: ignore[call-overload]
        return number

    for number in range(3):
        entities.submit("a test", lambda number=number: add(number), done.append)  # type: ignore[misc]
    broker.wait(10)
    assert done == [0, 1, 2]
    assert broker.node.state.image.entities(ACLS)["a"] == {"n": [0, 1, 2]}
    broker.stop()
