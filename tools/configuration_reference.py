"""Writes docs/configuration.md from the tables of keys."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.app.config import EFFECTIVE_KEYS, TOPIC_KEYS
from barnabas.app.config.kept import KEPT, KEPT_KEYS
from barnabas.app.config.keys import DOUBLE_MAX, INT_MAX, LONG_MAX, ConfigKey
from barnabas.app.config.names import ALIASES, PREFIXES, REFUSED
from barnabas.ports.broker_api.configs import ConfigType

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
_HEAD = """\
# Configuration

Written by `tools/configuration_reference.py` from the tables in `app/config`; edit those.

A broker is configured by a file (`barnabas serve --config FILE`), by `--set KEY=VALUE`, or in Python by
`Broker(config={...})` and keyword arguments with `_` for `.`. A file is TOML, with dotted keys or tables, or a
`server.properties` of Kafka: the name ends with `.toml` or `.properties`, or the content decides. Later ones win: file,
then `--set`, then the other options. A key that is not known is an error that names the nearest one.

Names, meanings and defaults are those of Kafka 4; "Ours" marks the keys that Kafka does not have. Keys marked *dynamic*
can be changed while the broker runs (`barnabas configs`, `kafka-configs.sh`).
"""
_LISTENERS = """\
Listeners may have names of their own, as in Kafka: `listener.security.protocol.map` says what they speak. Those in
`controller.listener.names` are left out, like the rest of KRaft: brokers agree through `coordination`.
`zookeeper.connect=HOST:PORT/CHROOT` is `coordination=zookeeper://HOST:PORT/CHROOT`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "## Brokers\n"
    yield from _table(("Key", "Type", "Default", "Allowed", "What it is for"), map(_row, EFFECTIVE_KEYS.values()))
    yield "\n" + _LISTENERS
    yield "## Topics\n"
    yield "A topic without a value of its own goes by the key of the broker.\n"
    rows = (
        (f"`{name}`", f"`{topic.twin}`" if topic.twin else "", _default(topic.key), topic.key.doc)
        for name, topic in TOPIC_KEYS.items()
    )
    yield from _table(("Key", "Key of the broker", "Default", "What it is for"), rows)
    yield f"\n## {KEPT}\n"
    yield "These keys of Kafka are accepted, checked by type and told by DescribeConfigs, and change nothing here.\n"
    for reason, keys in _by_reason().items():
        yield f"{reason[0].upper()}{reason[1:]}\n"
        yield from _table(("Key", "Type", "Default"), (_row(key)[:3] for key in keys))
        yield ""
    yield "## Other names\n"
    told = {
        name: f"`{key}`" + (f", in units of {factor}" if factor != 1 else "") for name, (key, factor) in ALIASES.items()
    }
    told |= {name: f"`{key}={prefix}...`" for name, (key, prefix) in PREFIXES.items()}
    yield from _table(("Name", "Stands for"), ((f"`{name}`", told[name]) for name in sorted(told)))
    yield "\n## Refused\n"
    yield "What would promise something that is not there, or is said otherwise here, is an error.\n"
    yield from _table(("Key", "Why"), ((f"`{name}`", REFUSED[name]) for name in sorted(REFUSED)))
    yield "| `ssl.*`, `sasl.*`, `security.*`, `delegation.token.*` | " + REFUSED["authorizer.class.name"] + " |"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(header)
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


def _row(key: ConfigKey) -> tuple[str, str, str, str, str]:
    kind = key.type.name.lower() + (", dynamic" if key.dynamic else "")
    return f"`{key.name}`", kind, _default(key), _allowed(key), key.doc


def _units(factor: int) -> str:
    return f", in units of {factor}" if factor != 1 else ""


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
    for key in KEPT_KEYS.values():
        found.setdefault(key.doc.removeprefix(f"{KEPT}: "), []).append(key)
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
