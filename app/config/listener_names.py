"""Listeners as a server.properties of Kafka has them: with names of their own, and one for the controller.

`listeners=INTERNAL://:9092,CONTROLLER://:9093` comes to `INTERNAL://:9092`: a broker here needs no controller
(`controller.listener.names`), and what a name speaks is what `listener.security.protocol.map` says.
"""

from collections.abc import Mapping, Sequence

from ...ports.errors import ConfigError
from .keys import ConfigKey
from .listeners import CLASSIC, CLASSIC_SSL, KAFKA, SECURITY_PROTOCOLS, ListenAddress, listener_name

PREFIX = "listener.name."
_KEYS = ("listeners", "advertised.listeners", "controller.listener.names")
_OURS = {KAFKA, CLASSIC, CLASSIC_SSL, *(name.lower() for name in SECURITY_PROTOCOLS)}


def with_our_listeners(settings: Mapping[str, object], keys: Mapping[str, ConfigKey]) -> dict[str, object]:
    """Return the unparsed settings without the controller's listeners, and `advertised.listeners` in the order of
    `listeners`.

    Raises `ConfigError`.
    """
    given = {name: keys[name].parse(settings.get(name, keys[name].default)) for name in _KEYS}
    roles = keys["process.roles"].parse(settings.get("process.roles", ()))
    if roles and "broker" not in roles:
        raise ConfigError("process.roles=controller: brokers need no controllers here; leave it out, or name broker")
    left_out = {listener_name(name) for name in given["controller.listener.names"]}
    changed = dict(settings)
    for key in ("listeners", "advertised.listeners"):
        if key in settings:
            remaining = tuple(text for text in given[key] if _name(text) not in left_out)
            if given[key] and not remaining:
                raise ConfigError(f"{key} has listeners of controllers only; give it one for clients")
            changed[key] = given[key] = remaining
    if "listeners" in settings and given["advertised.listeners"]:
        changed["advertised.listeners"] = _in_order(given["listeners"], given["advertised.listeners"])
    return changed


def protocols_of(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` → name of a listener (as `listener_name`) to protocol in small letters."""
    pairs = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.strip().lower() not in _OURS:
            allowed = "NAME:PLAINTEXT, NAME:SSL, NAME:SASL_PLAINTEXT or NAME:SASL_SSL"
            raise ConfigError(f"listener.security.protocol.map has {item[:100]!r}, which is not {allowed}")
        pairs[listener_name(name)] = protocol.strip().lower()
    return pairs


def inter_broker_index(
    listeners: Sequence[ListenAddress], wanted: str | None, protocol: str | None = None
) -> int | None:
    """Return the index of the listener for other brokers: the one with the wanted name, or the first with the wanted
    security protocol, or without both the first of the current generation; None where there is none.

    Raises `ConfigError` if no such listener fits.
    """
    fit = [index for index, listener in enumerate(listeners) if listener.protocol == KAFKA]
    if wanted is None and protocol is not None:
        for index in fit:
            if listeners[index].security == protocol:
                return index
        raise ConfigError(f"security.inter.broker.protocol={protocol}: no listener speaks it")
    if wanted is None:
        return fit[0] if fit else None
    for index in fit:
        if listeners[index].name == listener_name(wanted):
            return index
    names = ", ".join(dict.fromkeys(listeners[index].name for index in fit)) or "there are none of kafka://"
    raise ConfigError(f"inter.broker.listener.name={wanted} is the name of none of the listeners: {names}")


def is_of_listener(name: str) -> bool:
    """Return True for `listener.name.NAME.KEY`, a setting of one listener."""
    return name.strip().lower().startswith(PREFIX)


def name_of_scope(name: str) -> str:
    """Return the name of such a setting in small letters; names of listeners and mechanisms know no others in Kafka."""
    return name.strip().lower()


def scoped_key(name: str, keys: Mapping[str, ConfigKey]) -> tuple[str, str, ConfigKey]:
    """Return the listener, the mechanism (or "") and the key of `listener.name.NAME.[MECHANISM.]KEY`.

    Raises `ConfigError` for a key that listeners do not have.
    """
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    key = keys.get(rest)
    if key is not None and key.scope:
        return listener_name(listener), "", key
    mechanism, _, of_mechanism = rest.partition(".")
    key = keys.get(of_mechanism)
    if key is not None and key.scope == "mechanism":
        return listener_name(listener), mechanism.upper(), key
    raise ConfigError(f"{name[:200]}: unknown configuration key {rest[:200]!r} of a listener")


def _name(text: str) -> str:
    return listener_name(text.partition("://")[0])


def _in_order(listeners: Sequence[str], advertised: Sequence[str]) -> tuple[str, ...]:
    """Return the advertised listeners in the order of the listeners; Kafka matches them by name."""
    by_name = {_name(text): text for text in advertised}
    names = [_name(text) for text in listeners]
    if len(by_name) == len(advertised) and set(names) == set(by_name) and len(set(names)) == len(names):
        return tuple(by_name[name] for name in names)
    return tuple(advertised)
