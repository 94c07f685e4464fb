"""A broker in a cluster with finalized features."""

import pytest

from barnabas.core.cluster import features, layout
from barnabas.ports.broker_api.features import SupportedVersionRange
from barnabas.ports.errors import ConfigError
from barnabas.testing import ManualBroker

FRUIT = "fruit.version"


@pytest.fixture(autouse=True)
def _supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features.SUPPORTED, FRUIT, SupportedVersionRange(0, 2))


def test_a_new_cluster_has_the_newest_levels_and_its_broker_says_what_it_supports() -> None:
    broker = ManualBroker(shared=True)
    assert broker.node.state.image.features.level(FRUIT) == 2
    registered = broker.node.state.image.brokers[broker.node.state.node_id]
    assert registered.features[FRUIT] == SupportedVersionRange(0, 2)
    broker.restart()
    assert broker.node.state.image.features.level(FRUIT) == 2


def test_the_levels_are_metrics() -> None:
    broker = ManualBroker()
    value = broker.metrics.value("kafka_server_metadataloader_finalizedlevel", featureName=FRUIT)
    assert value == 2
    broker.stop()


def test_a_cluster_of_an_earlier_version_keeps_its_levels() -> None:
    broker = ManualBroker()
    session = broker.tree.session()
    session.delete(layout.FEATURES)
    broker.restart()
    assert broker.node.state.image.features.levels == {}


def test_a_broker_refuses_to_join_a_cluster_with_a_level_that_it_does_not_know() -> None:
    broker = ManualBroker()
    broker.tree.session().set(layout.FEATURES, layout.encode_features({FRUIT: 3}))
    with pytest.raises(ConfigError, match=r"fruit\.version at level 3, but this broker only supports versions 0-2"):
        broker.restart()


def test_a_broker_stops_when_others_finalize_a_level_that_it_does_not_know() -> None:
    broker = ManualBroker(shared=True)
    failures: list[object] = []
    broker.node.failed = failures.append
    broker.tree.session().set(layout.FEATURES, layout.encode_features({FRUIT: 1}))
    broker.wait(10)
    assert broker.node.state.image.features.level(FRUIT) == 1
    assert not failures
    broker.tree.session().set(layout.FEATURES, layout.encode_features({FRUIT: 3}))
    broker.wait(10)
    assert "fruit.version at level 3" in str(failures[0])
