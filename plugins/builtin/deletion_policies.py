"""The built-in deletion policies, by their names."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError
from .deletion import Consumed, KafkaDeletionPolicy, KeepAll
from .record_deletion import HeaderTtl, KeyPrefixAge

if TYPE_CHECKING:
    from ...core.log.retention import DeletionContext, DeletionPolicy


def _plain(made: "Callable[[], DeletionPolicy]") -> "Callable[[DeletionContext], DeletionPolicy]":
    def make(context: "DeletionContext") -> "DeletionPolicy":
        if context.parameters:
            raise ConfigError(f"this deletion.policy takes no parameters; it got {context.parameters!r}")
        return made()

    return make


_POLICIES: "dict[str, Callable[[DeletionContext], DeletionPolicy]]" = {
    "kafka": _plain(KafkaDeletionPolicy),
    "none": _plain(KeepAll),
    "consumed": Consumed,
    "key-prefix-age": KeyPrefixAge,
    "header-ttl": HeaderTtl,
}
DELETION_POLICY_NAMES = tuple(_POLICIES)


def builtin_deletion_policy(name: str, context: "DeletionContext") -> "DeletionPolicy | None":
    """The policy of this name, None if there is none. Raises `ConfigError` for its parameters."""
    made = _POLICIES.get(name)
    return made(context) if made is not None else None
