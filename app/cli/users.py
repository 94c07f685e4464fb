"""`barnabas users`: list, add and remove the users of SCRAM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...core.security.sasl.scram import HASHES, ITERATIONS_MIN
from ...ports.errors import ConfigError
from ...ports.values import Secret
from ..clients.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from .options import AsJson, Bootstrap, DryRun, check_known, open_admin, print_json, print_rows

users = typer.Typer(help="List, add and remove users of SCRAM and their passwords.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(users, name="users")


User = Annotated[str, typer.Argument(metavar="USER")]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="MECHANISM", help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated."),
]


@users.command("list")
def list_users(
    bootstrap: Bootstrap,
    names: Annotated[list[str] | None, typer.Argument(metavar="[USER...]", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List users with their mechanisms and iterations; never a secret."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_user_scram_credentials(names or None)
    rows = [
        {"user": user, "mechanism": each.mechanism, "iterations": each.iterations}
        for user, credentials in sorted(found.items())
        for each in credentials
    ]
    print_rows(("user", "mechanism", "iterations"), rows, as_json)


@users.command("add")
def add_user(
    bootstrap: Bootstrap,
    user: User,
    mechanism: Mechanisms = None,
    iterations: Annotated[int, typer.Option(metavar="COUNT", help="4096 to 16384.")] = ITERATIONS_MIN,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Its first line is the password. Default: ask, or standard input.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add a user, or change the password of one. A command line is visible to others, so it has no password."""
    chosen = _mechanisms(mechanism) or ["SCRAM-SHA-256"]
    password = _read_password(user, password_file)
    changes = [
        UserScramCredentialUpsertion(user=user, password=password, mechanism=each, iterations=iterations)
        for each in chosen
    ]
    if not dry_run:
        with open_admin(bootstrap) as admin:
            for change in changes:  # a request may have one change of a user
                admin.alter_user_scram_credentials([change])
    _print_change(user, chosen, "add", dry_run=dry_run, as_json=as_json)


@users.command("remove")
def remove_user(
    bootstrap: Bootstrap, user: User, mechanism: Mechanisms = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Remove the credentials of a user, by default of all mechanisms. Connections that are open stay open."""
    chosen = _mechanisms(mechanism)
    with open_admin(bootstrap) as admin:
        found = [each.mechanism for each in admin.describe_user_scram_credentials([user])[user]]
        wanted = chosen or found
        check_known(wanted, found, f"user {user} has no credential for")
        for each in [] if dry_run else wanted:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(user=user, mechanism=each)])
    _print_change(user, wanted, "remove", dry_run=dry_run, as_json=as_json)


def _mechanisms(given: list[str] | None) -> list[str]:
    chosen = [each.upper() for each in given or ()]
    for each in chosen:
        if each not in HASHES:
            raise ConfigError(f"--mechanism {each!r}: expected one of {', '.join(HASHES)}")
    return list(dict.fromkeys(chosen))


def _read_password(user: str, file: Path | None) -> Secret[str]:
    if file is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
        text = lines[0] if lines else ""
    elif sys.stdin.isatty():
        text = typer.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise ConfigError("the password is empty")
    return Secret(text)


def _print_change(user: str, mechanisms: list[str], what: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"user": user, "mechanisms": mechanisms, "change": what, "dry_run": dry_run})
        return
    done = {"add": "added", "remove": "removed"}[what]
    typer.echo(f"user {user} {'to be ' if dry_run else ''}{done} for {', '.join(mechanisms)}")
