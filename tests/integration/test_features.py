"""Our `Admin` changes the finalized features of a broker, and sees what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker
from barnabas.core.cluster import features
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.features import FinalizedVersionRange, SupportedVersionRange, UpgradeType
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError

FRUIT = "fruit.version"


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    monkeypatch.setitem(features.SUPPORTED, FRUIT, SupportedVersionRange(0, 3))
    with Broker(storage="memory", coordination="memory") as broker, Admin(broker.bootstrap) as opened:
        yield opened


def test_levels_are_described_raised_and_lowered(admin: Admin) -> None:
    found = admin.describe_features()
    assert found.supported[FRUIT] == SupportedVersionRange(0, 3)
    assert found.finalized[FRUIT] == FinalizedVersionRange(3, 3), "a new cluster has the newest level"
    admin.update_features({FRUIT: 1}, UpgradeType.SAFE_DOWNGRADE)
    admin.update_features({FRUIT: 2})
    after = admin.describe_features(broker=admin.describe_cluster().controller_id)
    assert (after.level(FRUIT), after.finalized_epoch - found.finalized_epoch) == (2, 2)
    admin.update_features({FRUIT: 0}, UpgradeType.UNSAFE_DOWNGRADE)
    assert FRUIT not in admin.describe_features().finalized


def test_what_is_refused_or_only_validated_changes_nothing(admin: Admin) -> None:
    before = admin.describe_features()
    for levels, kind in (
        ({FRUIT: 2}, UpgradeType.UPGRADE),
        ({FRUIT: 9}, UpgradeType.UPGRADE),
        ({FRUIT: 1, "metadata.version": 7}, UpgradeType.SAFE_DOWNGRADE),
    ):
        with pytest.raises(ApiError) as caught:
            admin.update_features(levels, kind)
        assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    admin.update_features({FRUIT: 1}, UpgradeType.SAFE_DOWNGRADE, validate_only=True)
    assert admin.describe_features() == before


def test_an_admin_within_the_process_sees_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features.SUPPORTED, FRUIT, SupportedVersionRange(0, 3))
    with Broker(storage="memory", coordination="memory") as broker, Admin(broker) as here:
        here.update_features({FRUIT: 2}, UpgradeType.SAFE_DOWNGRADE)
        with Admin(broker.bootstrap) as outside:
            assert here.describe_features() == outside.describe_features()
            assert outside.describe_features().level(FRUIT) == 2


@pytest.mark.slow
@pytest.mark.process
def test_our_admin_describes_and_changes_the_features_of_apache_kafka(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path)
    server.start()
    try:
        server.wait_ready()
        with Admin(server.bootstrap) as opened:
            before = opened.describe_features()
            assert before.supported["group.version"] == SupportedVersionRange(0, 1)
            assert before.level("metadata.version") > 20
            assert before.finalized_epoch > 0
            opened.update_features({"transaction.version": 1}, UpgradeType.SAFE_DOWNGRADE, validate_only=True)
            with pytest.raises(ApiError) as caught:
                opened.update_features({"transaction.version": 9})
            assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
            opened.update_features({"transaction.version": 1}, UpgradeType.SAFE_DOWNGRADE)
            wait_for(lambda: opened.describe_features().level("transaction.version") == 1, PATIENCE_S)
            kinds = [each.kind for each in opened.list_config_resources([ResourceKind.BROKER])]
            assert kinds == [ResourceKind.BROKER]
    finally:
        server.stop()


def test_features_of_a_broker_that_does_not_exist_are_an_error(admin: Admin) -> None:
    with pytest.raises(ConfigError, match="unknown broker 9"):
        admin.describe_features(broker=9)
