"""Finding plugins and asking them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from barnabas.core.client.producer.handlers import CallbackHandler, EventHandler
from barnabas.plugins import hookimpl
from barnabas.plugins.builtin.encoders import StringSerde
from barnabas.plugins.builtin.partitioners import RandomPartitioner
from barnabas.plugins.host import PluginHost
from barnabas.ports.errors import ConfigError


class Shouting:
    def encode(self, topic: str, value: Any) -> bytes | None:
        return str(value).upper().encode()


class Plugin:
    @hookimpl
    def barnabas_encoder(self, name: str) -> Shouting | None:
        return Shouting() if name in ("shouting", "string") else None

    @hookimpl
    def barnabas_names(self, kind: str) -> list[str]:
        return ["shouting"] if kind == "encoder" else []

    @hookimpl
    def barnabas_event_handler(self, name: str, config: Mapping[str, object]) -> EventHandler | None:
        if name != "mine":
            return None
        handler = EventHandler()
        handler.config = config  # type: ignore[attr-defined]  # for the test to look at
        return handler


def alone(*plugins: object) -> PluginHost:
    return PluginHost(plugins, load_entry_points=False)


PARAMETERS = {"consumed": ":billing", "key-prefix-age": ":user-=7d", "header-ttl": ":ttl-ms"}
"""Parameters of the policies that require one."""


def test_built_in_names_of_every_kind_can_be_made() -> None:
    host = alone()
    makers: dict[str, Callable[[str], object]] = {
        "encoder": host.encoder,
        "decoder": host.decoder,
        "partitioner": host.partitioner,
        "event_handler": host.event_handler,
        "callback_handler": host.callback_handler,
        "deletion_policy": host.deletion_policy,
        "rebalance_strategy": host.rebalance_strategy,
        "rebalancer": host.rebalancer,
        "replica_selector": host.replica_selector,
    }
    for kind, make in makers.items():
        assert host.known(kind)
        for name in host.known(kind):
            assert make(f"{name}{PARAMETERS.get(name, '')}") is not None


def test_built_in_codecs() -> None:
    codecs = alone().codecs()
    assert sorted(codecs.names) == ["gzip", "lz4", "snappy", "zstd"]
    assert codecs.by_id(4).name == "zstd"


def test_every_call_makes_a_new_object() -> None:
    host = alone()
    assert host.partitioner("sticky") is not host.partitioner("sticky")


def test_a_plugin_adds_names_and_wins_over_the_built_in_one_of_the_same_name() -> None:
    host = alone(Plugin())
    assert isinstance(host.encoder("shouting"), Shouting)
    assert isinstance(host.encoder("string"), Shouting)
    assert isinstance(alone().encoder("string"), StringSerde)
    assert "shouting" in host.known("encoder")


def test_handlers_get_their_config() -> None:
    handler = alone(Plugin()).event_handler("mine", {"a": 1})
    assert handler.config == {"a": 1}  # type: ignore[attr-defined]  # as above
    assert type(alone().callback_handler("default")) is CallbackHandler


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown encoder 'loud'; known: bytes, json, shouting, string"):
        alone(Plugin()).encoder("loud")
    with pytest.raises(ConfigError, match=r"unknown event handler 'x'; known: default"):
        alone().event_handler("x")


def test_a_misspelt_hook_is_an_error_that_names_the_plugin() -> None:
    class Misspelt:
        @hookimpl
        def barnabas_encodre(self, name: str) -> None: ...

    with pytest.raises(ConfigError, match=r"Misspelt.*barnabas_encodre"):
        alone(Misspelt())


def test_wrong_arguments_are_an_error_that_names_the_plugin() -> None:
    class Wrong:
        @hookimpl
        def barnabas_encoder(self, nmae: str) -> None: ...

    with pytest.raises(ConfigError, match=r"Wrong.*nmae"):
        alone(Wrong())


def test_a_plugin_that_raises_is_named() -> None:
    class Broken:
        @hookimpl
        def barnabas_partitioner(self, name: str) -> None:
            raise RuntimeError("boom")

        @hookimpl
        def barnabas_codecs(self) -> Sequence[object]:
            raise ConfigError("this text stays")

    host = alone(Plugin(), Broken())
    with pytest.raises(ConfigError, match=r"plugin Broken: barnabas_partitioner failed: RuntimeError\('boom'\)"):
        host.partitioner("random")
    with pytest.raises(ConfigError, match=r"^this text stays$"):
        host.codecs()


def test_the_same_plugin_twice_is_an_error() -> None:
    plugin = Plugin()
    with pytest.raises(ConfigError, match="Plugin"):
        alone(plugin, plugin)


def test_modules_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("some_plugin")

    @hookimpl
    def barnabas_partitioner(name: str) -> RandomPartitioner | None:
        return RandomPartitioner() if name == "dice" else None

    module.barnabas_partitioner = barnabas_partitioner  # type: ignore[attr-defined]  # as a module's function
    monkeypatch.setitem(sys.modules, "some_plugin", module)
    assert isinstance(alone("some_plugin").partitioner("dice"), RandomPartitioner)
    with pytest.raises(ConfigError, match="plugin no_such_plugin: cannot be imported"):
        alone("no_such_plugin")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a distribution whose entry point cannot be loaded."""
    info = tmp_path / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[barnabas]\nbroken = broken_plugin_module\n")
    (tmp_path / "broken_plugin_module.py").write_text("raise RuntimeError('boom')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_an_installed_plugin_that_cannot_be_loaded_is_named_and_can_be_blocked() -> None:
    with pytest.raises(ConfigError, match=r"plugin broken: .*boom.*add it to plugins.blocked"):
        PluginHost()
    assert "broken" not in PluginHost(blocked=["broken"]).names
    assert alone().names == ["builtin"]


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (5, "plugin int: 5 has no hooks"),
        (Shouting(), "plugin Shouting: .* has no hooks"),
        (pytest, "plugin pytest: .* has no hooks"),
        ("nowhere_to_be_found", "plugin nowhere_to_be_found: cannot be imported"),
    ],
)
def test_object_that_is_no_plugin_is_refused(plugin: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        alone(plugin)


def test_one_name_need_not_stand_in_a_list() -> None:
    with pytest.raises(ConfigError, match="plugin nowhere_to_be_found"):
        PluginHost("nowhere_to_be_found", load_entry_points=False)


class Wrong:
    @hookimpl
    def barnabas_encoder(self, name: str) -> object:
        return {"text": "shouting", "class": Shouting}.get(name)

    @hookimpl
    def barnabas_codecs(self) -> object:
        return ["gzip"]


def test_hook_result_is_checked_at_composition() -> None:
    host = alone(Wrong())
    with pytest.raises(ConfigError, match="encoder 'text': 'shouting' has no encode"):
        host.encoder("text")
    with pytest.raises(ConfigError, match=r"Shouting is a class; the hook is to give an object: Shouting\(\.\.\.\)"):
        host.encoder("class")
    with pytest.raises(ConfigError, match="codec '': 'gzip' has no id"):
        host.codecs()
