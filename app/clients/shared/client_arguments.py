"""The arguments of a client's constructor: addresses and settings in the form of any Kafka client."""

from collections.abc import Mapping
from typing import Any

from ....ports.errors import ConfigError
from .foreign_settings import BOOTSTRAP_KEYS, OTHER_NAMES, dotted_name

_BOOTSTRAP_ARGUMENT = "bootstrap_servers"


class ClientArguments:
    """The arguments of a client, sorted: its bootstrap, its mapping of settings, and its keyword settings.

    The first argument may be the mapping, as in confluent-kafka; the addresses may be `bootstrap.servers` there, or the
    keyword `bootstrap_servers` of kafka-python and aiokafka. Raises `ConfigError`.
    """

    def __init__(self, bootstrap: object, config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
        if isinstance(bootstrap, Mapping):
            if config is not None:
                raise ConfigError("the first argument and config= are both mappings of settings; give one of them")
            bootstrap, config = None, bootstrap
        self.config = dict(config or {})
        self.settings = dict(settings)
        addresses = _taken(self.settings, BOOTSTRAP_KEYS)
        in_config = _taken(self.config, BOOTSTRAP_KEYS)
        if addresses is not None and bootstrap not in (None, ""):
            raise ConfigError(
                f"bootstrap {bootstrap!r} and {_BOOTSTRAP_ARGUMENT} are both given; leave one of them out, "
                "and give topics to subscribe() or assign()"
            )
        self.bootstrap: Any = bootstrap if bootstrap not in (None, "") else addresses
        if self.bootstrap is None:
            self.bootstrap = in_config

    def take_object(self, name: str, given: object) -> Any:
        """Return the object that is given for a setting, directly or by another name; None for none, or for a text.

        Raises `ConfigError` if several are given.
        """
        others = [name, *(key for key, field in OTHER_NAMES.items() if field == name)]
        found = [] if given is None else [given]
        for source in (self.settings, self.config):
            for key in [key for key in source if dotted_name(key) in map(dotted_name, others)]:
                if source[key] is not None and not isinstance(source[key], str):
                    found.append(source.pop(key))
        if len(found) > 1:
            raise ConfigError(f"{name}: given under several names; leave all but one out")
        return found[0] if found else None


def _taken(settings: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """Remove these keys and return the value of the first one that has one."""
    found = None
    for name in [name for name in settings if dotted_name(name) in keys]:
        value = settings.pop(name)
        found = value if found is None and value not in (None, "", [], ()) else found
    return found
