"""`barnabas certs`: certificates for development."""

from pathlib import Path
from typing import Annotated

import typer

from ...ports.errors import ConfigError


def register(app: typer.Typer) -> None:
    certs = typer.Typer(help="Certificates for development, by an authority of your own.", no_args_is_help=True)
    certs.command("create")(create)
    app.add_typer(certs, name="certs")


def create(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the authority and the certificates.")],
    hosts: Annotated[
        str, typer.Option("--hosts", metavar="HOST,...", help="Names and addresses that clients use for the broker.")
    ] = "localhost,127.0.0.1,::1",
    broker: Annotated[
        str, typer.Option("--broker", metavar="NAME", help="Name of the broker's certificate; empty: none.")
    ] = "broker",
    user: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="NAME", help="Name of a user who gets a certificate; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Days until the certificates expire.")] = 825,
) -> None:
    """Create an authority, a certificate for a broker, and others for users; what exists in the folder remains.

    Files are readable by their owner only. The authority's key is in the same folder: use it for development only.
    """
    from ..certificates import AUTHORITY, AUTHORITY_KEY, DevelopmentAuthority

    names = [host.strip() for host in hosts.split(",") if host.strip()]
    if broker and not names:
        raise ConfigError("--hosts is empty; give the names by which clients reach the broker")
    is_new = not (out / AUTHORITY_KEY).exists()
    authority = DevelopmentAuthority(out)
    rows = [(authority.path, "the authority: ssl.truststore.location, ssl.ca.location", is_new)]
    if broker:
        written = authority.issue(broker, names, days)
        rows.append((written.path, f"broker for {', '.join(names)}: ssl.keystore.location", written.is_new))
    for each in user or ():
        written = authority.issue(each, (), days)
        rows.append((written.path, f"user CN={each}: ssl.keystore.location", written.is_new))
    for path, what, new in rows:
        typer.echo(f"{'created' if new else 'exists '}  {path}  {what}")
    typer.echo(f"For development only: {out / AUTHORITY_KEY} makes certificates that {AUTHORITY} vouches for.")
