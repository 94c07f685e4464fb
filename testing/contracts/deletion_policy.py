"""Contract suite for deletion policies. Inherit, and provide the fixture `policy`."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.log.config import LogConfig
from ...core.log.retention import DeletionPolicy, SegmentInfo


def infos(*segments: tuple[int, int]) -> list[SegmentInfo]:
    """Consecutive segments of (bytes, largest timestamp), ten records each; the last is active."""
    return [
        SegmentInfo(
            base_offset=10 * number,
            next_offset=10 * number + 10,
            size_bytes=size,
            largest_timestamp_ms=timestamp,
            active=number == len(segments) - 1,
        )
        for number, (size, timestamp) in enumerate(segments)
    ]


_segments = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10_000)), min_size=1, max_size=6)
_config = st.builds(LogConfig, retention_ms=st.integers(-1, 10_000), retention_bytes=st.integers(-1, 5000))


class DeletionPolicyContract:
    @pytest.fixture
    def policy(self) -> DeletionPolicy:
        raise NotImplementedError

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors])
    @given(segments=_segments, config=_config, now_ms=st.integers(0, 20_000))
    def test_answers_a_number_of_leading_segments_and_always_the_same(
        self, policy: DeletionPolicy, segments: list[tuple[int, int]], config: LogConfig, now_ms: int
    ) -> None:
        asked = infos(*segments)
        count = policy.deletable(asked, now_ms=now_ms, config=config)
        assert type(count) is int
        assert 0 <= count <= len(segments)
        assert asked == infos(*segments)
        assert policy.deletable(asked, now_ms=now_ms, config=config) == count

    def test_keeps_all_when_nothing_bounds_the_log(self, policy: DeletionPolicy) -> None:
        config = LogConfig(retention_ms=-1, retention_bytes=-1)
        assert policy.deletable(infos((100, 0), (100, 0)), now_ms=10**15, config=config) == 0
