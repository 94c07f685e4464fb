"""Entry point of the command: finds the sub-command, runs it, turns errors into one line and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NoReturn

import typer

from ...ports.errors import BarnabasError, ConfigError

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
"""Who has had enough of what is printed (`| head`) ends a command with 0, as does Ctrl-C one that goes on for ever."""
_COMPLETING = "_BARNABAS_COMPLETE"

_COMMANDS = {
    "serve": ".serve",
    "topics": ".topics",
    "produce": ".produce",
    "consume": ".consume",
    "groups": ".groups",
    "transactions": ".transactions",
    "configs": ".configs",
    "cluster": ".cluster",
    "top": ".top.command",
    "brokers": ".brokers",
    "log": ".log",
    "mirror": ".mirror",
    "bench": ".bench",
    "profile": ".profiles",
}

# Commands of rooms above this one (the pipeline) and of other packages register here.
ENTRY_POINT_GROUP = "barnabas.commands"


def build_app(wanted: str | None = None) -> typer.Typer:
    """The command with the sub-command `wanted` in it, or with all of them when it is None or not known."""
    app = typer.Typer(
        name="barnabas",
        help="A distributed log: broker, clients, and the way from a topic to a warehouse table.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    if wanted in _COMMANDS:
        import_module(_COMMANDS[wanted], __package__).register(app)
        return app
    outside = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if wanted in outside:
        _register(outside[wanted], app)
        return app
    for module in _COMMANDS.values():
        import_module(module, __package__).register(app)
    for point in outside.values():
        try:
            _register(point, app)
        except BarnabasError as error:
            typer.echo(f"barnabas: {error}", err=True)
    return app


def _register(point: EntryPoint, app: typer.Typer) -> None:
    """A command of another package. Raises `BarnabasError`."""
    try:
        point.load()(app)
    except Exception as error:
        raise BarnabasError(f"the command {point.name} ({point.value}) cannot be loaded: {error}") from error


def _show_version(show: bool) -> None:
    if show:
        from ... import __version__

        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(  # noqa: ARG001  its callback looks at it
        False, "--version", help="Show the version.", callback=_show_version, is_eager=True
    ),
    profile: str | None = typer.Option(
        None, "--profile", metavar="NAME", help="The cluster of this profile (barnabas profile set NAME HOST:PORT)."
    ),
) -> None:
    """A distributed log: broker, clients, and the way from a topic to a warehouse table."""
    if _COMPLETING not in os.environ:
        from .profiles import use_profile

        use_profile(profile)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process with 0 (done), 1 (failed), 2 (wrong usage) or 130 (Ctrl-C)."""
    _open_standard_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = None if _COMPLETING in os.environ else next((word for word in given if not word.startswith("-")), None)
    try:
        # In standalone mode typer itself ends the process for wrong usage (2), --help (0) and typer.Exit.
        build_app(wanted)(args=given, prog_name="barnabas")
    except ConfigError as error:
        _fail(error, WRONG_USAGE)
    except BarnabasError as error:
        _fail(error, FAILED)
    except BrokenPipeError:
        _leave_quietly()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer calls it a failure
            _leave_quietly()
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        _fail(_in_words(error), FAILED)


def _open_standard_streams() -> None:
    """Who closes one of them (`>&-`) does not want it; a file or socket that takes its number is not to get it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # as long as the process


def _in_words(error: OSError) -> str:
    """Without the number that only programmers know."""
    if not error.strerror:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _leave_quietly() -> NoReturn:
    """The reader (head, less) has gone: let no later flush complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    sys.exit(DONE)


def _fail(error: Exception | str, code: int) -> None:
    typer.echo(f"barnabas: {error}", err=True)
    sys.exit(code)
