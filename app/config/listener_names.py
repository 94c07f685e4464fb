"""Listeners as a server.properties of Kafka has them: with names of their own, and one for the controller.

`listeners=INTERNAL://:9092,CONTROLLER://:9093` comes to `kafka://:9092`: a broker here needs no controller
(`controller.listener.names`), and what a name speaks is what `listener.security.protocol.map` says.
"""

from collections.abc import Mapping

from ...ports.errors import ConfigError
from .keys import ConfigKey
from .listeners import CLASSIC, KAFKA, NOT_YET

_KEYS = ("listeners", "advertised.listeners", "listener.security.protocol.map", "controller.listener.names")
_OURS = {KAFKA, CLASSIC, "plaintext", *NOT_YET}


def with_our_listeners(settings: Mapping[str, object], keys: Mapping[str, ConfigKey]) -> dict[str, object]:
    """The settings (dotted keys, not parsed yet) with listeners that say what they speak, without the controller's.

    Raises `ConfigError`.
    """
    given = {name: keys[name].parse(settings.get(name, keys[name].default)) for name in _KEYS}
    roles = keys["process.roles"].parse(settings.get("process.roles", ()))
    if roles and "broker" not in roles:
        raise ConfigError("process.roles=controller: brokers need no controllers here; leave it out, or name broker")
    left_out = {name.lower() for name in given["controller.listener.names"]}
    protocols = _protocols(given["listener.security.protocol.map"])
    changed = dict(settings)
    for key in ("listeners", "advertised.listeners"):
        if key in settings:
            kept = [text for text in given[key] if _name(text) not in left_out]
            if given[key] and not kept:
                raise ConfigError(f"{key} has listeners of controllers only; give it one for clients")
            changed[key] = tuple(_translated(text, protocols, key) for text in kept)
    if "listeners" in settings and given["advertised.listeners"]:
        changed["advertised.listeners"] = _in_order(given, left_out, protocols)
    return changed


def _protocols(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` → name to protocol, both in small letters."""
    pairs = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.strip().lower() not in _OURS:
            allowed = "NAME:PLAINTEXT, NAME:SSL, NAME:SASL_PLAINTEXT or NAME:SASL_SSL"
            raise ConfigError(f"listener.security.protocol.map has {item[:100]!r}, which is not {allowed}")
        pairs[name.strip().lower()] = protocol.strip().lower()
    return pairs


def _name(text: str) -> str:
    return text.partition("://")[0].strip().lower()


def _translated(text: str, protocols: Mapping[str, str], key: str) -> str:
    name, separator, rest = text.partition("://")
    known = protocols.get(name.strip().lower())
    if not separator or known is None or name.strip().lower() in _OURS:
        return text  # what it is will be checked, and refused if need be, as any other
    if known in NOT_YET:
        raise ConfigError(f"{key}={text}: {name} speaks {known.upper()}; {NOT_YET[known]}")
    return f"{KAFKA}://{rest}"


def _in_order(
    given: Mapping[str, tuple[str, ...]], left_out: set[str], protocols: Mapping[str, str]
) -> tuple[str, ...]:
    """One to advertise for each listener; Kafka matches them by name, in any order."""
    listeners = [text for text in given["listeners"] if _name(text) not in left_out]
    advertised = [text for text in given["advertised.listeners"] if _name(text) not in left_out]
    by_name = {_name(text): text for text in advertised}
    names = [_name(text) for text in listeners]
    if len(by_name) == len(advertised) and set(names) == set(by_name) and len(set(names)) == len(names):
        advertised = [by_name[name] for name in names]
    return tuple(_translated(text, protocols, "advertised.listeners") for text in advertised)
