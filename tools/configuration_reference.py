"""Writes the tables of docs/configuration.md: keys, settings of clients, options of commands, as the code has them."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import attrs
from typer.models import ArgumentInfo, OptionInfo

from barnabas.app.cli.mirror import mirror
from barnabas.app.clients.classic.producer_settings import (
    ClassicConsumerSettings,
    ClassicProducerSettings,
    RegistrySettings,
)
from barnabas.app.clients.shared.foreign_settings import OTHER_NAMES
from barnabas.app.clients.shared.settings import (
    CommonSettings,
    ConsumerSettings,
    FetchSettings,
    ProducerSettings,
    ShareConsumerSettings,
)
from barnabas.app.config import EFFECTIVE_KEYS, GROUP_KEYS, TOPIC_KEYS
from barnabas.app.config.ignored_keys import IGNORED_KEYS, NO_EFFECT
from barnabas.app.config.keys import DOUBLE_MAX, INT_MAX, LONG_MAX, ConfigKey
from barnabas.app.config.names import ALIASES, PREFIXES, REFUSED, REFUSED_PREFIXES
from barnabas.app.config.security_settings import SecuritySettings
from barnabas.core.classic.consumer.settings import ConnectorSettings
from barnabas.ports.broker_api.configs import ConfigType
from barnabas.ports.values import Secret
from barnabas.schemas.registry.commands import registry
from barnabas.testing import CLUSTER_DEFAULTS, TEST_DEFAULTS

BAR = r"\|"
COLUMNS = ("Key", "Default", "What it does")
PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def page() -> str:
    """Return the whole page: the part between the marks is generated, the rest is as it was."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise LookupError(f"{PAGE.name} has no {begin.strip()} with its end")
        text = before + begin + "\n".join(table()) + "\n" + end + after
    return text


def _brokers() -> Iterator[str]:
    yield from _table(COLUMNS, map(_row, EFFECTIVE_KEYS.values()))


def _topics() -> Iterator[str]:
    rows = (
        (
            f"`{name}`",
            _default(topic.key),
            _explained(topic.key.doc, _allowed(topic.key), f"broker: `{topic.twin}`" if topic.twin else ""),
        )
        for name, topic in TOPIC_KEYS.items()
    )
    yield from _table(COLUMNS, rows)


def _groups() -> Iterator[str]:
    rows = (
        (
            f"`{name}`",
            _default(group.key),
            _explained(
                group.key.doc,
                _allowed(group.key) if group.bounds is None else " to ".join(f"`{bound}`" for bound in group.bounds),
                f"broker: `{group.twin}`" if group.twin else "",
            ),
        )
        for name, group in GROUP_KEYS.items()
    )
    yield from _table(COLUMNS, rows)


def _ignored() -> Iterator[str]:
    for number, (reason, keys) in enumerate(_by_reason().items()):
        yield ("\n" if number else "") + f"{reason[0].upper()}{reason[1:]}\n"
        rows = ((f"`{key.name}`", _default(key), _allowed(key)) for key in keys)
        yield from _table(("Key", "Default", "Allowed"), rows)


def _names() -> Iterator[str]:
    meanings = {
        name: f"`{key}`" + (f", in units of {factor}" if factor != 1 else "") for name, (key, factor) in ALIASES.items()
    }
    meanings |= {name: f"`{key}={prefix}...`" for name, (key, prefix) in PREFIXES.items()}
    yield from _table(("Name", "Stands for"), ((f"`{name}`", meanings[name]) for name in sorted(meanings)))


def _refused() -> Iterator[str]:
    yield from _table(("Key", "Why"), ((f"`{name}`", REFUSED[name]) for name in sorted(REFUSED)))
    yield from (f"| `{prefix}*` | {why} |" for prefix, why in sorted(REFUSED_PREFIXES.items()))


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(header)
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |"


def _explained(doc: str, *details: str) -> str:
    """Return the text of a key with its type, its bounds and its other names in a smaller line below it."""
    said = " · ".join(filter(None, details))
    return f"{doc} <small>{said}</small>" if said else doc


def _row(key: ConfigKey) -> tuple[str, ...]:
    kind = key.type.name.lower() + (", dynamic" if key.dynamic else "")
    topic = ", ".join(f"`{name}`" for name, of_topic in TOPIC_KEYS.items() if of_topic.twin == key.name)
    also = [f"`{name}`" for name, (stands_for, _) in ALIASES.items() if stands_for == key.name]
    also += [f"`{name}`" for name, (stands_for, _) in PREFIXES.items() if stands_for == key.name]
    details = (kind, _allowed(key), topic and f"topic: {topic}", also and f"also {', '.join(sorted(also))}")
    return f"`{key.name}`", _default(key), _explained(key.doc, *(each or "" for each in details))


def _default(key: ConfigKey) -> str:
    text = key.text(key.default)
    return f"`{text}`" if text else "unset" if text is None else "empty"


def _allowed(key: ConfigKey) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.type not in (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE):
        return ""
    low = "" if key.low is None or key.low <= -INT_MAX else f"from {key.low:g}"
    high = "" if key.high is None or key.high in (INT_MAX, LONG_MAX, DOUBLE_MAX) else f"to {key.high:g}"
    return " ".join(filter(None, (low, high)))


def _by_reason() -> dict[str, list[ConfigKey]]:
    found: dict[str, list[ConfigKey]] = {}
    for key in IGNORED_KEYS.values():
        found.setdefault(key.doc.removeprefix(f"{NO_EFFECT}: "), []).append(key)
    return found


# --- clients


def _settings(kind: type, without: type | None = None) -> Iterator[str]:
    """Yield the table of one class of settings; `without` those that it inherits from another one."""
    left_out = {"security", "coordination_settings"} | {each.name for each in attrs.fields(without or kind) if without}
    docs, hints = docs_of(kind), get_type_hints(kind)
    aliases: dict[str, list[str]] = {}
    for alias, name in {**OTHER_NAMES, **getattr(kind, "ALIASES", {})}.items():
        aliases.setdefault(name, []).append(f"`{alias}`")
    rows = [
        (
            f"`{each.name.replace('_', '.')}`",
            _default_text(each),
            _explained(
                docs[each.name],
                _type_text(each.name, hints[each.name]),
                _allowed_text(each),
                f"also {', '.join(sorted(aliases[each.name]))}" if each.name in aliases else "",
            ),
        )
        for each in attrs.fields(kind)
        if each.name not in left_out
    ]
    yield from _table(COLUMNS, rows)


def docs_of(kind: type) -> dict[str, str]:
    """Return the text that follows each field in the source. Raises `LookupError` for a field without one."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if attrs.has(cls):
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            assert isinstance(body, ast.ClassDef)
            for field, after in zip(body.body, [*body.body[1:], ast.Pass()], strict=True):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    match after:
                        case ast.Expr(value=ast.Constant(value=str(text))):
                            found[field.target.id] = " ".join(text.split())
    missing = [each.name for each in attrs.fields(kind) if each.name not in found]
    if missing:
        raise LookupError(f"{kind.__name__}: say in a line below it what {missing[0]} is for")
    return found


_WORDS = {"isolation_level": {0: "read_uncommitted", 1: "read_committed"}}
"""Fields that keep a number for a word."""


def _type_text(name: str, hint: Any) -> str:
    if name in _WORDS or (isinstance(hint, type) and issubclass(hint, Enum)):
        return "string"
    kinds = {int: "int", float: "number", bool: "boolean", str: "string"}
    if hint == Secret[str]:
        return "password"
    plain = [each for each in get_args(hint) or (hint,) if each is not type(None)]
    if plain[0] in kinds and getattr(hint, "__origin__", None) is None:
        return kinds[plain[0]]
    return "mapping" if getattr(hint, "__origin__", None) is Mapping.__class__ or "Mapping" in str(hint) else "list"


def _default_text(field: "attrs.Attribute[Any]") -> str:
    value = field.default
    if isinstance(value, attrs.Factory) or value is attrs.NOTHING:  # type: ignore[arg-type]  # a class, to attrs too
        return "see there"
    if field.name in _WORDS:
        value = _WORDS[field.name][int(str(value))]
    if value is None or isinstance(value, Secret):
        return "unset"
    if isinstance(value, Enum):
        value = value.name.lower()
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "empty" if text in ("", "{}") else f"`{text}`"


def _allowed_text(field: "attrs.Attribute[Any]") -> str:
    if field.name in _WORDS:
        return ", ".join(f"`{word}`" for word in _WORDS[field.name].values())
    if isinstance(field.default, Enum):
        return ", ".join(f"`{each.name.lower()}`" for each in type(field.default))
    bound, options = getattr(field.validator, "bound", None), getattr(field.validator, "options", None)
    if options is not None:
        return ", ".join(f"`{option}`" for option in options if option)
    return f"from {bound:g}" if isinstance(bound, int | float) else ""


# --- commands and tests


def _options(command: Callable[..., None]) -> Iterator[str]:
    rows = []
    for name, parameter in inspect.signature(command).parameters.items():
        info = next((each for each in get_args(parameter.annotation) if isinstance(each, OptionInfo)), None)
        assert info is not None and not isinstance(info, ArgumentInfo), name
        # In an annotation the first name stands where the default would.
        named = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
        said = [each for each in named if each.startswith("--")] or [f"--{name.replace('_', '-')}"]
        default = parameter.default
        shown = (
            "needed" if default is inspect.Parameter.empty else "" if default in (None, False, "") else f"`{default}`"
        )
        names = " ".join(filter(None, (said[0], info.metavar if isinstance(info.metavar, str) else "")))
        also = f"also {', '.join(f'`{each}`' for each in said[1:])}" if said[1:] else ""
        rows.append((f"`{names}`", shown, _explained(info.help or "", also)))
    yield from _table(("Option", "Default", "What it does"), rows)


def _tests() -> Iterator[str]:
    rows = (
        (f"`{key}`", "" if key not in TEST_DEFAULTS else f"`{_plain(value)}`", f"`{_plain(value)}`")
        for key, value in sorted(CLUSTER_DEFAULTS.items())
    )
    yield from _table(("Key", "`TestBroker`", "`TestCluster`"), rows)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "brokers": _brokers,
    "topics": _topics,
    "groups": _groups,
    "ignored": _ignored,
    "names": _names,
    "refused": _refused,
    "every-client": partial(_settings, CommonSettings),
    "client-security": partial(_settings, SecuritySettings),
    "producers": partial(_settings, ProducerSettings, without=CommonSettings),
    "simple-consumers": partial(_settings, FetchSettings, without=CommonSettings),
    "share-consumers": partial(_settings, ShareConsumerSettings, without=CommonSettings),
    "consumers": partial(_settings, ConsumerSettings, without=FetchSettings),
    "classic-producers": partial(_settings, ClassicProducerSettings, without=RegistrySettings),
    "registries": partial(_settings, RegistrySettings),
    "classic-consumers": partial(_settings, ConnectorSettings),
    "classic-simple-consumers": partial(_settings, ClassicConsumerSettings),
    "mirror": partial(_options, mirror),
    "registry": partial(_options, registry),
    "tests": _tests,
}
"""Mark on the page → what makes the lines between its begin and its end."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
