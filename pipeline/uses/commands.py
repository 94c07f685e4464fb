"""`barnabas examples`: the uses of a log on real data, played by one command each."""

from pathlib import Path
from typing import Annotated

import typer

from ...app.cli.options import AsJson, print_json, print_table, progress
from ...app.extras import require
from ...ports.errors import ConfigError
from ..session import REPORT_PACKAGES
from ..spark.errors import plain_spark_errors
from ..wording import on_the_command_line

examples = typer.Typer(no_args_is_help=True, help="What a log is for: examples on real data, with Spark.")


def register_examples(app: typer.Typer) -> None:
    app.add_typer(examples, name="examples")


@examples.command("list")
def list_examples(as_json: AsJson = False) -> None:
    """The examples, and the data that each needs."""
    _require_packages()
    from .catalog import USES

    if as_json:
        print_json(
            [{"name": each.name, "title": each.title, "files": [f.name for f in each.files]} for each in USES.values()]
        )
    else:
        print_table(
            ("name", "what", "data"), ((e.name, e.title, ", ".join(f.name for f in e.files)) for e in USES.values())
        )


@examples.command("run")
def run_example(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As `barnabas examples list` tells it; all: each in turn.")
    ],
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The folder with the data.", envvar="BARNABAS_EXAMPLES_DATA")
    ] = Path("data"),
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where pages and tables go.")] = Path(
        "examples-out"
    ),
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="A broker of yours; topics examples.* are made anew there. Default: one for this run.",
        ),
    ] = None,
) -> None:
    """Send real data to a broker, run the job on Spark, write topics, tables and a page, and say what was found."""
    _require_packages()
    from .catalog import USES
    from .stage import play

    if name != "all" and name not in USES:
        raise ConfigError(f"there is no example {name!r}; there is {', '.join(USES)}")
    for use in USES.values() if name == "all" else [USES[name]]:
        with on_the_command_line(), plain_spark_errors(), progress(f"example {use.name}", None):
            done = play(use, data, out, bootstrap)
        for line in done.lines:
            typer.echo(line)
        typer.echo(f"{done.page.resolve()} ({done.seconds:.0f} s)")


def _require_packages() -> None:
    """Require the packages, also to name a missing one: a module of an example imports what it needs."""
    require("the examples", [*REPORT_PACKAGES, "deltalake"], "tables")
