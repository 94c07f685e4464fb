"""Public names of the product have a caller in the product. A name that equals another used name is not found."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGES = (
    "ports",
    "core",
    "adapters",
    "plugins",
    "app",
    "schemas",
    "audit",
    "pipeline",
    "console",
    "testing",
    "simulation",
)
AROUND = ("tests", "benchmarks", "examples", "tools")

FACES = (
    "__init__.py",
    "audit/auditor.py",
    "audit/envelope.py",
    "app/clients/",
    "pipeline/streams.py",
    "simulation/",
    "testing/",
)
"""For users: what they may call need not be called in here, but a test or an example does."""

CALLED_FROM_OUTSIDE = {
    "Spark": {
        *("getDefaultReadLimit", "initialOffset", "prepareForTriggerAvailableNow", "reportLatestOffset"),
        "onQueryStarted",
        *("streamReader", "streamWriter"),
    },
    "http.server": {"log_message", "service_actions"},
    "Python, by entry points": {
        *(
            "register_audit",
            "register_console",
            "register_demo",
            "register_examples",
            "register_load",
            "register_query",
            "register_registry",
            "register_report",
            "register_sql",
            "register_table",
            "serve_console_in_broker",
            "serve_in_broker",
        ),
    },
    "urllib": {"redirect_request"},
    "pyiceberg": {"to_input_file"},
    "pytest": {"pytest_addoption", "pytest_configure"},
    "Hypothesis": {"holds_what_the_model_holds", "same_tree"},
    "tests, to look on and to cause faults": {
        *(
            "heal_all",
            "is_ready",
            "observed",
            "read_owners",
            "read_topic_offsets",
            "readers_of",
        ),
        *("set_wall", "unregister_consumer"),
    },
}

NOT_CALLED_YET = {
    "write_to": "a message set on its way to a sink, as the design has it",
}
"""Names that have tests but no caller yet. Remove a line when the caller exists."""


def _defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, methods and classes that nothing registers by a decorator, and constants of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            registered = re.search(r"hook|fixture|command|callback|default|rule", decorators)
            if not registered and not node.name.startswith(("__", "test_")):
                yield node.name, node.lineno
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield target.id, statement.lineno


def _used(tree: ast.Module) -> Iterator[str]:
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings use nothing
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield from re.findall(r"\w+", node.value)  # annotations as text, `getattr`, `__all__`


def _dead(product: dict[str, str], around: list[str]) -> dict[str, str]:
    """Name → where it is defined, of what is named nowhere else."""
    trees = {path: ast.parse(text) for path, text in product.items()}
    inside = {name for tree in trees.values() for name in _used(tree)}
    outside: set[str] = set()
    unread = list(around)

    def is_used_outside(name: str) -> bool:
        """Reads no more than it takes to know."""
        for text in [text for text in unread if name in text]:
            if name in outside:
                break
            unread.remove(text)
            outside.update(_used(ast.parse(text)))
        return name in outside

    found: dict[str, str] = {}
    for path, tree in trees.items():
        for name, line in _defined(tree):
            if name not in inside and not (path.startswith(FACES) and is_used_outside(name)):
                found[name] = f"{path}:{line}"
    return found


def _texts(checkout: Path, folders: tuple[str, ...]) -> dict[str, str]:
    paths = [path for folder in folders for path in (checkout / folder).rglob("*.py")]
    return {str(path.relative_to(checkout)): path.read_text(encoding="utf-8") for path in paths}


def test_every_public_name_has_a_caller(checkout: Path) -> None:
    product = _texts(checkout, PACKAGES) | {"__init__.py": (checkout / "__init__.py").read_text(encoding="utf-8")}
    around = _texts(checkout, AROUND)
    del around[str(Path(__file__).resolve().relative_to(checkout))]  # it names what it excuses
    dead = _dead(product, [*around.values()])
    excused = set(NOT_CALLED_YET).union(*CALLED_FROM_OUTSIDE.values())
    report = [f"{where}: no caller of {name}; take it out" for name, where in dead.items() if name not in excused]
    report += [f"{name}: is called now, or gone; its line here goes" for name in sorted(excused - dead.keys())]
    assert not report, "\n".join(report)


def test_name_without_a_caller_is_found() -> None:
    product = {
        "core/a.py": "LIMIT = 1\nFREE = 2\ndef used(): return LIMIT\ndef unused(): 'unused'",
        "core/d.py": "class A:\n    def gone(self): pass",
        "core/b.py": "from .a import used; from .d import A",
        "app/clients/c.py": "def face(): pass\ndef untested(): pass",
    }
    assert set(_dead(product, ["face()", "unused()"])) == {"FREE", "unused", "gone", "untested"}
