"""Entry point of the command: finds the sub-command, runs it, turns errors into one line and an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NoReturn

import typer

from ...ports.errors import BarnabasError, ConfigError
from .command_config import add_command_config

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes. A closed output pipe (`| head`) is DONE, and so is Ctrl-C in a command without another end."""
_COMPLETING = "_BARNABAS_COMPLETE"

_COMMANDS = {
    "serve": ".serve",
    "topics": ".topics.command",
    "produce": ".produce",
    "consume": ".consume.command",
    "groups": ".groups.command",
    "transactions": ".transactions",
    "configs": ".configs",
    "acls": ".acls",
    "users": ".users",
    "quotas": ".quotas",
    "certs": ".certs",
    "cluster": ".cluster.command",
    "top": ".top.command",
    "brokers": ".brokers",
    "log": ".log.command",
    "mirror": ".mirror",
    "import": ".import_data",
    "bench": ".bench",
    "profile": ".profiles",
}

# Commands of packages above this one (the pipeline) and of other distributions register here.
ENTRY_POINT_GROUP = "barnabas.commands"


def build_app(wanted: str | None = None) -> typer.Typer:
    """Return the command with the sub-command `wanted`, or with all of them when it is None or unknown."""
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


def build_command(wanted: str | None = None) -> Any:
    """Return the command of `build_app`, with `--command-config` at all that connect to a cluster."""
    command = typer.main.get_command(build_app(wanted))
    add_command_config(command)
    return command


def _register(point: EntryPoint, app: typer.Typer) -> None:
    """Register a command of another package. Raises `BarnabasError`."""
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
        build_command(wanted)(args=given, prog_name="barnabas")
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
    """Open closed standard streams (`>&-`) as /dev/null, so that no other file or socket gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # as long as the process


def _in_words(error: OSError) -> str:
    """Return the text of an error without its number."""
    if not error.strerror:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _leave_quietly() -> NoReturn:
    """End quietly after the reader (head, less) closed the pipe, without an error at a later flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    sys.exit(DONE)


def _fail(error: Exception | str, code: int) -> None:
    typer.echo(f"barnabas: {error}", err=True)
    sys.exit(code)
