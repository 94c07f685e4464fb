"""A group of connectors that shares out partitions by a strategy of the user's own."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.waiting import wait_for

from barnabas import Broker, BrokerPartition, ConsumerConnector, Producer
from barnabas.core.classic.consumer.settings import ConsumerRebalanceFailed
from barnabas.ports.errors import ConfigError

PLUGIN = """
from barnabas.plugins import hookimpl

class TurnByTurn:
    def assign(self, threads, places):
        takers = sorted(threads)
        return {thread: sorted(places)[number :: len(takers)] for number, thread in enumerate(takers)}

@hookimpl
def barnabas_rebalancer(name):
    return TurnByTurn() if name == "turn_by_turn" else None

@hookimpl
def barnabas_names(kind):
    return ["turn_by_turn"] if kind == "rebalancer" else []
"""
QUICK: dict[str, Any] = {"groupid": "g", "fetcher_backoff_ms": 5, "rebalance_backoff_ms": 20}


@pytest.fixture(scope="module")
def broker() -> Any:
    config = {"message.format": "classic", "num.partitions": 5, "log.flush.interval.messages": 1}
    broker = Broker(storage="memory", listeners=["classic://127.0.0.1:0"], config=config)
    with broker, Producer(f"classic://{broker.bootstrap}") as producer:
        producer.send("t", b"there").result()
        yield broker


@pytest.fixture
def module() -> ModuleType:
    made = ModuleType("turns")
    exec(PLUGIN, made.__dict__)
    return made


def shares_of(broker: Broker, stack: ExitStack, **settings: Any) -> list[list[int]]:
    """Return the partitions of two members of a group after their rebalance: the numbers, by consumer id."""
    members = []
    for name in ("a", "b"):
        connector = ConsumerConnector(coordination=broker, consumerid=name, **(QUICK | settings))
        stack.callback(connector.shutdown)
        connector.create_message_streams({"t": 1})
        members.append(connector)

    def found() -> list[list[int]]:
        return [sorted(place.partition for _, place in member.owned()) for member in members]

    wait_for(lambda: all(found()) and sorted(chain(*found())) == [0, 1, 2, 3, 4])
    return found()


def test_ranges_are_the_default(broker: Broker) -> None:
    with ExitStack() as stack:
        assert shares_of(broker, stack) == [[0, 1, 2], [3, 4]]


def test_a_strategy_by_its_name_from_a_module(
    broker: Broker, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "turns", module)
    with ExitStack() as stack:
        config = {"rebalance.strategy": "turn_by_turn"}
        assert shares_of(broker, stack, plugins=["turns"], config=config) == [[0, 2, 4], [1, 3]]


def test_a_strategy_as_an_object(broker: Broker, module: ModuleType) -> None:
    with ExitStack() as stack:
        assert shares_of(broker, stack, rebalance_strategy=module.TurnByTurn()) == [[0, 2, 4], [1, 3]]


def test_a_strategy_by_its_name_from_an_entry_point(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "turns_of_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turns-of-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[barnabas]\nturns = turns_of_mine\n")
    (tmp_path / "turns_of_mine.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with ExitStack() as stack:
        stack.callback(sys.modules.pop, "turns_of_mine", None)
        assert shares_of(broker, stack, rebalance_strategy="turn_by_turn") == [[0, 2, 4], [1, 3]]


def test_an_unknown_name_lists_the_known_ones(broker: Broker, module: ModuleType) -> None:
    with pytest.raises(ConfigError, match="unknown rebalancer 'fair'; known: range, turn_by_turn"):
        ConsumerConnector(coordination=broker, rebalance_strategy="fair", plugins=[module], **QUICK)
    with pytest.raises(ConfigError, match=r"rebalance.strategy: .* has no assign, see Rebalancer"):
        ConsumerConnector(coordination=broker, rebalance_strategy=object(), **QUICK)  # type: ignore[arg-type]


class Greedy:
    def assign(
        self, threads: Sequence[str], places: Sequence[BrokerPartition]
    ) -> Mapping[str, Sequence[BrokerPartition]]:
        return {threads[0]: [*places, BrokerPartition(99, 0)]}


def test_a_strategy_that_answers_nonsense_fails_the_rebalance_and_is_named(broker: Broker) -> None:
    settings: dict[str, Any] = {**QUICK, "rebalance_retries_max": 2, "rebalance_strategy": Greedy()}
    with (
        ConsumerConnector(coordination=broker, **settings) as connector,
        pytest.raises(ConsumerRebalanceFailed, match="Greedy answers for topic t with partition 99-0"),
    ):
        connector.create_message_streams({"t": 1})
