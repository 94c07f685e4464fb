"""A small module that only one module of its folder imports belongs into that module, or has a reason."""

import ast
from pathlib import Path

import grimp
import pytest

CODE_LINES = 100
"""Lines of code, without blank lines, comments and docstrings."""
SHARE_MAX = 0.15
"""The share of files, those of packages among them, that exactly one other file imports."""
AROUND = ("tests", "benchmarks", "examples", "docs", "tools")
REASONS = {
    "app/broker/lifecycle/authorization.py": "the choice of an authorizer by the configuration",
    "app/broker/lifecycle/registration.py": "the registration of a broker in the coordination tree",
    "app/cli/workers.py": "imported only where a broker has several workers",
    "audit/envelope.py": "imported only where messages are counted",
    "console/listening.py": "an entry point, which a broker loads",
    "console/tables.py": "the program of a process of its own",
    "core/log/partition_log/loading.py": "recovery of a log, apart from the log in service, which is long",
    "pipeline/queries/spark_sql.py": "needs Spark; the module that uses it does not",
    "pipeline/queries/typed.py": "needs the extra registry; the module that uses it does not",
    "pipeline/source/encoding.py": "needs the extra registry; the module that uses it does not",
    "pipeline/tables/iceberg/files.py": "data files of pyiceberg, whose names are those of our tables",
    "schemas/registry/listening.py": "an entry point, which a broker loads",
    "testing/by_hand.py": "the one module of testing that may import adapters",
    "testing/cluster_tree.py": "the coordination tree of a test cluster, which is long",
}
"""Each with the reason why it is a file. The list may only shrink."""

Importers = dict[Path, tuple[str, set[str]]]


@pytest.fixture(scope="module")
def importers(checkout: Path) -> Importers:
    """The importers of each file. Imports for types alone do not count."""
    graph = grimp.build_graph("barnabas", cache_dir=None, exclude_type_checking_imports=True)
    found: Importers = {}
    for module in graph.modules:
        path = checkout.joinpath(*module.split(".")[1:])
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if path.is_file() and path.relative_to(checkout).parts[0] not in AROUND:
            by = graph.find_modules_that_directly_import(module)
            found[path.relative_to(checkout)] = (
                module,
                {each for each in by if f"{each}.".split(".")[1] not in AROUND},
            )
    return found


def _code_lines(text: str) -> int:
    """Count the lines of statements, without those of docstrings and of texts that stand alone."""
    lines = set(range(1, len(text.splitlines()) + 1))
    lines -= {number for number, line in enumerate(text.splitlines(), 1) if not line.strip() or line.strip()[0] == "#"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_small_module_with_one_importer_in_its_folder_has_a_reason(checkout: Path, importers: Importers) -> None:
    small = set()
    for path, (module, by) in importers.items():
        in_folder = {each for each in by if each.rpartition(".")[0] == module.rpartition(".")[0]}
        if len(by) == 1 and in_folder and _code_lines((checkout / path).read_text(encoding="utf-8")) < CODE_LINES:
            small.add(path.as_posix())
    assert small - REASONS.keys() == set(), "merge these into the modules that import them, or give a reason"
    assert REASONS.keys() - small == set(), "these need no reason any longer"


def test_share_of_files_with_one_importer_does_not_grow(importers: Importers) -> None:
    single = sorted(path.as_posix() for path, (_, by) in importers.items() if len(by) == 1)
    assert len(single) < SHARE_MAX * len(importers), f"{len(single)} of {len(importers)}: {single}"
