"""A few rounds of kill -9 under transactional load; `make kills` does more. And what the verdict is worth."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kills.run import play
from kills.verdict import Seen, faults
from kills.work import PARTITIONS, SOURCE, TARGET, Source, Transformer
from support.waiting import wait_for

from barnabas.testing import TestBroker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("confluent")]

ROUNDS = 5


@pytest.mark.process
def test_nothing_is_lost_doubled_or_there_in_part(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = play(tmp_path, rounds=ROUNDS, seed=1, transformers=2, say=said.append)
    assert outcome.faults == []
    assert outcome.committed > ROUNDS
    assert outcome.messages > 100


@pytest.mark.process
def test_transformer_continues_after_its_consumer_has_met_a_moving_coordinator() -> None:
    with TestBroker() as broker:
        for topic in (SOURCE, TARGET):
            broker.create_topic(topic, partitions=PARTITIONS)
        fault = broker.faults.error("OffsetFetch", "NOT_COORDINATOR", times=1)
        source = Source(broker.bootstrap, per_second=100)
        transformer = Transformer(broker.bootstrap, "t", seed=1)
        try:
            fault.wait()
            wait_for(lambda: transformer.committed > 0)
            assert transformer.lives > 1
        finally:
            source.stop()
            transformer.stop()


ENDS = {0: 2, 1: 1}
RIGHT = [(0, 0, "a 0 2 0:0"), (1, 0, "a 1 2 1:0"), (0, 2, "b 0 1 0:1")]


def without(number: int) -> Seen:
    return [each for at, each in enumerate(RIGHT) if at != number]


def test_a_right_history_has_no_faults() -> None:
    assert faults(ENDS, RIGHT, RIGHT, ENDS) == []
    assert faults(ENDS, RIGHT, RIGHT[:1], ENDS) == []


@pytest.mark.parametrize(
    ("spoilt", "text"),
    [
        (lambda: faults(ENDS, without(2), without(2), ENDS), "message 0:1 of the source was lost"),
        (lambda: faults(ENDS, without(1), without(1), ENDS), "transaction a has [0] of its 2 messages"),
        (lambda: faults(ENDS, [*RIGHT, (1, 2, "c 0 1 0:1")], RIGHT, ENDS), "message 0:1 is there 2 times"),
        (lambda: faults(ENDS, [*RIGHT, (1, 2, "c 0 1 0:7")], RIGHT, ENDS), "message 0:7 was never in the source"),
        (lambda: faults(ENDS, RIGHT, [*RIGHT, (0, 4, "z 0 1 9:9")], ENDS), "(4, 'z 0 1 9:9') was read meanwhile"),
        (lambda: faults(ENDS, RIGHT, without(0), ENDS), "(2, 'b 0 1 0:1') was read meanwhile"),
        (lambda: faults(ENDS, RIGHT, RIGHT, {0: 1, 1: 1}), "the group stands at {0: 1, 1: 1}"),
    ],
)
def test_each_kind_of_fault_is_found(spoilt: Callable[[], list[str]], text: str) -> None:
    assert any(text in line for line in spoilt())
