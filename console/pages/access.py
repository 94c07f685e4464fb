"""Access: ACLs, users with SCRAM passwords, quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import Response

from ... import ApiError, ConfigError, ErrorCode
from ...app.clients.admin.quotas import ClientQuotaAlteration, entity_text
from ...app.clients.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from ...ports.broker_api.acls import AclBinding, AclBindingFilter, PatternType, PermissionType, ResourceType
from ...ports.broker_api.operations import Operation
from ...ports.values import Secret
from ..application import PageCall, PageRoute
from ..paging import PageOfRows
from .topics import whole

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ITERATIONS = 8192
_LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_KINDS = ("user", "client-id", "ip")
_NOT_THERE = (ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION)


def _or_refused(ask: Callable[[], Any], otherwise: Any) -> tuple[Any, str]:
    """Return an answer, or why there is none: the cluster has no such thing. Raises `BarnabasError`."""
    try:
        return ask(), ""
    except ApiError as error:
        if error.code not in _NOT_THERE:
            raise
        return otherwise, str(error)


def acls(call: PageCall) -> Response:
    """Show the ACLs."""
    found, refused = _or_refused(call.connection.admin.describe_acls, [])
    wanted = call.query("q").strip().lower()
    rows: Sequence[AclBinding] = [
        each for each in found if wanted in f"{each.principal} {each.resource_name} {each.operation.name}".lower()
    ]
    rows = sorted(rows, key=lambda each: (each.principal, each.resource_type, each.resource_name, each.operation))
    return call.page(
        "acls.html.j2",
        rows=PageOfRows(rows, call.number("page", 1, least=1), 100),
        refused=refused,
        wanted=wanted,
        tab="acls",
        resource_types=[each.name for each in ResourceType if each is not ResourceType.ANY],
        operations=[each.name for each in Operation if each.name not in ("ANY", "UNKNOWN")],
    )


def _acl_of(call: PageCall) -> AclBinding:
    """Return the ACL of a form. Raises `ConfigError`."""
    form = call.form
    try:
        made = AclBinding(
            resource_type=ResourceType[form.get("resource_type", "")],
            resource_name=form.get("resource_name", "").strip(),
            pattern_type=PatternType[form.get("pattern_type", "LITERAL")],
            principal=form.get("principal", "").strip(),
            host=form.get("host", "*").strip() or "*",
            operation=Operation[form.get("operation", "")],
            permission=PermissionType[form.get("permission", "ALLOW")],
        )
    except KeyError as error:
        raise ConfigError(f"an ACL has no {error}") from None
    if ":" not in made.principal or not made.resource_name:
        raise ConfigError("an ACL needs a principal such as User:ann, and the name of a resource")
    return made


def _text(acl: AclBinding) -> str:
    name = f"{acl.resource_type.name} {acl.pattern_type.name} {acl.resource_name}"
    return f"{acl.permission.name} {acl.operation.name} on {name} to {acl.principal} from {acl.host}"


def create_acl(call: PageCall) -> Response:
    """Add an ACL."""
    acl = _acl_of(call)
    with call.change(f"create ACL: {_text(acl)}"):
        call.connection.admin.create_acl(acl)
    return call.redirect("/acls", f"Created: {_text(acl)}")


def delete_acl(call: PageCall) -> Response:
    """Delete one ACL."""
    acl = _acl_of(call)
    chosen = AclBindingFilter(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )
    with call.change(f"delete ACL: {_text(acl)}"):
        deleted = call.connection.admin.delete_acls([chosen])
    return call.redirect("/acls", f"Deleted: {_text(acl)}" if deleted else "There was no such ACL.")


def users(call: PageCall) -> Response:
    """Show the users with SCRAM credentials."""
    found, refused = _or_refused(call.connection.admin.describe_user_scram_credentials, {})
    wanted = call.query("q").strip().lower()
    rows = [(name, found[name]) for name in sorted(found) if wanted in name.lower()]
    return call.page(
        "users.html.j2",
        rows=PageOfRows(rows, call.number("page", 1, least=1), 100),
        refused=refused,
        wanted=wanted,
        tab="users",
        mechanisms=_MECHANISMS,
    )


def set_password(call: PageCall) -> Response:
    """Create a user, or set the password of one."""
    name, password = call.form.get("user", "").strip(), call.form.get("password", "")
    mechanism = call.form.get("mechanism", _MECHANISMS[0])
    if not name or not password:
        raise ConfigError("give a user name and a password")
    change = UserScramCredentialUpsertion(
        user=name, password=Secret(password), mechanism=mechanism, iterations=_ITERATIONS
    )
    with call.change(f"set the {mechanism} password of user {name}"):
        call.connection.admin.alter_user_scram_credentials([change])
    return call.redirect("/users", f"User {name} has a new {mechanism} password.")


def delete_user(call: PageCall) -> Response:
    """Delete a credential of a user."""
    name, mechanism = call.form.get("user", ""), call.form.get("mechanism", "")
    with call.change(f"delete the {mechanism} password of user {name}"):
        call.connection.admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion(user=name, mechanism=mechanism)]
        )
    return call.redirect("/users", f"User {name} has no {mechanism} password any longer.")


def quotas(call: PageCall) -> Response:
    """Show the quotas."""
    found, refused = _or_refused(call.connection.admin.describe_client_quotas, [])
    wanted = call.query("q").strip().lower()
    rows = [(entity_text(each.entity), each) for each in found]
    rows = sorted((row for row in rows if wanted in row[0].lower()), key=lambda row: row[0])
    return call.page(
        "quotas.html.j2",
        rows=PageOfRows(rows, call.number("page", 1, least=1), 100),
        refused=refused,
        wanted=wanted,
        tab="quotas",
        limits=_LIMITS,
        kinds=_KINDS,
    )


def set_quota(call: PageCall) -> Response:
    """Set a limit of an entity, or remove it with an empty value."""
    form = call.form
    entity: dict[str, str | None] = {}
    for kind in _KINDS:
        name = form.get(kind, "").strip()
        if name:
            entity[kind] = None if name == "<default>" else name
    key, value = form.get("key", ""), form.get("value", "").strip()
    if not entity or not key:
        raise ConfigError("name a user, client id or IP address (or <default>), and a limit")
    try:
        limit = float(value) if value else None
    except ValueError:
        limit = float(whole(value, key))
    what = f"set quota {key}={value}" if value else f"remove quota {key}"
    with call.change(f"{what} of {entity_text(entity)}"):
        call.connection.admin.alter_client_quotas([ClientQuotaAlteration(entity=entity, limits={key: limit})])
    return call.redirect("/quotas", f"{entity_text(entity)}: {key} {'is ' + value if value else 'was removed'}.")


PAGES = (
    PageRoute("/acls", acls),
    PageRoute("/acls/create", create_acl, ("POST",)),
    PageRoute("/acls/delete", delete_acl, ("POST",)),
    PageRoute("/users", users),
    PageRoute("/users/set", set_password, ("POST",)),
    PageRoute("/users/delete", delete_user, ("POST",)),
    PageRoute("/quotas", quotas),
    PageRoute("/quotas/set", set_quota, ("POST",)),
)
