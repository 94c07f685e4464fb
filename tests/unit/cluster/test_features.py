"""Finalized levels of features: the rules of a change, the node in the tree, and who may take part."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import SeededEntropy
from barnabas.core.cluster import features, layout
from barnabas.core.cluster.brokers import cluster_id, stored_cluster_id
from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.features import (
    FeatureMetadataCache,
    FeaturesImage,
    feature_metadata,
    updated_levels,
    why_unsupported,
)
from barnabas.core.cluster.layout import decode_broker, decode_features, encode_broker
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.ports.broker_api.features import FeatureUpdate, SupportedVersionRange, UpgradeType
from barnabas.ports.coordination import CoordinationError, NodeChange
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

FRUIT, STONE = "fruit.version", "stone.version"
BOTH = {FRUIT: SupportedVersionRange(0, 3), STONE: SupportedVersionRange(0, 1)}
NEW = BrokerRegistration(broker_id=1, endpoints=(), features=BOTH)
OLD = BrokerRegistration(broker_id=2, endpoints=(), features={FRUIT: SupportedVersionRange(0, 2)})
SAFE, UNSAFE = UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


@pytest.fixture(autouse=True)
def _supported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in tuple(features.SUPPORTED):
        monkeypatch.delitem(features.SUPPORTED, name)
    for name, levels in BOTH.items():
        monkeypatch.setitem(features.SUPPORTED, name, levels)
    yield


def to(level: int, kind: int = UpgradeType.UPGRADE, feature: str = FRUIT) -> FeatureUpdate:
    return FeatureUpdate(feature=feature, max_version_level=level, upgrade_type=kind)


def refusal(levels: dict[str, int], *updates: FeatureUpdate, brokers: tuple[BrokerRegistration, ...] = (NEW,)) -> str:
    with pytest.raises(ApiError) as caught:
        updated_levels(levels, updates, brokers)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    return caught.value.message


def test_levels_go_up_and_down_as_asked() -> None:
    assert updated_levels({}, [to(2), to(1, feature=STONE)], [NEW]) == {FRUIT: 2, STONE: 1}
    assert updated_levels({FRUIT: 3, STONE: 1}, [to(1, SAFE)], [NEW]) == {FRUIT: 1, STONE: 1}
    assert updated_levels({FRUIT: 3}, [to(0, UNSAFE)], [NEW]) == {}
    assert updated_levels({FRUIT: 3}, [to(3)], [NEW]) == {FRUIT: 3}
    assert updated_levels({FRUIT: 3}, [to(3, SAFE)], [NEW]) == {FRUIT: 3}


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (to(1), "Can't downgrade the version of this feature without setting the upgrade type"),
        (to(3, SAFE), "Can't downgrade to a newer version"),
        (to(4), "This broker only supports versions 0-3"),
        (to(-1, UNSAFE), "A feature version cannot be less than 0"),
        (to(1, feature="metadata.version"), "This broker does not support this feature"),
        (to(0, SAFE, feature="metadata.version"), "This broker does not support this feature"),
        (to(3, 0), "The controller does not support the given upgrade type"),
        (to(3, 4), "The controller does not support the given upgrade type"),
    ],
)
def test_changes_that_are_refused(update: FeatureUpdate, reason: str) -> None:
    message = refusal({FRUIT: 2}, update)
    assert f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}" in message


def test_a_broker_that_does_not_support_a_level_prevents_it() -> None:
    assert "Broker 2 only supports versions 0-2." in refusal({}, to(3), brokers=(NEW, OLD))
    assert "Broker 2 does not support this feature." in refusal({}, to(1, feature=STONE), brokers=(NEW, OLD))
    assert updated_levels({}, [to(2)], [NEW, OLD]) == {FRUIT: 2}


def test_the_last_update_of_a_feature_counts() -> None:
    assert updated_levels({}, [to(1), to(9), to(2)], [NEW]) == {FRUIT: 2}


def test_a_broker_knows_whether_it_may_take_part() -> None:
    assert why_unsupported(FeaturesImage()) is None
    assert why_unsupported(FeaturesImage(levels={FRUIT: 3, STONE: 1})) is None
    assert "fruit.version at level 4, but this broker only supports versions 0-3" in str(
        why_unsupported(FeaturesImage(levels={FRUIT: 4}))
    )
    assert "does not support this feature" in str(why_unsupported(FeaturesImage(levels={"later.version": 1})))


class Harness:
    """A tree with a new cluster, and registries that follow it."""

    def __init__(self, *, levels: dict[str, int] | None = None) -> None:
        self.session: MemorySession = MemoryTree().session()
        self.made = cluster_id(self.session, SeededEntropy(1), levels=levels)
        self.lines: list[str] = []
        self.registry = self.opened()
        self.register(NEW)

    def opened(self) -> ClusterRegistry:
        registry = ClusterRegistry(self.session, self.lines.append)
        complete(registry.load())
        return registry

    def register(self, broker: BrokerRegistration) -> None:
        self.session.create(layout.broker_path(broker.broker_id), encode_broker(broker))

    def update(self, *updates: FeatureUpdate, validate_only: bool = False) -> None:
        complete(self.registry.update_features(updates, validate_only=validate_only))

    def cluster_node(self) -> dict[str, object]:
        node: dict[str, object] = json.loads(self.session.get(layout.CLUSTER_ID).data)
        return node


def test_a_new_cluster_begins_with_the_newest_levels() -> None:
    harness = Harness(levels=features.newest_levels())
    assert harness.registry.image.features == FeaturesImage(levels={FRUIT: 3, STONE: 1}, epoch=1)
    assert (harness.registry.image.features.level(FRUIT), harness.registry.image.features.level("other")) == (3, 0)


def test_a_cluster_of_an_earlier_version_has_no_levels_until_asked() -> None:
    session = MemoryTree().session()
    session.create(layout.CLUSTER_ID, layout.encode_cluster_id("AAAAAAAAAAAAAAAAAAAAAA"))
    assert cluster_id(session, SeededEntropy(1), levels=features.newest_levels()) == "AAAAAAAAAAAAAAAAAAAAAA"
    lines: list[str] = []
    registry = ClusterRegistry(session, lines.append)
    complete(registry.load())
    assert registry.image.features == FeaturesImage()
    complete(registry.update_features([to(2)], validate_only=False))
    assert registry.image.features == FeaturesImage(levels={FRUIT: 2}, epoch=1)


def test_levels_are_changed_for_all_brokers_and_each_change_raises_the_epoch() -> None:
    harness = Harness()
    other = harness.opened()
    harness.update(to(2))
    harness.update(to(3), to(1, feature=STONE))
    complete(other.reread_features())
    assert harness.registry.image.features == other.image.features
    assert other.image.features == FeaturesImage(levels={FRUIT: 3, STONE: 1}, epoch=3)
    assert any("fruit.version from 2 to 3, stone.version from 0 to 1" in line for line in harness.lines)
    harness.update(to(3))
    assert harness.registry.image.features.epoch == 3, "nothing has changed"


def test_a_validated_change_is_not_made() -> None:
    harness = Harness()
    harness.update(to(2), validate_only=True)
    assert harness.registry.image.features == FeaturesImage(epoch=1)
    with pytest.raises(ApiError):
        harness.update(to(9), validate_only=True)


def test_one_refused_update_leaves_all_levels_as_they_are() -> None:
    harness = Harness()
    with pytest.raises(ApiError, match=r"stone\.version"):
        harness.update(to(2), to(2, feature=STONE))
    assert complete(harness.registry.reread_features()) is None
    assert harness.registry.image.features.levels == {}


def test_brokers_are_read_from_the_tree_when_a_level_is_raised() -> None:
    harness = Harness()
    harness.register(OLD)
    with pytest.raises(ApiError, match="Broker 2 only supports versions 0-2"):
        harness.update(to(3))


def test_a_cluster_with_a_finalized_level_is_closed_to_brokers_of_the_version_before() -> None:
    harness = Harness()
    assert harness.cluster_node()["version"] == 1
    harness.update(to(1))
    assert harness.cluster_node() == {"version": 2, "id": harness.made}
    assert stored_cluster_id(harness.session) == harness.made
    harness.update(to(0, SAFE))
    assert harness.cluster_node() == {"version": 1, "id": harness.made}


def test_an_unreadable_node_is_reported_and_not_overwritten() -> None:
    harness = Harness()
    harness.update(to(1))
    harness.session.set(layout.FEATURES, b"garbage")
    complete(harness.registry.reread_features())
    assert harness.registry.image.features.level(FRUIT) == 1
    assert any("/barnabas/features" in line for line in harness.lines)
    with pytest.raises(CoordinationError, match="/barnabas/features"):
        harness.update(to(2))
    assert harness.session.get(layout.FEATURES).data == b"garbage"


@pytest.mark.parametrize(
    "node",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":1,"features":[]}',
        b'{"version":1,"features":{"a":-1}}',
        b'{"version":1,"features":{"a":true}}',
        b'{"version":3,"features":{}}',
    ],
)
def test_nodes_that_hold_no_levels(node: bytes) -> None:
    with pytest.raises(ValueError, match=r"features|version|object|level|whole|Expecting"):
        decode_features(node)


def test_a_registration_has_the_supported_levels() -> None:
    assert decode_broker("2", encode_broker(OLD)) == OLD
    assert decode_broker("2", encode_broker(BrokerRegistration(broker_id=2, endpoints=()))).features == {}


class Overtaken:
    """A session in which another broker's change comes before the next commit."""

    def __init__(self, session: MemorySession, before: Callable[[], None]) -> None:
        self._session = session
        self._before: list[Callable[[], None]] = [before]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def commit(self, changes: Sequence[NodeChange], **more: Any) -> None:
        if self._before:
            self._before.pop()()
        self._session.commit(changes, **more)


@pytest.mark.parametrize("is_first", [True, False], ids=["no node yet", "a node"])
def test_two_brokers_that_change_levels_at_once_lose_neither_change(is_first: bool) -> None:
    harness = Harness()
    if is_first:
        harness.session.delete(layout.FEATURES)
    other = harness.opened()
    session: Any = Overtaken(
        harness.session,
        lambda: complete(other.update_features([to(1, feature=STONE)], validate_only=False)),
    )
    registry = ClusterRegistry(session, harness.lines.append)
    complete(registry.load())
    complete(registry.update_features([to(2)], validate_only=False))
    assert registry.image.features.levels == {FRUIT: 2, STONE: 1}
    assert harness.cluster_node()["version"] == 2


def test_upgrade_below_a_level_raised_by_another_broker_is_refused() -> None:
    harness = Harness()
    other = harness.opened()
    session: Any = Overtaken(harness.session, lambda: complete(other.update_features([to(3)], validate_only=False)))
    registry = ClusterRegistry(session, harness.lines.append)
    complete(registry.load())
    with pytest.raises(ApiError, match="Can't downgrade"):
        complete(registry.update_features([to(2)], validate_only=False))
    assert harness.opened().image.features.level(FRUIT) == 3


def test_metadata_is_the_same_object_until_the_image_changes() -> None:
    images = [FeaturesImage(levels={FRUIT: 1}, epoch=1)]
    cache = FeatureMetadataCache(lambda: images[-1])
    first = cache()
    assert first == feature_metadata(images[0])
    assert cache() is first
    images.append(FeaturesImage(levels={FRUIT: 2}, epoch=2))
    assert cache() == feature_metadata(images[1])
    assert cache() is not first
