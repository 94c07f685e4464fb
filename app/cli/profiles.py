"""Clusters by name instead of `--bootstrap`: profiles in a file of the user."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ...ports.errors import ConfigError
from .client_files import read_client_file
from .command_config import use_file_of_profile
from .options import AsJson, print_json, print_table

BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
PROFILE_VARIABLE = "BARNABAS_PROFILE"
_FILE = "command-config"
_KNOWN = ({"bootstrap"}, {"bootstrap", _FILE})

profile = typer.Typer(
    help="Names for clusters instead of --bootstrap, stored in ~/.config/barnabas/config.toml.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(profile, name="profile")


def use_profile(named: str | None) -> None:
    """Use the cluster of a profile for commands without `--bootstrap`: the named one, or, unless BARNABAS_BOOTSTRAP is
    set, that of BARNABAS_PROFILE or the current one. Raises `ConfigError`."""
    use_file_of_profile(None)
    if named is None and os.environ.get(BOOTSTRAP_VARIABLE):
        return
    wanted = named or os.environ.get(PROFILE_VARIABLE)
    if wanted is None and not config_file().exists():
        return
    profiles, in_use = _load()
    name = wanted or in_use
    if name is None:
        return
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise ConfigError(f"unknown profile {name!r}; known are: {known} (barnabas profile set NAME HOST:PORT)")
    os.environ[BOOTSTRAP_VARIABLE] = profiles[name]["bootstrap"]
    use_file_of_profile(profiles[name].get(_FILE))


def config_file() -> Path:
    """Return the file with the profiles (XDG base directories)."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "barnabas" / "config.toml"


@profile.command("list")
def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; the current one has a star."""
    profiles, in_use = _load()
    if as_json:
        print_json([{"name": name, **each, "in_use": name == in_use} for name, each in sorted(profiles.items())])
        return
    rows = [
        ("*" if name == in_use else "", name, each["bootstrap"], each.get(_FILE, "-"))
        for name, each in sorted(profiles.items())
    ]
    print_table(("", "profile", "bootstrap", _FILE), rows)


@profile.command("set")
def set_profile(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    bootstrap: Annotated[str, typer.Argument(metavar="HOST:PORT")],
    command_config: Annotated[
        Path | None, typer.Option("--command-config", metavar="FILE", help="Its file of client settings, if any.")
    ] = None,
) -> None:
    """Create or change a profile. The first one becomes the current one."""
    from ..config.listeners import parse_address

    for each in bootstrap.split(","):
        parse_address(each.strip().rpartition("://")[2], f"{bootstrap!r}")
    profiles, in_use = _load()
    profiles[name] = {"bootstrap": bootstrap}
    if command_config is not None:
        read_client_file(command_config)
        profiles[name][_FILE] = str(command_config.resolve())
    _save(profiles, in_use or name)
    typer.echo(f"{name} is {bootstrap}")


@profile.command("use")
def choose_profile(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Make a profile the current one, for commands that name no cluster."""
    profiles, _ = _load()
    if name not in profiles:
        raise ConfigError(f"unknown profile {name!r}; create it: barnabas profile set {name} HOST:PORT")
    _save(profiles, name)
    typer.echo(f"using {name}, {profiles[name]['bootstrap']}")


@profile.command("remove")
def remove_profile(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Delete a profile."""
    profiles, in_use = _load()
    if profiles.pop(name, None) is None:
        raise ConfigError(f"unknown profile {name!r}")
    _save(profiles, None if in_use == name else in_use)
    typer.echo(f"removed {name}")


def _load() -> tuple[dict[str, dict[str, str]], str | None]:
    """Return the profiles by name, and the current one. Raises `ConfigError`."""
    file = config_file()
    if not file.exists():
        return {}, None
    import tomllib

    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    profiles, in_use = found.get("profiles", {}), found.get("profile")
    if not isinstance(profiles, dict) or not all(_is_profile(each) for each in profiles.values()):
        raise ConfigError(f'{file}: each profile is a table such as [profiles.dev] with bootstrap = "HOST:PORT"')
    if in_use is not None and in_use not in profiles:
        raise ConfigError(f"{file}: profile = {in_use!r} is not among the profiles")
    return profiles, in_use


def _is_profile(found: Any) -> bool:
    return isinstance(found, dict) and set(found) in _KNOWN and all(isinstance(each, str) for each in found.values())


def _save(profiles: dict[str, dict[str, str]], in_use: str | None) -> None:
    lines = [] if in_use is None else [f"profile = {_quoted(in_use)}", ""]
    for name, each in sorted(profiles.items()):
        lines += [f"[profiles.{_quoted(name)}]", *(f"{key} = {_quoted(value)}" for key, value in each.items()), ""]
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text("\n".join(lines), encoding="utf-8")
    temporary.replace(file)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a basic string of TOML has JSON's escapes
