"""Our `Admin` changes the finalized features of a broker, and sees what is refused."""

from collections.abc import Iterator

import pytest

from barnabas import Admin, Broker
from barnabas.core.cluster import features
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


def test_features_of_a_broker_that_does_not_exist_are_an_error(admin: Admin) -> None:
    with pytest.raises(ConfigError, match="no broker 9"):
        admin.describe_features(broker=9)
