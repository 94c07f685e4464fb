"""`barnabas import` that was interrupted: the same command continues it, and what comes out is as if nothing was."""

import json
import operator
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from attrs import define
from support.command import Command
from support.kafka_folder import CLUSTER, ORDERS_0, SECURITY, KafkaDataDir, segment_batch
from support.tree_nodes import nodes_of

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.app.compose.coordination import BUILT_IN
from barnabas.app.embedded_broker import Broker
from barnabas.core.cluster import layout
from barnabas.core.cluster.brokers import next_broker_epoch
from barnabas.core.cluster.topic_store import create_topic
from barnabas.core.cluster.topics import Topic
from barnabas.core.log.manager.meta_properties import IMPORT_INCOMPLETE
from barnabas.ports.coordination import CoordinationBackend, NoNode
from barnabas.ports.errors import ConfigError

WHERE = "kept://here"
REPLICATED = *CLUSTER[:-1], ORDERS_0.replace("5c0200000001", "5c030000000100000002")
LOG = f"{0:020d}.log"


class Killed(BaseException):
    """The process has died."""


@define
class Kill:
    """Lets the process die at the first step where this is so: nothing that it does from then on has an effect."""

    when: Callable[[int], bool]
    steps: int = 0
    is_dead: bool = False
    is_asked: bool = False

    def step(self) -> None:
        if self.is_asked:
            return  # `when` itself does something
        self.steps += 1
        self.is_asked = True
        self.is_dead = self.is_dead or self.when(self.steps)
        self.is_asked = False
        if self.is_dead:
            raise Killed

    @contextmanager
    def steps_counted(self, tree: MemoryTree) -> Iterator[None]:
        """Count what changes the disk or the tree; each of these steps is the last one that has no effect."""

        def counting(real: Any) -> Any:
            def counted(*args: Any, **kwargs: Any) -> Any:
                self.step()
                return real(*args, **kwargs)

            return counted

        names = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "link", "copy_file_range", "writev")
        with (
            patch.multiple(os, **{name: counting(getattr(os, name)) for name in names}),
            patch.object(tree, "change", counting(tree.change)),
        ):
            yield


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> MemoryTree:
    """A coordination tree that outlives sessions, at `WHERE`."""
    made = MemoryTree()
    monkeypatch.setitem(BUILT_IN, "kept", CoordinationBackend(open=lambda _request: made.session()))
    return made


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def source(tmp_path: Path) -> KafkaDataDir:
    made = KafkaDataDir(tmp_path / "kafka")
    made.add_metadata([*REPLICATED, *SECURITY])
    made.add_partition("orders-0", {0: segment_batch([b"a", b"b"], 0), 2: segment_batch([b"c"], 2)})
    return made


def words(source: Path, target: Path, brokers: int = 2) -> list[str]:
    into = [word for number in range(1, brokers + 1) for word in ("--into", f"{number}={target / str(number)}")]
    return ["import", str(source), *into, "--coordination", WHERE, "--json"]


def content(folder: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in {".lock", "meta.properties"}
    }


def state_of(folder: Path) -> Mapping[Path, tuple[bytes, int]]:
    """Return what is in the files of Kafka, and when each was changed."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def empty(tree: MemoryTree) -> None:
    session = tree.session()
    paths = [*nodes_of(tree), layout.BROKER_EPOCHS] if nodes_of(tree) else []
    for path in sorted(paths, reverse=True):
        with suppress(NoNode):
            session.delete(path)
    session.close()


def killed(when: Callable[[int], bool], barnabas: Command, tree: MemoryTree, *given: str) -> bool:
    """Run the command, which dies as soon as this is so; False: it ends before."""
    kill = Kill(when)
    try:
        with kill.steps_counted(tree):
            barnabas(*given)
    except Killed:
        return True
    return False


def killed_with_node(path: str, barnabas: Command, tree: MemoryTree, *given: str) -> None:
    """Let the command die as soon as the tree has this node."""
    assert killed(lambda _step: path in nodes_of(tree), barnabas, tree, *given)


@pytest.mark.parametrize("every", [pytest.param(37, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("link", [False, True])
def test_import_that_dies_at_a_step_is_completed_by_the_same_command(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path, *, link: bool, every: int
) -> None:
    (source.path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 2\n")
    more = ["--link"] if link else []
    barnabas(*words(source.path, tmp_path / "whole"), *more)
    expected = [(content(tmp_path / "whole"), nodes_of(tree))]
    empty(tree)
    with closing(tree.session()) as session:
        next_broker_epoch(session)  # as when it dies after it has drawn one
    barnabas(*words(source.path, tmp_path / "later"), *more)
    expected.append((content(tmp_path / "later"), nodes_of(tree)))
    kafkas = state_of(source.path)
    step, died = 1 + every // 2, True
    while died:
        empty(tree)
        target = tmp_path / f"target-{step}"
        again = words(source.path, target)
        died = killed(partial(operator.eq, step), barnabas, tree, *again, *more)
        if died and (content(target), nodes_of(tree)) not in expected:
            noted = [path for path in sorted(target.rglob(LOG)) if is_noted(path)]
            before = [path.stat().st_ino for path in noted]
            barnabas(*again, *more)
            assert [path.stat().st_ino for path in noted] == before, f"copied twice after step {step}"
        assert (content(target), nodes_of(tree)) in expected, f"after step {step}"
        shutil.rmtree(target)
        step += every
    assert state_of(source.path) == kafkas, "Kafka's folder has changed"
    assert step > 70, "the steps are not counted"


def is_noted(log: Path) -> bool:
    """Return True if the mark of the data folder says that this partition is whole."""
    mark = log.parents[1] / IMPORT_INCOMPLETE
    return mark.exists() and f'"partition": "{log.parent.name}"'.encode() in mark.read_bytes()


def test_import_that_dies_twice_keeps_what_both_have_copied(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path
) -> None:
    barnabas(*words(source.path, tmp_path / "whole"))
    expected = content(tmp_path / "whole"), nodes_of(tree)
    for step in (35, 70):
        empty(tree)
        again = words(source.path, tmp_path / f"target-{step}")
        assert killed(partial(operator.eq, step), barnabas, tree, *again)
        killed(partial(operator.eq, step // 2 + 7), barnabas, tree, *again)
        barnabas(*again)
        assert (content(tmp_path / f"target-{step}"), nodes_of(tree)) == expected, step


def test_partition_that_kafka_has_changed_since_is_copied_again(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = words(source.path, tmp_path)
    killed_with_node(layout.topic_path("orders"), barnabas, tree, *again)
    with (source.path / "orders-0" / f"{2:020d}.log").open("ab") as log:
        log.write(segment_batch([b"d"], 3))
    (source.path / "__cluster_metadata-0" / LOG).unlink()
    (source.path / "__cluster_metadata-0").rmdir()
    source.add_metadata([*REPLICATED[:-2], REPLICATED[-1], *SECURITY])  # a setting of the topic is gone, too
    caplog.clear()
    ended = barnabas(*again)
    assert json.loads(ended.out)["copied"]["copied_before"] == 0
    assert "removed, since they were not whole: orders-0" in caplog.text
    assert "topic orders has changed since the import was interrupted" in caplog.text
    for broker in ("1", "2"):
        assert (tmp_path / broker / "orders-0" / f"{2:020d}.log").read_bytes().endswith(segment_batch([b"d"], 3))
    assert layout.topic_config_path("orders") not in nodes_of(tree)


def test_topic_of_another_is_not_touched(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path
) -> None:
    again = words(source.path, tmp_path)
    killed_with_node("/barnabas/import", barnabas, tree, *again)
    session = tree.session()
    create_topic(session, Topic(name="orders", topic_id=bytes(range(1, 17)), partitions={0: (1,)}))
    before = nodes_of(tree)
    ended = barnabas(*again, expect=2)
    assert "already has topic orders, which this import did not create" in ended.err
    assert nodes_of(tree) == before


def test_other_command_is_refused_where_the_tree_has_a_part(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path
) -> None:
    killed_with_node(layout.topic_path("orders"), barnabas, tree, *words(source.path, tmp_path / "first"))
    before = nodes_of(tree)
    ended = barnabas(*words(source.path, tmp_path / "second"), expect=2)
    assert "a part of the cluster of an interrupted import" in ended.err
    assert nodes_of(tree) == before


def test_other_command_takes_folders_where_the_tree_has_nothing(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = words(source.path, tmp_path / "data")
    killed_with_node("/barnabas/import", barnabas, tree, *first)
    other = KafkaDataDir(tmp_path / "other")
    other.add_metadata([*CLUSTER, *SECURITY])
    other.add_partition("orders-0", {0: segment_batch([b"other"], 0)})
    barnabas(*words(other.path, tmp_path / "data"))
    assert f"removed what an interrupted import of {source.path} has left" in caplog.text
    assert content(tmp_path / "data")[f"1/orders-0/{LOG}"] == segment_batch([b"other"], 0)
    assert "not empty" in barnabas(*first, expect=2).err


def test_ids_that_an_interrupted_import_has_made_stay(barnabas: Command, tree: MemoryTree, tmp_path: Path) -> None:
    """Folders of Kafka before 2.8 have no topic ids."""
    source = KafkaDataDir(tmp_path / "old", version=0)
    source.add_partition("logs-0", {0: segment_batch([b"a"], 0)}, topic_id=None)
    again = words(source.path, tmp_path)
    killed_with_node(layout.topic_path("logs"), barnabas, tree, *again)
    made = content(tmp_path)["1/logs-0/partition.metadata"]
    barnabas(*again)
    assert content(tmp_path)["1/logs-0/partition.metadata"] == made
    topic, _ = layout.decode_topic("logs", nodes_of(tree)[layout.topic_path("logs")], {})
    assert layout.encode_id(topic.topic_id).encode() in made


def test_folder_that_is_whole_may_be_in_use_while_the_others_are_completed(
    barnabas: Command, source: KafkaDataDir, tree: MemoryTree, tmp_path: Path
) -> None:
    again = words(source.path, tmp_path)
    first = tmp_path / "1"

    def whole(_step: int) -> bool:
        return (first / "meta.properties").exists() and not (first / IMPORT_INCOMPLETE).exists()

    assert killed(whole, barnabas, tree, *again)
    with pytest.raises(ConfigError, match="run the same 'barnabas import' again"):
        Broker(tmp_path / "2", broker_id=2, coordination=WHERE, listeners=["kafka://127.0.0.1:0"]).start()
    with Broker(tmp_path / "1", broker_id=1, coordination=WHERE, listeners=["kafka://127.0.0.1:0"]):
        assert json.loads(barnabas(*again).out)["executed"]
    assert not (tmp_path / "2" / IMPORT_INCOMPLETE).exists()
