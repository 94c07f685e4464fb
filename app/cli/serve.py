"""`barnabas serve`: run a broker."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .options import Settings, parse_settings


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder of the logs.")] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Listener kafka://HOST:PORT (port 0: any free one); may be repeated."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML, or server.properties.")] = None,
    settings: Settings = None,
    log_level: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL",
            help="debug, info (default), warning, error; LOGGER=LEVEL for one logger; may be repeated.",
        ),
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="FORM", help="Format of the log on standard error: text or json.")
    ] = None,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Prints "barnabas ready URL..." on standard output once it accepts connections.
    """
    from ..signals import ending_in_order

    with ending_in_order():
        _serve(data, listen, config, settings, log_level, log_format)


def _serve(
    data: Path | None,
    listen: list[str] | None,
    config: Path | None,
    settings: list[str] | None,
    log_level: list[str] | None,
    log_format: str | None,
) -> None:
    from ..compose.serve import serve as run
    from ..config import read_config
    from .logging_setup import set_up

    given = parse_settings(settings)
    if data is not None:
        given["log.dirs"] = str(data)
    if listen:
        given["listeners"] = ",".join(listen)
    if log_level:
        given["logging.level"] = ",".join(log_level)
    if log_format is not None:
        given["logging.format"] = log_format
    read = read_config(config, given)
    set_up(read.logging_level, read.logging_format)
    run(read, ready=_announce)


def _announce(listeners: list[str]) -> None:
    sys.stdout.write(f"barnabas ready {' '.join(listeners)}\n")
    sys.stdout.flush()
