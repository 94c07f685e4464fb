"""The built-in deletion policies (facts B3 retention)."""

import pytest

from barnabas.core.log.config import LogConfig
from barnabas.core.log.retention import DeletionPolicy
from barnabas.plugins.builtin.deletion import (
    DELETION_POLICY_NAMES,
    KafkaDeletionPolicy,
    KeepAll,
    builtin_deletion_policy,
)
from barnabas.testing.contracts.deletion_policy import DeletionPolicyContract, infos


class TestKafkaPolicy(DeletionPolicyContract):
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        return KafkaDeletionPolicy()


class TestKeepAll(DeletionPolicyContract):
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        return KeepAll()


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(-1, 0), (300, 0), (250, 0), (201, 0), (200, 1), (150, 1), (100, 2), (99, 2), (0, 3)],
)
def test_size_goes_down_to_the_bound_and_not_below(retention_bytes: int, expected: int) -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=retention_bytes)
    segments = infos((100, 0), (100, 0), (100, 0))
    assert KafkaDeletionPolicy().deletable(segments, now_ms=10**15, config=config) == expected


@pytest.mark.parametrize(("now_ms", "expected"), [(1100, 0), (1101, 1), (1200, 1), (1300, 1), (1301, 3)])
def test_age_stops_at_the_first_young_segment(now_ms: int, expected: int) -> None:
    config = LogConfig(retention_ms=100)
    segments = infos((1, 1000), (1, 1200), (1, 900))
    assert KafkaDeletionPolicy().deletable(segments, now_ms=now_ms, config=config) == expected


def test_by_name() -> None:
    assert set(DELETION_POLICY_NAMES) == {"kafka", "none"}
    assert all(builtin_deletion_policy(name) is not None for name in DELETION_POLICY_NAMES)
    assert builtin_deletion_policy("other") is None
