"""The broker's log line for the election of a leader that was not in sync."""

from collections.abc import Mapping

from attrs import evolve

from barnabas.app.broker.handlers.replicas import election_log_line
from barnabas.core.cluster.election import ElectionRules, claimed, settled
from barnabas.core.cluster.topics import NO_LEADER, BrokerRegistration, PartitionState, ReplicaId
from barnabas.ports.types import TopicPartition

KEY = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
WITHOUT_LEADER = PartitionState(
    leader=NO_LEADER, leader_epoch=4, isr=(1, 2), broker_epochs={1: 11, 2: 12}, partition_epoch=7
)


def living(*numbers: int) -> Mapping[int, BrokerRegistration]:
    """In a later life, which knows nothing of the one in which they were in sync."""
    return {each: BrokerRegistration(broker_id=each, endpoints=(), broker_epoch=20 + each) for each in numbers}


def elected(state: PartitionState, *alive: int, unclean: bool = False) -> tuple[int, str]:
    after = settled(state, REPLICAS, living(*alive), ElectionRules(min_isr=2, unclean=unclean), is_overdue=True)
    assert after is not None
    return after.leader, election_log_line(KEY, state, after)


def test_unclean_election_log_line_names_possible_data_loss() -> None:
    leader, line = elected(WITHOUT_LEADER, 3, unclean=True)
    text = "broker 3 leads t-0, in epoch 5, by an unclean election: it is not one of [1, 2]"
    text += ", and committed messages that it lacks are lost"
    assert (leader, line) == (3, text)
    known = claimed(claimed(WITHOUT_LEADER, ReplicaId(1, 21), 4, 50), ReplicaId(3, 23), 4, 40)
    leader, line = elected(known, 3, unclean=True)
    claims = "as claimed, the log reaches on broker 1 to offset 50, broker 3 to offset 40"
    assert (leader, line) == (3, f"{text}; {claims}")


def test_clean_election_log_line_has_no_warning() -> None:
    state = evolve(WITHOUT_LEADER, broker_epochs={1: 21, 2: 22})
    assert elected(state, 1, 2) == (1, "broker 1 leads t-0, in epoch 5")
