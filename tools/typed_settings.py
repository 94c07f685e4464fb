"""Writes app/clients/shared/typed_settings.py and app/typed_broker_settings.py: the settings as `TypedDict`s, for type
checkers and editors."""

import inspect
import runpy
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_type_hints

import attrs

from barnabas import Consumer, Producer, ShareConsumer
from barnabas.app.clients.classic.producer_settings import ClassicConsumerSettings, ClassicProducerSettings
from barnabas.app.clients.shared.settings import (
    CommonSettings,
    ConsumerSettings,
    FetchSettings,
    ProducerSettings,
    ShareConsumerSettings,
)
from barnabas.app.config import KEYS
from barnabas.app.config.coordination_keys import COORDINATION_KEYS
from barnabas.app.config.keys import ConfigKey
from barnabas.app.config.names import ALIASES, PREFIXES
from barnabas.app.config.security_settings import SecuritySettings
from barnabas.core.classic.consumer.settings import ConnectorSettings
from barnabas.ports.broker_api.configs import ConfigType
from barnabas.ports.values import Secret

ROOT = Path(__file__).parent.parent
LINE = 120
PARAMETERS = frozenset(
    {
        "encoder", "key_encoder", "decoder", "key_decoder", "partitioner", "event_handler", "callback_handler",
        "rebalance_strategy",
    }
)  # fmt: skip
"""Settings that are parameters of the clients, since their values may be objects."""
PARTS = frozenset({"security", "coordination_settings"})
"""Fields that stand for many settings."""
SPECIAL = {
    "acks": 'int | Literal["all"] | str',
    "auto_offset_reset": 'Literal["earliest", "latest", "none"] | str',
    "autooffset_reset": 'Literal["smallest", "largest", "earliest", "latest", "none"] | str',
    "group_protocol": 'Literal["classic", "consumer", "auto"] | str',
    "share_acknowledgement_mode": 'Literal["implicit", "explicit"] | str',
    "share_acquire_mode": 'Literal["batch_optimized", "record_limit"] | str',
    "isolation_level": 'Literal["read_uncommitted", "read_committed"] | str',
    "producer_type": 'Literal["sync", "async"] | str',
    "partition_assignment_strategy": "str | Assignor | Sequence[str | Assignor]",
    "sasl_oauth_token_provider": "Callable[[], str] | object",
    "ssl_context": "SSLContext",
    "ssl_endpoint_identification_algorithm": "str | bool",
    "compression_codec": "str | int",
    "coordination": "object",
    "connector": "object",
}
"""Settings whose type says less than the text that they are read from."""
KINDS = {int: "int", float: "float", bool: "bool", str: "str"}
BY_CONFIG_TYPE = {
    ConfigType.BOOLEAN: "bool | str",
    ConfigType.STRING: "str",
    ConfigType.INT: "int | str",
    ConfigType.SHORT: "int | str",
    ConfigType.LONG: "int | str",
    ConfigType.DOUBLE: "float | str",
    ConfigType.LIST: "str | Sequence[str]",
    ConfigType.CLASS: "str",
    ConfigType.PASSWORD: "str | Secret[str]",
}

docs_of = runpy.run_path(str(Path(__file__).parent / "configuration_reference.py"), run_name="reference")["docs_of"]


def type_of(name: str, hint: Any) -> str:
    """Return the annotation of a setting: what its parser takes, and None, which means that it is not given."""
    if name in SPECIAL:
        return f"{SPECIAL[name]} | None"
    if hint == Secret[str]:
        return "str | Secret[str] | None"
    plain = [each for each in get_args(hint) or (hint,) if each is not type(None)]
    if hint in KINDS or (len(plain) == 1 and plain[0] in KINDS):
        return f"{KINDS[plain[0]]} | None"
    if "Mapping" in str(hint):
        return "Mapping[str, object] | None"
    return "str | Sequence[str] | None"


def of_table(kind: type, without: frozenset[str] = frozenset()) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and text of the settings of a table."""
    docs, hints = docs_of(kind), get_type_hints(kind)
    for each in attrs.fields(kind):
        if each.name not in PARAMETERS | PARTS | without:
            yield each.name, type_of(each.name, hints[each.name]), docs[each.name]


def of_keys(keys: Mapping[str, ConfigKey], without: frozenset[str] = frozenset()) -> Iterator[tuple[str, str, str]]:
    """Yield name and type of keys of brokers; docs/configuration.md has their texts."""
    for key in sorted(keys.values(), key=lambda key: key.attribute):
        if key.attribute not in without:
            yield key.attribute, f"{BY_CONFIG_TYPE[key.type]} | None", ""


def class_of(name: str, bases: str, doc: str, settings: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    yield f"\n\nclass {name}({bases}, total=False):\n"
    yield f'    """{doc}"""\n\n'
    for setting, annotation, text in settings:
        yield f"    {setting}: {annotation}\n"
        if text:
            yield from docstring(text)


def docstring(text: str) -> Iterator[str]:
    text = text.replace("\\", "\\\\")
    quotes = "'''" if text.endswith('"') else '"""'
    line = "    " + quotes
    for number, word in enumerate(text.split()):
        glue = " " if number else ""
        if len(line) + len(glue) + len(word) > LINE:
            yield line + "\n"
            line = "    " + word
        else:
            line += glue + word
    if len(line) + 3 > LINE:
        yield line + "\n"
        line = "    "
    yield line + quotes + "\n"


def names(kind: type) -> frozenset[str]:
    return frozenset(each.name for each in attrs.fields(kind))


REGISTRIES = [
    ("zk_connect", "str | None", "HOST:PORT,.../CHROOT of the ZooKeeper with the registries."),
]
COORDINATION = (
    "coordination",
    "object",
    "The registries: a URL, a running `Broker`, or a callable that opens a session.",
)


def arguments(client: type) -> Iterator[tuple[str, str, str]]:
    """Yield the parameters of a client that are no settings."""
    for name, parameter in inspect.signature(client.__init__).parameters.items():  # type: ignore[misc]  # a class
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            kind = {"config": "Mapping[str, Any] | None", "plugins": "Plugins"}.get(name, "object")
            yield name, kind, f"See `{client.__name__}`."


def clients() -> str:
    """Return the module with the settings of clients."""
    common, fetch = names(CommonSettings), names(FetchSettings)
    classic = of_table(ClassicProducerSettings, names(ProducerSettings) | {"batch_size"})
    lines = [
        '"""The settings of clients as keyword arguments, with their types; made by tools/typed_settings.py.\n\n'
        "A type checker refuses misspelt names and wrong types, and an editor completes them. None means: not given.\n"
        '"""\n\n'
        "from collections.abc import Callable, Mapping, Sequence\n"
        "from ssl import SSLContext\n"
        "from typing import Any, Literal, TypedDict\n\n"
        "from ....core.client.group.assignor import Assignor\n"
        "from ....ports.values import Secret\n"
        "from .connect import Plugins\n"
    ]
    lines += class_of(
        "SecurityKeywords", "TypedDict", "TLS and SASL of the connections to brokers.", of_table(SecuritySettings)
    )
    lines += class_of(
        "RegistryKeywords",
        "TypedDict",
        "TLS and logins of the connections to the registries of the classic generation.",
        of_keys(COORDINATION_KEYS),
    )
    lines += class_of("ClientKeywords", "SecurityKeywords", "The settings of every client.", of_table(CommonSettings))
    lines += class_of(
        "ProducerKeywords", "ClientKeywords", "The settings of a `Producer`.", of_table(ProducerSettings, common)
    )
    lines += class_of(
        "AnyProducerKeywords",
        "ProducerKeywords, RegistryKeywords",
        "The settings of a `Producer`, and those that only the classic generation has.",
        iter([*classic, COORDINATION]),
    )
    lines += class_of(
        "FetchKeywords", "ClientKeywords", "The settings of fetches, of all consumers.", of_table(FetchSettings, common)
    )
    lines += class_of(
        "SimpleConsumerKeywords",
        "FetchKeywords",
        "The settings of a `SimpleConsumer`, and those that only the classic generation has.",
        of_table(ClassicConsumerSettings, fetch),
    )
    lines += class_of(
        "ConsumerKeywords", "FetchKeywords", "The settings of a `Consumer`.", of_table(ConsumerSettings, fetch)
    )
    lines += class_of(
        "ShareConsumerKeywords",
        "ClientKeywords",
        "The settings of a `ShareConsumer`.",
        of_table(ShareConsumerSettings, common),
    )
    lines += class_of(
        "ProducerArguments", "AnyProducerKeywords", "All keyword arguments of a `Producer`.", arguments(Producer)
    )
    lines += class_of(
        "ConsumerArguments", "ConsumerKeywords", "All keyword arguments of a `Consumer`.", arguments(Consumer)
    )
    lines += class_of(
        "ShareConsumerArguments",
        "ShareConsumerKeywords",
        "All keyword arguments of a `ShareConsumer`.",
        arguments(ShareConsumer),
    )
    lines += class_of(
        "ConnectorKeywords",
        "SecurityKeywords, RegistryKeywords",
        "The settings of a `ConsumerConnector`.",
        of_table(ConnectorSettings, frozenset({"zk_connect", "groupid"})),
    )
    return "".join(lines)


def other_names() -> Iterator[tuple[str, str, str]]:
    """Yield the names of Kafka that stand for another key."""
    for name in sorted({*ALIASES, *PREFIXES}):
        yield name.replace(".", "_"), "int | str | None", ""


def brokers() -> str:
    """Return the module with the settings of brokers."""
    lines = [
        '"""The settings of a broker as keyword arguments, with their types; made by tools/typed_settings.py."""\n\n'
        "from collections.abc import Sequence\n"
        "from typing import TypedDict\n\n"
        "from ..ports.values import Secret\n"
    ]
    lines += class_of(
        "BrokerKeywords",
        "TypedDict",
        "The settings of a `Broker`, with underscores for dots.",
        chain(of_keys(KEYS, frozenset({"listeners", "storage", "coordination"})), other_names()),
    )
    return "".join(lines)


MODULES = {
    ROOT / "app" / "clients" / "shared" / "typed_settings.py": clients,
    ROOT / "app" / "typed_broker_settings.py": brokers,
}


if __name__ == "__main__":
    for path, text in MODULES.items():
        path.write_text(text(), encoding="utf-8")
