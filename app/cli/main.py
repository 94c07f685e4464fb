"""Entry point of the command: finds the sub-command, runs it, turns errors into one line and an exit code.

Only the module of the sub-command is loaded: a command is as quick as what it needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ...ports.errors import BarnabasError, ConfigError

if TYPE_CHECKING:
    import typer

    from ...plugins.entry_points import EntryPoint

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes. A closed output pipe (`| head`) is DONE, and so is Ctrl-C in a command without another end."""
_COMPLETING = "_BARNABAS_COMPLETE"
_WITH_VALUE = ("--profile",)
"""Options before the command that take the next word."""

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
    "bench": ".bench.command",
    "profile": ".profiles",
}

# Commands of packages above this one (the pipeline) and of other distributions register here.
ENTRY_POINT_GROUP = "barnabas.commands"

SUMMARIES = {
    "serve": "Run a broker until Ctrl-C or SIGTERM.",
    "topics": "List, create, describe, change, delete, recover topics.",
    "produce": "Send each line as a message.",
    "consume": "Print messages, one a line.",
    "groups": "List, describe, reset and delete groups of all types.",
    "transactions": "List and describe transactions; abort hanging ones.",
    "configs": "Describe, set and delete settings.",
    "acls": "List, add and remove access control lists (ACLs).",
    "users": "List, add and remove users of SCRAM and their passwords.",
    "quotas": "List, add and remove quotas.",
    "certs": "Make certificates for development.",
    "cluster": "Run a cluster here; status, reassignment, elections.",
    "top": "Watch brokers, topics, groups and messages.",
    "console": "Serve a web console.",
    "brokers": "List, describe, drain and remove brokers.",
    "log": "Dump, check, repair and summarize the files of a log.",
    "mirror": "Copy topics from other clusters, until Ctrl-C or SIGTERM.",
    "import": "Copy the data of stopped Kafka brokers into a new folder.",
    "bench": "Measure rates and latencies, also compared with other servers.",
    "profile": "Name clusters, to be chosen instead of --bootstrap.",
    "audit": "Compare the counts of the tiers: did all arrive once?",
    "demo": "From a log line to a warehouse table in one go.",
    "examples": "See what a log is for: examples on real data, with Spark.",
    "load": "Bring everything new into a table, exactly once.",
    "query": "Ask topics and loaded tables by SQL.",
    "registry": "Serve schemas by the Confluent REST API.",
    "report": "Turn a loaded table into one HTML page.",
    "sql": "Open a Spark SQL session of topics and loaded tables.",
    "table": "Look at a loaded table, and keep it in good order.",
}
"""The line of each command in `barnabas --help`, which then loads none of their modules (tests/unit/cli)."""


def build_app(wanted: str | None = None) -> typer.Typer:
    """Return the command with the sub-command `wanted`, or with all of them when it is None or unknown."""
    app = _root_app()
    if wanted in _COMMANDS:
        import_module(_COMMANDS[wanted], __package__).register(app)
        return app
    outside = _outside_commands()
    if wanted in outside:
        _register(outside[wanted], app)
        return app
    for module in _COMMANDS.values():
        import_module(module, __package__).register(app)
    for point in outside.values():
        _try_to_register(point, app)
    return app


def build_overview() -> typer.Typer:
    """Return the command for `--help` and for wrong words: it knows names and summaries of the commands of this
    distribution, and loads those of others."""
    app = _root_app()
    for name in _COMMANDS:
        app.command(name, help=SUMMARIES[name])(_nothing)
    for name, point in _outside_commands().items():
        if name in SUMMARIES and point.value.startswith(f"{__name__.partition('.')[0]}."):
            app.command(name, help=SUMMARIES[name])(_nothing)
        else:
            _try_to_register(point, app)
    return app


def _root_app() -> typer.Typer:
    import typer

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

    app = typer.Typer(
        name="barnabas",
        help="A distributed log: broker, clients, and the way from a topic to a warehouse table.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: rich takes twice as long to load as typer
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _outside_commands() -> dict[str, EntryPoint]:
    from ...plugins.entry_points import entry_points

    return {point.name: point for point in entry_points(ENTRY_POINT_GROUP)}


def _try_to_register(point: EntryPoint, app: typer.Typer) -> None:
    try:
        _register(point, app)
    except BarnabasError as error:
        sys.stderr.write(f"barnabas: {error}\n")


def _nothing() -> None:
    """Do nothing: the command is only listed."""


def build_command(wanted: str | None = None) -> Any:
    """Return the command of `build_app`, with `--command-config` at all that connect to a cluster."""
    import typer

    from .command_config import add_command_config

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
        import typer

        from ... import __version__
        from ...core.message.varint import COMPILED

        typer.echo(f"barnabas {__version__}{' (compiled)' if COMPILED else ''}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process with 0 (done), 1 (failed), 2 (wrong usage) or 130 (Ctrl-C)."""
    _open_standard_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = None if _COMPLETING in os.environ else plain_options(given)
        if options is not None:
            from .serve import serve

            serve(**options)
        else:
            # In standalone mode typer itself ends the process for wrong usage (2), --help (0) and typer.Exit.
            _command_for(given)(args=given, prog_name="barnabas")
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


def _command_for(given: Sequence[str]) -> Any:
    """Return the command with what these words need of it."""
    if _COMPLETING in os.environ:
        return build_command()
    wanted = first_word(given)
    if wanted in _COMMANDS or (wanted is not None and wanted in _outside_commands()):
        return build_command(wanted)
    import typer

    return typer.main.get_command(build_overview())


PLAIN_OPTIONS: Mapping[str, tuple[str, type, bool]] = {
    "--data": ("data", Path, False),
    "--listen": ("listen", str, True),
    "--config": ("config", Path, False),
    "--set": ("settings", str, True),
    "--log-level": ("log_level", str, True),
    "--log-format": ("log_format", str, False),
    "--security-dir": ("security_dir", Path, False),
}
"""Options of `serve`: the parameter, its type, and whether the option may be repeated."""


def plain_options(given: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of `serve` if these words are `serve` with such options only, else None.

    A broker then starts without typer, which takes 2 MB and a tenth of the time of its start.
    """
    if not given or given[0] != "serve":
        return None
    options: dict[str, Any] = {}
    words = iter(given[1:])
    for word in words:
        name, equals, value = word.partition("=")
        if name not in PLAIN_OPTIONS:
            return None
        if not equals:
            value = next(words, "-")
            if value.startswith("-"):
                return None
        parameter, kind, repeated = PLAIN_OPTIONS[name]
        if repeated:
            options.setdefault(parameter, []).append(value)
        else:
            options[parameter] = kind(value)
    return options


def first_word(given: Sequence[str]) -> str | None:
    """Return the name of the sub-command in these words: the first one that is no option, nor the value of one."""
    words = iter(given)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


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
    sys.stderr.write(f"barnabas: {error}\n")
    sys.exit(code)
