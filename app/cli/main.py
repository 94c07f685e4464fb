"""Entry point of the command: finds the sub-command, runs it, turns errors into one line and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

import typer

from ...ports.errors import BarnabasError, ConfigError

DONE, FAILED, WRONG_USAGE = 0, 1, 2

_COMMANDS = {
    "serve": ".serve",
    "topics": ".topics",
    "produce": ".produce",
    "consume": ".consume",
    "groups": ".groups",
    "transactions": ".transactions",
    "configs": ".configs",
    "cluster": ".cluster",
    "brokers": ".brokers",
    "log": ".log",
    "mirror": ".mirror",
    "bench": ".bench",
}

# Commands of rooms above this one (the pipeline) and of other packages register here.
ENTRY_POINT_GROUP = "barnabas.commands"


def build_app(wanted: str | None = None) -> typer.Typer:
    """The command with the sub-command `wanted` in it, or with all of them when it is None or not known."""
    app = typer.Typer(
        name="barnabas",
        help="A distributed log: broker, clients, and the way from a topic to a warehouse table.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    if wanted in _COMMANDS:
        import_module(_COMMANDS[wanted], __package__).register(app)
        return app
    outside = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if wanted in outside:
        outside[wanted].load()(app)
        return app
    for module in _COMMANDS.values():
        import_module(module, __package__).register(app)
    for point in outside.values():
        point.load()(app)
    return app


def _show_version(show: bool) -> None:
    if show:
        from ... import __version__

        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_show_version, is_eager=True),
) -> None:
    """A distributed log: broker, clients, and the way from a topic to a warehouse table."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process with 0 (done), 1 (failed) or 2 (wrong usage)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = next((word for word in given if not word.startswith("-")), None)
    try:
        # In standalone mode typer itself ends the process for wrong usage (2), --help (0) and typer.Exit.
        build_app(wanted)(args=given, prog_name="barnabas")
    except ConfigError as error:
        _fail(error, WRONG_USAGE)
    except BarnabasError as error:
        _fail(error, FAILED)
    except BrokenPipeError:
        # The reader (head, less) has gone: leave quietly, and let no later flush complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except OSError as error:
        _fail(error, FAILED)


def _fail(error: Exception, code: int) -> None:
    typer.echo(f"barnabas: {error}", err=True)
    sys.exit(code)
