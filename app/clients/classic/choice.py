"""The choice of the classic generation by a client's arguments, and the addresses of its brokers then."""

from collections.abc import Mapping, Sequence
from typing import Any

from ....ports.errors import ConfigError
from ....ports.transport import Address
from ....ports.values import frozen
from ...config.listeners import parse_address
from ...config.names import coordination_url
from ..shared.client_arguments import ClientArguments

SCHEME = "classic://"
_PLACES = ("broker_list", "zk_connect", "etcd_connect", "coordination")
_OWN = ("bootstrap", "config")
_WANTED = "exactly one of broker.list, zk.connect, etcd.connect, coordination, or classic://HOST:PORT"


def is_classic(positional: Sequence[object], named: Mapping[str, Any]) -> bool:
    """Return True if the bootstrap is `classic://...`, or missing, with an argument of the classic generation."""
    arguments = _arguments(positional, named)
    if arguments.bootstrap is not None and arguments.bootstrap != "":
        return is_classic_address(arguments.bootstrap)
    return any(named.get(name) is not None or name.replace("_", ".") in arguments.config for name in _PLACES)


def bootstrap_of(positional: Sequence[object], named: Mapping[str, Any]) -> Any:
    """Return the bootstrap among the arguments of a client. Raises `ConfigError`."""
    return _arguments(positional, named).bootstrap


def _arguments(positional: Sequence[object], named: Mapping[str, Any]) -> ClientArguments:
    bootstrap = positional[0] if positional else named.get("bootstrap")
    return ClientArguments(bootstrap, named.get("config"), {k: v for k, v in named.items() if k not in _OWN})


def is_classic_address(bootstrap: object) -> bool:
    """Return True if an address begins with `classic://`."""
    entries = bootstrap if isinstance(bootstrap, list | tuple) else [bootstrap]
    return any(isinstance(entry, str) and entry.strip().startswith(SCHEME) for entry in entries)


@frozen(kw_only=True)
class Whereabouts:
    """The brokers of a classic client: a fixed list, or registries; exactly one is not None."""

    brokers: dict[int, Address] | None = None
    registries: object = None
    """The argument of `compose.client_coordination`."""


def classic_addresses(bootstrap: object) -> list[Address]:
    """Parse `classic://host:port`, or several in a list or separated by commas. Raises `ConfigError`."""
    entries = list(bootstrap) if isinstance(bootstrap, list | tuple) else str(bootstrap).split(",")
    texts = [entry.strip() for entry in map(str, entries) if entry.strip()]
    if not is_classic_address(bootstrap) or any("://" in text and not text.startswith(SCHEME) for text in texts):
        raise ConfigError(f"bootstrap {bootstrap!r} is not of the form {SCHEME}HOST:PORT")
    return [parse_address(text.removeprefix(SCHEME), f"bootstrap {text!r}") for text in texts]


def find_out(
    bootstrap: object, *, broker_list: str, zk_connect: str, etcd_connect: str, coordination: object
) -> Whereabouts:
    """Return the list of brokers or their registries. Raises `ConfigError` unless exactly one argument is given."""
    given = [name for name, value in (
        (SCHEME, bootstrap), ("broker.list", broker_list), ("zk.connect", zk_connect),
        ("etcd.connect", etcd_connect), ("coordination", coordination),
    ) if value]  # fmt: skip
    if len(given) != 1:
        raise ConfigError(f"a classic producer needs {_WANTED}; given: {' and '.join(given) or 'none of them'}")
    if bootstrap:
        return Whereabouts(brokers=dict(enumerate(classic_addresses(bootstrap))))
    if broker_list:
        from ....core.classic.registry.directory import parse_broker_list

        return Whereabouts(brokers=parse_broker_list(broker_list))
    if zk_connect:
        return Whereabouts(registries=coordination_url("zk.connect", zk_connect))
    if etcd_connect:
        return Whereabouts(registries=coordination_url("etcd.connect", etcd_connect))
    return Whereabouts(registries=coordination)
