"""`barnabas import` into brokers' folders, recorded; then the same command after a power cut at every moment of it.

With links, what is left has them again: whatever the same command does then must leave Kafka's files as they are.
"""

import copy
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import frozen
from crashes.examine_crashes import examine_crashes
from crashes.written import Broken
from support.command import barnabas_here
from support.kafka_folder import CLUSTER, ORDERS_0, SECURITY, KafkaDataDir, legacy_messages, segment_batch
from support.tree_nodes import nodes_of

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import SeededEntropy
from barnabas.app.compose.coordination import BUILT_IN
from barnabas.core.log.manager.broker_epoch_file import BROKER_EPOCH
from barnabas.core.log.manager.meta_properties import IMPORT_INCOMPLETE, META_PROPERTIES
from barnabas.core.tree.tree import Tree
from barnabas.ports.coordination import CoordinationBackend
from barnabas.testing.crashes import Crash, Made, Recording

REPLICATED = *CLUSTER[:-1], ORDERS_0.replace("5c0200000001", "5c030000000100000002")
WHERE = "kept://import"
_OF_A_RUN = {META_PROPERTIES, BROKER_EPOCH}
STEPS = 70
"""About as many system calls and changes of the tree has an import of the story."""


class Killed(BaseException):
    """The process has died."""


@frozen
class TreeHas:
    """The coordination service, which is another machine, has these nodes from now on."""

    nodes: Tree


class ImportStory:
    """One seed: a command that runs to its end, for odd seeds after one that was killed at a step.

    Four of eight link.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self._entropy = SeededEntropy(f"import/{seed}")
        self._is_killed_first = bool(seed % 2)
        self._brokers = 1 + seed // 2 % 2
        self.links = bool(seed // 4 % 2)
        self.tree = MemoryTree()
        folder.mkdir()
        self.source = KafkaDataDir(folder / "kafka")
        self.source.add_metadata([*(REPLICATED if self._brokers == 2 else CLUSTER), *SECURITY])
        old = {3: segment_batch([b"d"], 3) + legacy_messages([4])} if seed % 3 == 0 else {}
        self.source.add_partition("orders-0", {0: segment_batch([b"a", b"b"], 0), 2: segment_batch([b"c"], 2), **old})
        if self.links:
            (self.source.path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 2\n")
        (folder / "target").mkdir()
        self.recording = Recording(folder / "target")

    def run(self) -> None:
        """Run the command in the tree as it is. Raises `Broken` if it does not end well."""
        into = []
        for number in range(1, self._brokers + 1):
            into += ["--into", f"{number}={self.recording.folder / str(number)}"]
        into += ["--link"] if self.links else []
        backend = CoordinationBackend(open=lambda _request: self.tree.session())
        try:
            with patch.dict(BUILT_IN, kept=backend):
                ended = barnabas_here("import", self.source.path, *into, "--coordination", WHERE, "--json")
        except AssertionError as error:
            raise Broken(f"the same command fails: {error}") from None
        report = json.loads(ended.stdout)
        if not report["executed"]:
            raise Broken("the same command has done nothing")
        if bool(report["copied"]["linked_segments"]) != self.links:
            raise Broken(f"the same command has linked {report['copied']['linked_segments']} segments")

    def play(self) -> None:
        with self.recording:
            if self._is_killed_first:
                with suppress(Killed), self._recorded_tree(self._entropy.below(STEPS)):
                    self.run()
            with self._recorded_tree(None):
                self.run()
            self.recording.note(TreeHas(copy.deepcopy(self.tree.nodes)))

    def _recorded_tree(self, dies_at: int | None) -> Any:
        change, steps = self.tree.change, [0]

        def changed(*args: Any, **kwargs: Any) -> Any:
            steps[0] += 1
            if dies_at is not None and len(self.recording.operations) - self.recording.began >= dies_at:
                raise Killed
            found = change(*args, **kwargs)
            self.recording.note(TreeHas(copy.deepcopy(self.tree.nodes)))
            return found

        return patch.object(self.tree, "change", changed)

    def link_again(self, crash: Crash) -> None:
        """Make what a crash has left of linked files links again."""
        linked = {
            each.name: each.content for each in self.recording.operations if isinstance(each, Made) and each.content
        }
        for path, content in crash.left.files.items():
            file = self.recording.folder / path
            if linked.get(file.name) == content:
                file.unlink()
                os.link(self.source.path / "orders-0" / file.name, file)

    def content(self) -> Mapping[str, bytes]:
        """Return the files of all brokers, without the contents that each run chooses."""
        folder = self.recording.folder
        return {
            str(path.relative_to(folder)): path.read_bytes() if path.name not in _OF_A_RUN else b""
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != ".lock"
        }


def try_import_crashes(seed: int, folder: Path, points: int) -> int:
    """Play a story and examine at most `points` crashes of it; return how many there were."""
    story = ImportStory(seed, folder / "story")
    kafkas = story.source.contents()
    story.play()
    expected, complete = story.content(), nodes_of(story.tree).keys()
    shutil.rmtree(story.recording.folder)

    def examine(place: Path, crash: Crash) -> None:
        trees = [each.nodes for each in crash.noted if isinstance(each, TreeHas)]
        story.link_again(crash)
        story.tree = MemoryTree()
        if trees:
            story.tree.nodes = copy.deepcopy(trees[-1])
        served = _served(place, expected, story.content())
        if served and nodes_of(story.tree).keys() != complete:
            raise Broken(f"half: a broker starts on {served}, and the tree does not have all")
        story.run()
        if nodes_of(story.tree).keys() != complete:
            raise Broken("the same command ends with another tree")
        if (found := story.content()) != expected:
            names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
            raise Broken(f"the same command ends with something else: {names}")
        if story.source.contents() != kafkas:
            raise Broken("Kafka's folder has changed")

    return examine_crashes(story.recording, seed, story.recording.folder, points, examine)


def _served(place: Path, expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> list[str]:
    """Return the folders on which a broker would start. Raises `Broken` for one that does not have all."""
    served = []
    for folder in (each for each in place.iterdir() if each.is_dir()):
        own = {name for name in found if name.startswith(f"{folder.name}/")}
        if (folder / IMPORT_INCOMPLETE).exists() or own <= {f"{folder.name}/{IMPORT_INCOMPLETE}.new"}:
            continue  # refused, or nothing is there
        names = own | {name for name in expected if name.startswith(f"{folder.name}/")}
        if wrong := sorted(name for name in names if found.get(name) != expected.get(name)):
            raise Broken(f"half: a broker starts on {folder.name}, where {wrong} are not as they should be")
        served.append(folder.name)
    return served
