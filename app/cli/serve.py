"""`barnabas serve`: run a broker."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from ...ports.errors import ConfigError
from .options import Settings, parse_settings


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Where the logs are kept.")] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Where to listen, as kafka://HOST:PORT (port 0: any free one); repeatable."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration (TOML).")] = None,
    settings: Settings = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; logs go to standard error.")] = "info",
) -> None:
    """Run a broker until it is told to stop (Ctrl-C or SIGTERM).

    Prints "barnabas ready URL..." on standard output once it accepts connections.
    """
    levels = logging.getLevelNamesMapping()
    if log_level.upper() not in levels:
        raise ConfigError(f"--log-level {log_level!r}: choose one of debug, info, warning, error")
    logging.basicConfig(
        level=levels[log_level.upper()], stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    from ..compose import serve as run
    from ..config import read_config

    given = parse_settings(settings)
    if data is not None:
        given["log.dirs"] = str(data)
    if listen:
        given["listeners"] = ",".join(listen)
    run(read_config(config, given), ready=_announce)


def _announce(listeners: list[str]) -> None:
    sys.stdout.write(f"barnabas ready {' '.join(listeners)}\n")
    sys.stdout.flush()
