"""Entry points are read as `importlib.metadata` reads them."""

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.plugins.entry_points import entry_points

TEXT = """# a comment
[console_scripts]
other = other:main

[barnabas]
one = json:loads
 two = json.decoder:JSONDecoder.decode [extra]
"""


def distribution(folder: Path, name: str, text: str = TEXT) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "entry_points.txt").write_text(text)
    (folder / name / "METADATA").write_text(f"Name: {name.partition('-')[0]}\nVersion: 1\n")


def of_metadata(group: str) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in metadata.entry_points(group=group)]


@pytest.mark.parametrize("group", ["barnabas", "barnabas.commands", "barnabas.services", "console_scripts", "pytest11"])
def test_same_as_of_the_standard_library(group: str) -> None:
    found = [(each.name, each.value) for each in entry_points(group)]
    assert found
    assert sorted(found) == sorted(of_metadata(group))


def test_first_distribution_of_a_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "a", "some.thing-1.dist-info")
    distribution(tmp_path / "b", "Some_thing-2.dist-info", "[barnabas]\none = elsewhere:x\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "missing")])
    found = entry_points("barnabas")
    assert [(each.name, each.value) for each in found] == of_metadata("barnabas")
    assert [each.load().__name__ for each in found] == ["loads", "decode"]


def test_other_formats_are_left_to_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "old-1.egg-info")
    (tmp_path / "old-1.egg-info" / "PKG-INFO").write_text("Name: old\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert [each.name for each in entry_points("barnabas")] == ["one", "two"]
    (tmp_path / "archive.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "archive.zip")])
    assert entry_points("barnabas") == ()


def test_another_finder_of_distributions_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def find_distributions(context: object) -> list[metadata.Distribution]:
        asked.append(context)
        return []

    finder = SimpleNamespace(find_distributions=find_distributions, find_spec=lambda *_: None)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    entry_points("barnabas")
    assert asked
