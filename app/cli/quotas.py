"""`barnabas quotas`: list, add and remove the quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from ...ports.broker_api.quotas import CLIENT_ID, IP, USER, QuotaEntry
from ...ports.errors import ConfigError
from ..clients.admin.quotas import ClientQuotaAlteration, entity_text
from .client_files import parse_settings
from .options import AsJson, Bootstrap, DryRun, check_known, open_admin, print_rows

quotas = typer.Typer(help="List, add and remove quotas of users, client ids and addresses.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(quotas, name="quotas")


User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")]
UserDefault = Annotated[bool, typer.Option("--user-default", help="Users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
ClientIdDefault = Annotated[bool, typer.Option("--client-id-default", help="Client ids without a quota of their own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address; for connection rates.")]
IpDefault = Annotated[bool, typer.Option("--ip-default", help="Addresses without a quota of their own.")]
Entity = dict[str, str | None]


@quotas.command("list")
def list_quotas(
    bootstrap: Bootstrap,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    as_json: AsJson = False,
) -> None:
    """List the quotas, all or those of an entity."""
    selected = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    with open_admin(bootstrap) as admin:
        found = admin.describe_client_quotas(selected)
    _print(found, as_json)


@quotas.command("add")
def add_quotas(
    bootstrap: Bootstrap,
    limits: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", show_default=False)],
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Set quotas of an entity; other quotas of it do not change.

    Keys: producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage, controller_mutation_rate; for
    addresses connection_creation_rate.
    """
    entity = _needed(_entity(user, user_default, client_id, client_id_default, ip, ip_default))
    wanted = {key: _number(key, value) for key, value in parse_settings(limits).items()}
    with open_admin(bootstrap) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(entity=entity, limits=wanted)], validate_only=dry_run)
    _print([QuotaEntry(entity=entity, limits=wanted)], as_json)


@quotas.command("remove")
def remove_quotas(
    bootstrap: Bootstrap,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY...]", show_default=False)] = None,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove quotas of an entity, by default all of them, and print them."""
    entity = _needed(_entity(user, user_default, client_id, client_id_default, ip, ip_default))
    with open_admin(bootstrap) as admin:
        found = admin.describe_client_quotas(entity, strict=True)
        limits = {key: value for entry in found for key, value in entry.limits.items() if not keys or key in keys}
        check_known(keys or (), limits, f"{entity_text(entity)} has no quota")
        if not limits:
            raise ConfigError(f"{entity_text(entity)} has no quotas")
        change = ClientQuotaAlteration(entity=entity, limits=dict.fromkeys(limits))
        admin.alter_client_quotas([change], validate_only=dry_run)
    _print([QuotaEntry(entity=entity, limits=limits)], as_json)


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> Entity:
    entity: Entity = {}
    for kind, name, default in (
        (USER, user, user_default),
        (CLIENT_ID, client_id, client_id_default),
        (IP, ip, ip_default),
    ):
        if name is not None and default:
            raise ConfigError(f"--{kind} excludes --{kind}-default")
        if name is not None or default:
            entity[kind] = name
    return entity


def _needed(entity: Entity) -> Entity:
    if not entity:
        raise ConfigError("name an entity: --user, --client-id, --ip, or the default of one such as --user-default")
    return entity


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{key}={text}: expected a number") from None


def _print(found: list[QuotaEntry], as_json: bool) -> None:
    rows = [
        {"entity": dict(entry.entity), "key": key, "value": value}
        for entry in sorted(found, key=lambda entry: entity_text(entry.entity))
        for key, value in sorted(entry.limits.items())
    ]
    print_rows(
        ("entity", "key", "value"),
        rows,
        as_json,
        lambda row: (entity_text(row["entity"]), row["key"], f"{row['value']:.12g}"),
    )
