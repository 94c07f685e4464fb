"""Contract suite for replica selectors: the plug-in that chooses the replica from which a consumer reads."""

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.replica.leader.replica_selector import NearReader, ReplicaSelector, ReplicaView
from ...ports.broker_api.envelope import ANONYMOUS
from ...ports.types import TopicPartition

inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
PLACE = TopicPartition("topic", 0)
racks = st.none() | st.sampled_from(["", "here", "there"])
views = st.lists(
    st.builds(
        ReplicaView,
        broker_id=st.integers(0, 9),
        rack=racks,
        log_end_offset=st.integers(0, 100),
        behind_ms=st.floats(0, 1000),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda view: view.broker_id,
)


def reader_in(rack: str) -> NearReader:
    """Return a consumer that says that it is there."""
    return NearReader(rack=rack, client_id=None, host="127.0.0.1", listener="kafka://h:1", principal=ANONYMOUS)


class ReplicaSelectorContract:
    """Inherit, and give `make`."""

    def make(self) -> ReplicaSelector:
        raise NotImplementedError

    @inherited
    @given(views, st.sampled_from(["", "here", "there", "nowhere"]))
    def test_selector_names_readable_replica(self, replicas: Sequence[ReplicaView], rack: str) -> None:
        offered = tuple(replicas)
        chosen = self.make().select(PLACE, reader_in(rack), offered[0], offered)
        assert chosen in {view.broker_id for view in offered}

    @inherited
    @given(views, st.sampled_from(["", "here", "there", "nowhere"]))
    def test_selection_is_stable_without_changes(self, replicas: Sequence[ReplicaView], rack: str) -> None:
        """Otherwise a consumer would change its replica with every fetch."""
        selector = self.make()
        chosen = {selector.select(PLACE, reader_in(rack), replicas[0], tuple(replicas)) for _ in range(3)}
        assert len(chosen) == 1
