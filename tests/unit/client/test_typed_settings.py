"""The typed settings of clients and brokers are those of the tables, in type checkers, signatures and docstrings."""

import inspect
import runpy
from pathlib import Path
from typing import Any, get_type_hints

import attrs
import pytest

import barnabas
from barnabas import Admin, AsyncConsumer, AsyncProducer, Broker, Consumer, ConsumerConnector, Producer, SimpleConsumer
from barnabas.app.clients.classic.producer_settings import ClassicConsumerSettings, ClassicProducerSettings
from barnabas.app.clients.shared import typed_settings
from barnabas.app.clients.shared.settings import (
    CommonSettings,
    ConsumerSettings,
    FetchSettings,
    ProducerSettings,
    read_settings,
)
from barnabas.app.config import EFFECTIVE_KEYS
from barnabas.app.config.security_settings import SecuritySettings
from barnabas.core.classic.consumer.settings import ConnectorSettings
from barnabas.ports.values import Secret
from barnabas.testing import TestBroker, TestCluster

TABLES: dict[type, type[attrs.AttrsInstance]] = {
    Producer: ProducerSettings,
    AsyncProducer: ProducerSettings,
    Consumer: ConsumerSettings,
    AsyncConsumer: ConsumerSettings,
    SimpleConsumer: FetchSettings,
    Admin: CommonSettings,
    ConsumerConnector: ConnectorSettings,
}
PARTS = {"security", "coordination_settings"}


@pytest.fixture(scope="module")
def tool(checkout: Path) -> dict[str, Any]:
    return runpy.run_path(str(checkout / "tools" / "typed_settings.py"))


def parameters_of(client: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(client).parameters)


def test_modules_of_typed_settings_are_those_of_the_tables(tool: dict[str, Any]) -> None:
    for path, text in tool["MODULES"].items():
        stored = path.read_text(encoding="utf-8")
        assert text() == stored, "run tools/typed_settings.py"


@pytest.mark.parametrize("client", TABLES, ids=lambda client: client.__name__)
def test_signature_of_a_client_has_each_setting_of_its_table_and_of_security(client: type) -> None:
    shown = parameters_of(client)
    wanted = {*attrs.fields_dict(TABLES[client]), *attrs.fields_dict(SecuritySettings)} - PARTS
    if client is SimpleConsumer:
        wanted -= {"decoder", "key_decoder"}  # it hands out bytes
    assert wanted - shown.keys() == set()
    assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in shown.values())


@pytest.mark.parametrize("client", TABLES, ids=lambda client: client.__name__)
def test_defaults_in_a_signature_are_those_without_the_setting(client: type) -> None:
    table = TABLES[client]
    given = {"groupid": "g"} if client is ConsumerConnector else {}
    plain = read_settings(table, None, given)
    for name, parameter in parameters_of(client).items():
        if name in attrs.fields_dict(table) and parameter.default is not None and name not in given:
            chosen = read_settings(table, None, {**given, name: parameter.default})
            assert getattr(chosen, name) == getattr(plain, name), name


@pytest.mark.parametrize(
    ("client", "tables"),
    [
        (Producer, [ProducerSettings, ClassicProducerSettings]),
        (Consumer, [ConsumerSettings]),
        (SimpleConsumer, [FetchSettings, ClassicConsumerSettings]),
        (Admin, [CommonSettings]),
        (ConsumerConnector, [ConnectorSettings]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_every_setting_in_a_signature_is_one_of_the_client(client: type, tables: list[type]) -> None:
    known = {name for table in (*tables, SecuritySettings) for name in attrs.fields_dict(table)}
    own = inspect.signature(client.__init__).parameters  # type: ignore[misc]  # a class
    strangers = parameters_of(client).keys() - known - own.keys()
    assert {name for name in strangers if not name.startswith(("zookeeper_", "etcd_"))} <= {"coordination"}


@pytest.mark.parametrize("broker", [Broker, TestBroker, TestCluster])
def test_signature_of_a_broker_has_each_key_with_its_default(broker: type) -> None:
    shown = parameters_of(broker)
    for key in EFFECTIVE_KEYS.values():
        if key.attribute not in ("listeners", "storage", "coordination"):
            assert shown[key.attribute].default == (None if isinstance(key.default, Secret) else key.default)


def test_signature_shows_words_instead_of_numbers() -> None:
    assert parameters_of(Producer)["acks"].default == "all"
    assert parameters_of(Consumer)["auto_offset_reset"].default == "latest"
    assert parameters_of(Consumer)["isolation_level"].default == "read_uncommitted"
    assert parameters_of(Producer)["linger_ms"].default == 5


def test_own_parameters_and_settings_of_the_client_come_first() -> None:
    names = list(parameters_of(Consumer))
    assert names[:6] == ["bootstrap", "decoder", "key_decoder", "plugins", "config", "group_id"]
    assert names.index("group_id") < names.index("client_id") < names.index("security_protocol")


def test_subclass_has_the_signature_of_its_own_constructor() -> None:
    class Mine(Producer):
        def __init__(self, topic: str) -> None:
            super().__init__("h:1")
            self.topic = topic

    class Further(Mine):
        pass

    class Renamed(Producer):
        pass

    assert list(parameters_of(Mine)) == list(parameters_of(Further)) == ["topic"]
    assert parameters_of(Renamed) == parameters_of(Producer)


def test_typed_dicts_are_exported_and_have_no_required_keys() -> None:
    for kind in (
        barnabas.ProducerKeywords,
        barnabas.ConsumerKeywords,
        barnabas.ClientKeywords,
        barnabas.BrokerKeywords,
        typed_settings.SimpleConsumerKeywords,
    ):
        assert kind.__required_keys__ == frozenset()
        assert get_type_hints(kind)


@pytest.mark.parametrize("client", [Producer, Consumer, SimpleConsumer, Admin, ConsumerConnector])
def test_docstring_of_a_client_lists_its_own_settings(client: type) -> None:
    doc = inspect.getdoc(client) or ""
    parameters = inspect.signature(client.__init__).parameters  # type: ignore[misc]  # a class
    own = [each.name for each in attrs.fields(TABLES[client]) if not each.inherited and each.name not in PARTS]
    unnamed = [name for name in own if f"`{name}`" not in doc and name not in parameters]
    assert [name for name in unnamed if client is not SimpleConsumer or "decoder" not in name] == []
