"""`barnabas examples` finds the folder of examples, or says where it is."""

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from support.command import barnabas_here

from barnabas.pipeline import examples_command


def test_examples_of_checkout_are_found_without_option() -> None:
    listed = json.loads(barnabas_here("examples", "list", "--json").stdout)
    assert "activity" in [each["name"] for each in listed]


def test_installation_without_examples_names_source_and_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples_command, "CHECKOUT_EXAMPLES", tmp_path / "examples" / "uses")
    for arguments in (["list"], ["run", "ads"]):
        missing = barnabas_here("examples", *arguments, expect=2).stderr.decode()
        assert "the examples are not part of the installed package" in missing
        assert f"barnabas-{version('barnabas')}.tar.gz, and give it by --from DIR" in missing


def test_examples_are_read_from_folder_of_option(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples_command, "CHECKOUT_EXAMPLES", tmp_path / "nothing")
    copy = shutil.copytree(checkout / "examples" / "uses", tmp_path / "copy")
    listed = barnabas_here("examples", "list", "--from", copy).stdout
    assert b"recommendations" in listed
    data = tmp_path / "data"
    missing = barnabas_here("examples", "run", "ads", "--from", copy, "--data", data, expect=2).stderr
    assert b"no apache_access_10k.log.gz in " in missing


def test_folder_without_examples_is_wrong_usage(tmp_path: Path) -> None:
    refused = barnabas_here("examples", "list", "--from", tmp_path, expect=2).stderr
    assert f"no examples in {tmp_path}: __init__.py is missing" in refused.decode()
