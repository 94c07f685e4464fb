"""`--command-config FILE`: the settings of a command's connections, such as TLS and SASL, from a file.

Every command with `--bootstrap` has the option (see `add_command_config`). Passwords are given by it alone: the system
shows the command line of a process to everyone.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperOption

from ...ports.errors import ConfigError
from .client_files import read_client_file

if TYPE_CHECKING:
    from ..clients.shared.bootstrap import Bootstrap

COMMAND_CONFIG_VARIABLE = "BARNABAS_COMMAND_CONFIG"
_OPTION = "--command-config"
_OF_CONNECTIONS = ("https.", "enable.sasl.", "proxy.", "socks5.", "client.dns.")
"""The beginnings of settings that a command refuses, as every client does, since they concern its connections."""
_INHERITED = ("sasl.username", "sasl.password")
"""The settings that basic.auth.credentials.source=SASL_INHERIT takes over."""
_SECRET_ENDINGS = (".user.info", ".password", ".keystore.key")
_given: dict[str, Any] = {}
"""The content of the file of the command that runs in this process."""
_of_profile: list[str] = []
"""The file of the profile that names the cluster of that command; at most one."""


def use_file_of_profile(file: str | None) -> None:
    """Use this file for a command whose cluster is the profile's; for another one its passwords are not meant."""
    _of_profile[:] = [] if file is None else [file]


def use_command_config(file: Path) -> None:
    """Use the settings of this file for the connections of the present command. Raises `ConfigError`."""
    _given.clear()
    _given.update(read_client_file(file))


def add_command_config(command: Any) -> None:
    """Give the option to each sub-command of a command of typer that connects to a cluster."""
    for each in getattr(command, "commands", {}).values():
        add_command_config(each)
    names = {name for parameter in command.params for name in parameter.opts}
    if "--bootstrap" in names and _OPTION not in names:
        place = next(index for index, each in enumerate(command.params) if "--bootstrap" in each.opts)
        command.params.insert(place + 1, _option())


def _option() -> TyperOption:
    return TyperOption(
        param_decls=[_OPTION],
        metavar="FILE",
        type=str,
        envvar=COMMAND_CONFIG_VARIABLE,
        show_envvar=True,
        expose_value=False,
        callback=_keep,
        help="Client settings for the connection (security.protocol, sasl.*, ssl.*): a properties file or TOML.",
    )


def _keep(context: typer.Context, _parameter: object, file: str | None) -> None:
    _given.clear()
    source = context.get_parameter_source("bootstrap")
    if file is None and _of_profile and source is not None and source.name == "ENVIRONMENT":
        file = _of_profile[0]
    if file is not None:
        _given.update(read_client_file(Path(file)))


def connection_settings() -> dict[str, Any]:
    """Return the settings of `--command-config` that concern connections, for a client of the present command.

    Others, such as `group.id`, are the command's to choose. Raises `ConfigError` for a key that no client has.
    """
    if not _given:
        return {}
    import attrs

    from ..clients.shared.foreign_settings import OTHER_NAMES, REFUSED
    from ..clients.shared.settings import CommonSettings, is_client_setting
    from ..config.coordination_keys import is_coordination_key
    from ..config.security_settings import is_security_key

    common = {field.name for field in attrs.fields(CommonSettings)}
    found = {}
    for key, value in _given.items():
        if _is_of_registry(key):
            continue
        if key.startswith(_OF_CONNECTIONS) and key in REFUSED and REFUSED[key].refuses(value):
            raise ConfigError(f"{_OPTION}: {key}: {REFUSED[key].advice}")
        if is_security_key(key) or OTHER_NAMES.get(key, key.replace(".", "_")) in common:
            found[key] = value
        elif is_coordination_key(key):
            continue
        elif not is_client_setting(key):
            raise ConfigError(f"{_OPTION}: unknown setting {key!r}")
    return found


def coordination_settings() -> dict[str, Any]:
    """Return the settings of `--command-config` for connections to the registries of classic clusters."""
    from ..config.coordination_keys import is_coordination_key

    return {key: value for key, value in _given.items() if is_coordination_key(key)}


def registry_settings() -> dict[str, Any]:
    """Return the settings of `--command-config` for clients of a schema registry, by Confluent's names."""
    return {key: value for key, value in _given.items() if _is_of_registry(key) or key in _INHERITED}


def _is_of_registry(key: str) -> bool:
    return key.startswith(("schema.registry.", "basic.auth."))


def secured_by_command_config(bootstrap: str) -> Bootstrap:
    """Return the bootstrap with the security of `--command-config`. Raises `ConfigError`."""
    from ..clients.shared.connect import secured

    return secured(bootstrap, connection_settings())


def refuse_secrets(keys: Set[str], option: str) -> None:
    """Raise `ConfigError` for secrets on the command line."""
    if not keys:
        return
    from ..config.coordination_keys import SECRET_COORDINATION_KEYS
    from ..config.security_settings import SECRET_KEYS

    secret = SECRET_KEYS | SECRET_COORDINATION_KEYS
    for key in sorted(key for key in keys if key in secret or key.endswith(_SECRET_ENDINGS)):
        raise ConfigError(
            f"{option} {key}: others on this machine can read command lines; put it into a file for {_OPTION}"
        )
