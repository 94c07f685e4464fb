"""Entities of client quotas (KIP-546): the checks of Kafka's `ClientQuotaControlManager`, and the stored form."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address

from ....ports.broker_api.quotas import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    DescribeClientQuotas,
    QuotaAlteration,
    QuotaEntry,
    QuotaMatch,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The keys of users and client ids; an ip has `connection_creation_rate`."""

_WHOLE_MAX = {PRODUCER_BYTE_RATE: 2**63 - 1, CONSUMER_BYTE_RATE: 2**63 - 1, CONNECTION_CREATION_RATE: 2**31 - 1}
"""The keys whose values are whole numbers, with the largest one."""
_DEFAULT = "<default>"
_ESCAPED = str.maketrans({"%": "%25", ",": "%2C", "<": "%3C"})

Entity = Mapping[str, str | None]
"""Type → name; None = the default of the type."""


def entity_name(entity: Entity) -> str:
    """Return the name under which an entity is stored; different entities have different names."""
    parts = []
    for kind in ENTITY_TYPES:
        if kind in entity:
            name = entity[kind]
            parts.append(f"{kind}={_DEFAULT if name is None else name.translate(_ESCAPED)}")
    return ",".join(parts)


def stored_entry(value: Mapping[str, object]) -> QuotaEntry | None:
    """Return the quotas of an entity from their stored form; None for what is no such form (a newer version's)."""
    entity, limits = value.get("entity"), value.get("limits")
    if not isinstance(entity, Mapping) or not isinstance(limits, Mapping):
        return None
    if not all(kind in ENTITY_TYPES and (name is None or isinstance(name, str)) for kind, name in entity.items()):
        return None
    known = {key: float(limit) for key, limit in limits.items() if isinstance(limit, int | float) and limit > 0}
    return QuotaEntry(entity=dict(entity), limits=known)


def altered(entry: QuotaAlteration) -> Callable[[Mapping[str, object] | None], Mapping[str, object] | None]:
    """Return the change of the stored form that an alteration makes; None stands for no quotas."""

    def change(before: Mapping[str, object] | None) -> Mapping[str, object] | None:
        known = None if before is None else stored_entry(before)
        limits = {} if known is None else dict(known.limits)
        for op in entry.ops:
            if op.value is None:
                limits.pop(op.key, None)
            else:
                limits[op.key] = op.value
        return {"entity": dict(entry.entity), "limits": limits} if limits else None

    return change


def check_alteration(entry: QuotaAlteration) -> None:
    """Raise `ApiError(INVALID_REQUEST)` for an entity or a limit that cannot be."""
    _check_entity(entry.entity)
    is_ip = IP in entry.entity
    for op in entry.ops:
        if op.key not in ((CONNECTION_CREATION_RATE,) if is_ip else CLIENT_KEYS):
            raise _invalid(f"Invalid configuration key {op.key[:260]}")
        value = op.value
        if value is None:
            continue
        if not value > 0 or math.isinf(value):
            raise _invalid(f"Quota {op.key} must be greater than 0")
        most = _WHOLE_MAX.get(op.key)
        if most is not None and (value != math.floor(value) or value > most):
            raise _invalid(f"{op.key} must be a whole number up to {most}")


def _check_entity(entity: Entity) -> None:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind[:260]}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in entity:
        return
    if len(entity) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    name = entity[IP]
    if name is not None and not is_ip(name):
        raise _invalid(f"{name[:260]} is not a valid IP address")


def is_ip(text: str) -> bool:
    """Return True for the text of an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def describe(request: DescribeClientQuotas, entries: Iterable[QuotaEntry]) -> Sequence[QuotaEntry]:
    """Return the entries that fulfil all filters. Raises `ApiError` for filters that cannot be."""
    exact, any_name = _filters(request)
    found = []
    for entry in entries:
        entity = entry.entity
        if any(kind not in entity or entity[kind] != name for kind, name in exact.items()):
            continue
        if any(kind not in entity for kind in any_name):
            continue
        if request.strict and len(entity) > len(exact) + len(any_name):
            continue
        found.append(entry)
    return found


def _filters(request: DescribeClientQuotas) -> tuple[Entity, set[str]]:
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for each in request.filters:
        kind = each.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise _invalid(f"Entity type {kind[:260]} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind[:260]}")
        if each.match == QuotaMatch.EXACT:
            if each.name is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = each.name
        elif each.match not in (QuotaMatch.DEFAULT, QuotaMatch.ANY):
            raise _invalid(f"Unknown match type {each.match}")
        elif each.name is not None:
            name = QuotaMatch(each.match).name
            raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        elif each.match == QuotaMatch.DEFAULT:
            exact[kind] = None
        else:
            any_name.add(kind)
    kinds = exact.keys() | any_name
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        raise _invalid("Invalid entity filter component combination, IP cannot be combined with User or ClientId.")
    return exact, any_name


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)
