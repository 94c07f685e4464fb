"""`barnabas acls`: list, add and remove access control lists."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ...ports.broker_api.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    PatternType,
    PermissionType,
    ResourceType,
)
from ...ports.broker_api.operations import Operation
from ...ports.errors import ConfigError
from ...ports.report import counted
from .options import AsJson, Bootstrap, DryRun, open_admin, print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

EnumT = TypeVar("EnumT", bound=IntEnum)

acls = typer.Typer(help="List, add and remove access control lists (ACLs).", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(acls, name="acls")


Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="NAME", help="A topic; *: every topic.")]
Group = Annotated[str | None, typer.Option("--group", "-g", metavar="NAME", help="A group; *: every group.")]
TransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; *: every one.")
]
Token = Annotated[str | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token.")]
User = Annotated[
    str | None, typer.Option("--user-principal", metavar="User:NAME", help="A user whose tokens others manage.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="NAME is a prefix of names.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OPERATION", help="Read, Write, Describe, ..., All; may be repeated."),
]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="ADDRESS", help="An IP address; may be repeated. Default: any.")
]
_READER = (Operation.READ, Operation.DESCRIBE)
_WRITER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)


@acls.command("list")
def list_acls(
    bootstrap: Bootstrap,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: User = None,
    cluster: Cluster = False,
    match: Annotated[
        bool, typer.Option("--match", help="All ACLs that apply to NAME, with prefixes and wildcards.")
    ] = False,
    principal: Annotated[str | None, typer.Option(metavar="User:NAME", help="Of this principal.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the ACLs of a resource, of a principal, or all."""
    kind, name = _one_or_none(_resources(topic, group, transactional_id, delegation_token, user_principal, cluster))
    if match and name is None:
        raise ConfigError("--match needs the name of a resource, such as --topic NAME")
    pattern = PatternType.MATCH if match else PatternType.ANY
    selected = AclBindingFilter(resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal)
    with open_admin(bootstrap) as admin:
        found = admin.describe_acls(selected)
    _print(found, as_json)


@acls.command("add")
def add_acls(
    bootstrap: Bootstrap,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="User:NAME", help="Allow this principal; may be repeated.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", metavar="User:NAME", help="Deny this principal; may be repeated.")
    ] = None,
    operation: Operations = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs: write, describe and create --topic.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs: read and describe --topic, read --group.")
    ] = False,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: User = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Hosts = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add ACLs for each principal, host, resource and operation that is named."""
    resources = _resources(topic, group, transactional_id, delegation_token, user_principal, cluster)
    wanted = _rights(resources, operation, producer=producer, consumer=consumer)
    principals = [(PermissionType.ALLOW, each) for each in allow or ()]
    principals += [(PermissionType.DENY, each) for each in deny or ()]
    if not principals:
        raise ConfigError("--allow or --deny is missing: name a principal, such as --allow User:alice")
    made = [
        AclBinding(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.PREFIXED if prefixed and kind is not ResourceType.CLUSTER else PatternType.LITERAL,
            principal=_principal(principal),
            host=address,
            operation=each,
            permission=permission,
        )
        for permission, principal in principals
        for address in host or [WILDCARD]
        for kind, name, each in wanted
    ]
    if not dry_run:
        with open_admin(bootstrap) as admin:
            admin.create_acls(made)
    _print(made, as_json)
    typer.echo(f"{counted(len(made), 'ACL')} {'to add' if dry_run else 'added'}", err=True)


@acls.command("remove")
def remove_acls(
    bootstrap: Bootstrap,
    principal: Annotated[str | None, typer.Option(metavar="User:NAME", help="Of this principal only.")] = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: User = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Hosts = None,
    everything: Annotated[bool, typer.Option("--all", help="All ACLs of the cluster.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the ACLs that all given options select."""
    resources = _resources(topic, group, transactional_id, delegation_token, user_principal, cluster)
    if not (resources or principal or everything):
        raise ConfigError("name a resource or --principal; --all removes all ACLs of the cluster")
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    selected: list[tuple[ResourceType, str | None]] = [*resources] or [(ResourceType.ANY, None)]
    hosts: list[str | None] = [*(host or ())] or [None]
    filters = [
        AclBindingFilter(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.ANY if name is None or kind is ResourceType.CLUSTER else pattern,
            principal=None if principal is None else _principal(principal),
            host=address,
            operation=each,
        )
        for kind, name in selected
        for address in hosts
        for each in _operations(operation) or [Operation.ANY]
    ]
    with open_admin(bootstrap) as admin:
        if dry_run:
            removed = list(dict.fromkeys(acl for each in filters for acl in admin.describe_acls(each)))
        else:
            removed = admin.delete_acls(filters)
    _print(removed, as_json)
    typer.echo(f"{counted(len(removed), 'ACL')} {'to remove' if dry_run else 'removed'}", err=True)


def acl_fields(acl: AclBinding) -> dict[str, str]:
    """Return an ACL as `--json` prints it."""
    return {
        "resource_type": acl.resource_type.name.lower(),
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission": acl.permission.name.lower(),
    }


def _print(found: Iterable[AclBinding], as_json: bool) -> None:
    rows = sorted((acl_fields(acl) for acl in found), key=lambda row: tuple(row.values()))
    print_rows(("resource", "name", "pattern", "principal", "host", "operation", "permission"), rows, as_json)


def _resources(
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    delegation_token: str | None,
    user_principal: str | None,
    cluster: bool,
) -> list[tuple[ResourceType, str]]:
    named: Mapping[ResourceType, str | None] = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
        ResourceType.DELEGATION_TOKEN: delegation_token,
        ResourceType.USER: user_principal,
        ResourceType.CLUSTER: CLUSTER_NAME if cluster else None,
    }
    return [(kind, name) for kind, name in named.items() if name is not None]


def _one_or_none(resources: list[tuple[ResourceType, str]]) -> tuple[ResourceType, str | None]:
    if len(resources) > 1:
        raise ConfigError("name at most one resource, such as --topic NAME")
    return resources[0] if resources else (ResourceType.ANY, None)


def _rights(
    resources: list[tuple[ResourceType, str]], operations: list[str] | None, *, producer: bool, consumer: bool
) -> list[tuple[ResourceType, str, Operation]]:
    named = _operations(operations)
    if not (named or producer or consumer):
        raise ConfigError("--operation is missing; or say --producer or --consumer")
    if not resources:
        raise ConfigError("the resource is missing: --topic, --group, --transactional-id, --cluster, ...")
    wanted: dict[tuple[ResourceType, str, Operation], None] = {}
    for kind, name in resources:
        chosen: list[Operation] = list(named)
        if producer and kind in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID):
            chosen += _WRITER if kind is ResourceType.TOPIC else _WRITER[:2]
        if consumer and kind in (ResourceType.TOPIC, ResourceType.GROUP):
            chosen += _READER if kind is ResourceType.TOPIC else _READER[:1]
        wanted |= dict.fromkeys((kind, name, each) for each in chosen)
    return list(wanted)


def _operations(names: list[str] | None) -> list[Operation]:
    return [_named(Operation, name, "--operation") for name in names or ()]


def _named(kind: type[EnumT], text: str, option: str) -> EnumT:
    wanted = text.replace("_", "").replace("-", "").lower()
    known: dict[str, Any] = {
        each.name.replace("_", "").lower(): each for each in kind if each.name not in ("UNKNOWN", "ANY")
    }
    if wanted not in known:
        shown = ", ".join(each.name.title().replace("_", "") for each in known.values())
        raise ConfigError(f"{option} {text!r}: expected one of {shown}")
    found: EnumT = known[wanted]
    return found


def _principal(text: str) -> str:
    if ":" not in text:
        raise ConfigError(f"principal {text!r}: expected User:NAME, such as User:{text}")
    return text
