"""The adapter passes the suite of its port, and a broker runs on it: `pytest examples/own_adapter`."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from own_adapter.json_coordination import JsonCoordination

from barnabas import Broker, Consumer, Producer, outside_of
from barnabas.ports.coordination import CoordinationError
from barnabas.testing.contracts.coordination import CoordinationContract, Harness, Opened, machine_for


class JsonHarness(Harness):
    several_sessions = False  # the file is for one
    faults = frozenset()  # there is no service that could be cut off

    def __init__(self, path: Path) -> None:
        self._session = JsonCoordination(path, report=_ignore)

    def session(self) -> JsonCoordination:
        return self._session


def _ignore(text: str) -> None:
    """The suite makes watches raise on purpose."""


class TestJsonCoordination(CoordinationContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[JsonHarness]:
        harness = JsonHarness(tmp_path / "tree.json")
        yield harness
        harness.session().close()


def _open_fresh() -> Opened:
    folder = TemporaryDirectory()
    path = Path(folder.name) / "tree.json"
    opened = [JsonCoordination(path)]

    def reopen() -> JsonCoordination:
        opened.pop().close()
        opened.append(JsonCoordination(path))
        return opened[0]

    def close() -> None:
        opened.pop().close()
        folder.cleanup()

    return Opened(opened[0], reopen, close)


TestJsonMachine = machine_for(_open_fresh).TestCase
TestJsonMachine.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


def test_a_broker_finds_its_topics_again(tmp_path: Path) -> None:
    def outside(config: Any, **given: Any) -> Any:
        return outside_of(config, **given, open_coordination=lambda: JsonCoordination(tmp_path / "tree.json"))

    with Broker(tmp_path / "data", outside=outside) as broker, Producer(broker.bootstrap) as producer:
        producer.send("orders", b"one").result()
    with Broker(tmp_path / "data", outside=outside) as broker, Consumer(broker.bootstrap) as consumer:
        consumer.assign("orders", position="earliest")
        assert [message.value for message in consumer.messages(stop_at_end=True)] == [b"one"]


def test_a_damaged_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    for damage in ("{", "[1]", '{"/a": 5}', '{"/a": ["!", "x"]}', '{"no slash": ["", 0]}'):
        path.write_text(damage)
        with pytest.raises(CoordinationError, match="move it away"):
            JsonCoordination(path)
