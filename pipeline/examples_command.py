"""`barnabas examples`: the uses of a log on real data, from `examples/uses`, which is not part of the wheel."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from ..app.cli.options import AsJson, print_json, print_table, progress
from ..app.extras import require
from ..ports.errors import ConfigError
from .option_names import on_command_line
from .session import REPORT_PACKAGES
from .spark.errors import plain_spark_errors

CHECKOUT_EXAMPLES = Path(__file__).parents[1] / "examples" / "uses"
_MODULE = "barnabas_examples"

examples = typer.Typer(no_args_is_help=True, help="What a log is for: examples on real data, with Spark.")

From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="The folder examples/uses of a checkout or source distribution. Default: that of the checkout in use.",
        envvar="BARNABAS_EXAMPLES",
    ),
]


def register_examples(app: typer.Typer) -> None:
    app.add_typer(examples, name="examples")


@examples.command("list")
def list_examples(folder: From = None, as_json: AsJson = False) -> None:
    """List the examples, and the data that each needs."""
    uses = _load_examples(folder).USES.values()
    if as_json:
        print_json([{"name": each.name, "title": each.title, "files": [f.name for f in each.files]} for each in uses])
    else:
        print_table(("name", "what", "data"), ((e.name, e.title, ", ".join(f.name for f in e.files)) for e in uses))


@examples.command("run")
def run_example(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `barnabas examples list`; all: each in turn.")],
    folder: From = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The folder with the data.", envvar="BARNABAS_EXAMPLES_DATA")
    ] = Path("data"),
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for pages and tables.")] = Path(
        "examples-out"
    ),
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="A broker of yours; its topics examples.* are deleted and created again. Default: one for this run.",
        ),
    ] = None,
) -> None:
    """Send real data to a broker, run a Spark job, write topics, tables and a page, and print the results."""
    loaded = _load_examples(folder)
    if name != "all" and name not in loaded.USES:
        raise ConfigError(f"unknown example {name!r}; known examples: {', '.join(loaded.USES)}")
    for use in loaded.USES.values() if name == "all" else [loaded.USES[name]]:
        with on_command_line(), plain_spark_errors(), progress(f"example {use.name}", None):
            done = loaded.play(use, data, out, bootstrap)
        for line in done.lines:
            typer.echo(line)
        typer.echo(f"{done.page.resolve()} ({done.seconds:.0f} s)")


def _load_examples(folder: Path | None) -> ModuleType:
    """Import the package of examples. Raises `ConfigError` if it, or a package that it needs, is missing."""
    require("the examples", [*REPORT_PACKAGES, "deltalake"], "tables")
    place = (folder or CHECKOUT_EXAMPLES).resolve() / "__init__.py"
    if not place.is_file():
        if folder is not None:
            raise ConfigError(
                f"no examples in {folder}: __init__.py is missing; give the folder examples/uses by --from"
            )
        from .. import __version__

        raise ConfigError(
            "the examples are not part of the installed package; get the folder examples/uses from the repository or "
            f"from the source distribution barnabas-{__version__}.tar.gz, and give it by --from DIR"
        )
    spec = importlib.util.spec_from_file_location(_MODULE, place, submodule_search_locations=[str(place.parent)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    return module
