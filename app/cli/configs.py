"""`barnabas configs`: describe, set and delete the settings of topics, groups and brokers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ...ports.broker_api.configs import ConfigSource, ResourceKind
from ...ports.errors import ApiError, ConfigError
from .client_files import parse_settings
from .options import AsJson, Bootstrap, Row, open_admin, print_rows

if TYPE_CHECKING:
    from ...ports.broker_api.configs import ConfigEntry
    from ..clients.admin.admin import Admin

configs = typer.Typer(help="Describe, set and delete settings of topics, groups and brokers.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(configs, name="configs")


Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The settings of this topic.")]
Group = Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="The settings of this group.")]
BrokerId = Annotated[int | None, typer.Option("--broker", metavar="ID", help="The settings of this broker.")]
Default = Annotated[bool, typer.Option("--broker-default", help="The dynamic defaults of all brokers.")]


@configs.command("describe")
def describe_configs(
    bootstrap: Bootstrap,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", show_default=False)] = None,
    topic: Topic = None,
    group: Group = None,
    broker: BrokerId = None,
    broker_default: Default = False,
    everything: Annotated[bool, typer.Option("--all", help="Include defaults.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Describe each key.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the settings that differ from the defaults, with their source; for given keys also the defaults."""
    kind, name, subject = _resource(topic, group, broker, broker_default)
    with open_admin(bootstrap) as admin:
        found = admin.describe_configs(kind, name, keys or None, documentation=explain or as_json)
    missing = set(keys or ()) - {entry.name for entry in found}
    if missing and not broker_default:
        text = f"{subject} has no setting {', '.join(sorted(missing))}; `barnabas configs describe --all` shows all"
        raise ConfigError(text)
    shown = [e for e in found if keys or everything or e.source is not ConfigSource.DEFAULT]
    columns = ("key", "value", "source", *(("explanation",) if explain else ()))
    print_rows(
        columns, [_fields(entry) for entry in shown], as_json, lambda row: [_cell(row, each) for each in columns]
    )


@configs.command("set")
def set_configs(
    bootstrap: Bootstrap,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", show_default=False)],
    topic: Topic = None,
    group: Group = None,
    broker: BrokerId = None,
    broker_default: Default = False,
) -> None:
    """Set keys, all or none of them; other keys do not change."""
    kind, name, subject = _resource(topic, group, broker, broker_default)
    typer.echo(f"changed {subject}: {_alter(bootstrap, kind, name, parse_settings(settings))}")


@configs.command("delete")
def delete_configs(
    bootstrap: Bootstrap,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", show_default=False)],
    topic: Topic = None,
    group: Group = None,
    broker: BrokerId = None,
    broker_default: Default = False,
) -> None:
    """Reset keys to their defaults."""
    kind, name, subject = _resource(topic, group, broker, broker_default)
    typer.echo(f"changed {subject}: {_alter(bootstrap, kind, name, dict.fromkeys(keys))}")


def _alter(bootstrap: str, kind: ResourceKind, name: str, changes: Mapping[str, str | None]) -> str:
    """Change settings, and return their old and new values for a person."""
    with open_admin(bootstrap) as admin:
        before = settings_before(admin, kind, name, changes)
        admin.alter_configs(kind, name, changes)
    return changes_text(before, changes)


def settings_before(
    admin: "Admin", kind: ResourceKind, name: str, keys: Iterable[str]
) -> "dict[str, ConfigEntry] | None":
    """Return the current entries of keys; None if the broker does not describe them, for example without the right."""
    try:
        return {entry.name: entry for entry in admin.describe_configs(kind, name, list(keys))}
    except ApiError:
        return None


def changes_text(before: "Mapping[str, ConfigEntry] | None", changes: Mapping[str, str | None]) -> str:
    """Format changes like `retention.ms 604800000 (default) -> 3600000`; None as a value resets a key."""

    def old(key: str) -> str:
        if before is None:
            return ""
        entry = before.get(key)
        if entry is None:
            return "(not set) "
        value = "(hidden)" if entry.sensitive else entry.value or '""'
        return f"{value} (default) " if entry.source is ConfigSource.DEFAULT else f"{value} "

    def new(key: str, value: str | None) -> str:
        entry = before.get(key) if before is not None else None
        return "default" if value is None else "(hidden)" if entry is not None and entry.sensitive else value or '""'

    return ", ".join(f"{key} {old(key)}-> {new(key, value)}" for key, value in changes.items())


def _resource(
    topic: str | None, group: str | None, broker: int | None, broker_default: bool
) -> tuple[ResourceKind, str, str]:
    """Return kind, name, and description for a person. Raises `ConfigError` unless exactly one is given."""
    if (topic is not None) + (group is not None) + (broker is not None) + broker_default != 1:
        text = "select a resource with one of --topic TOPIC, --group GROUP, --broker ID and --broker-default"
        raise ConfigError(text)
    if group is not None:
        return ResourceKind.GROUP, group, f"group {group}"
    if topic is not None:
        return ResourceKind.TOPIC, topic, f"topic {topic}"
    if broker is not None:
        return ResourceKind.BROKER, str(broker), f"broker {broker}"
    return ResourceKind.BROKER, "", "the default of all brokers"


def _source(source: ConfigSource) -> str:
    return source.name.lower().replace("_", "-")


def _cell(row: Row, column: str) -> object:
    return "(hidden)" if column == "value" and row["sensitive"] else row[column] or "-"


def _fields(entry: "ConfigEntry") -> dict[str, object]:
    return {
        "key": entry.name,
        "value": entry.value,
        "source": _source(entry.source),
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "type": entry.type.name.lower(),
        "instead": [{"key": s.name, "value": s.value, "source": _source(s.source)} for s in entry.synonyms],
        "explanation": entry.documentation,
    }
