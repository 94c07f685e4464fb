"""Count the private words of the code base: what `tests/architecture/test_language.py` compares with its allow-lists.

    python tools/language.py             print what the allow-lists do not cover
    python tools/language.py FILE ...    print every finding in these files
    python tools/language.py --update    write lower counts into tests/architecture/language/*.txt

`--update` accepts no additional finding: the sum of each rule over all files must not grow. A file that was moved
keeps its findings under the new name.
"""

import ast
import gc
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = ROOT / "tests" / "architecture" / "language"
NO_PACKAGES = {"build", "docs"}
NAMES_THE_WORDS = {"tools/language.py", "tests/architecture/test_language.py"}
DIVIDED = {"app", "core", "pipeline", "tests"}
"""These packages have an allow-list for each of their folders."""

RULES = {
    "identifier": "a defined name contains a private word; docs/glossary.md has the usual one",
    "docstring": "a docstring begins without its subject; write a full sentence or an imperative",
    "text": "an error, a log line or another text contains a private word; use Kafka's phrase",
    "prose": "a docstring or a comment contains a private word; say it in standard terms",
    "test": "a test name has no subject, a private word or too few words; name behaviour, condition and result",
    "method": "more than three classes have a public method of this name; say what it takes, begins or notes",
}

WORDS = frozenset(
    {"told", "tell", "tells", "telling", "whoever", "whom", "nobody", "somebody", "anew", "aside", "kept", "beside"}
    | {"besides", "course", "detour", "lonely", "leap", "shunned", "leftover", "leftovers", "promised", "dirt", "crew"}
    | {"baton", "ghost", "ghosts", "summon", "settle", "settles", "doubt", "doubts"}
)
PHRASES = (
    *("put_off", "goes_on", "go_on", "any_more", "no_more", "so_long", "so_many", "by_itself", "hang_up", "is_there"),
)
IN_TEXTS = re.compile(
    r"(?<!there )\bis no (?!longer\b|more\b|one\b)\w+"
    r"|\b(told|whoever|whom|nobody|somebody|anew|aside|kept|goes on|go on|any more|no more|so long|put off|is there"
    r"|by itself|by themselves|hangs? up)\b",
    re.IGNORECASE,
)
IN_PROSE = re.compile(
    r"\b(tells?|told|telling|whoever|nobody|somebody|anybody|anew|goes on|go on|any more|no more(?! than)|so many"
    r"|so long|put off)\b",
    re.IGNORECASE,
)
PROSE = re.compile(r'""".*?"""|#[^\n]*', re.DOTALL)
WORDS_OF_TEXT_MIN = 2
"""A string with as many words and a space is a text for a person: an error that is returned, an option's help."""
ELLIPTIC = "The same|As|Of|What|Who|Whom|Whose|It is|It was|How|Why|Which|Where|So|Those|Told|Its"
OPENING = re.compile(rf'^[ \t]*[rf]?"""\s*({ELLIPTIC})\b', re.MULTILINE)
"""A docstring that begins so has its subject in a name above it."""
NOUNS = "The|A|An|True|False|Whether|Each|Every|Everything|All|One|Several|Milliseconds"
FRAGMENT = re.compile(rf'-> (?!"?None\b)[^\n]*:\n[ \t]*r?"""({NOUNS})\b')
"""The docstring of a function that returns something, which begins with a noun: it lacks the verb."""
NOUN_ALLOWED = re.compile(r"property|fixture|contextmanager")
"""The docstrings of these may name a value."""
NO_SUBJECT = frozenset({"as", "but", "it", "its", "of", "or", "so", "that", "their", "these", "they", "this", "those"})
"""A test name that begins so has its subject in another name."""
TEST = re.compile(r"^[ \t]*(?:async )?def test_(\w+)\(", re.MULTILINE)
NAMES_OF_PLACES = frozenset({"place", "places"})
"""A TopicPartition is not named so, but `tp`; several are `partitions`."""
PARTITION = re.compile(r"\bTopicPartition\b")
STABLE = frozenset(
    {("testing/faulty_remote_storage.py", "settle")}
    | {("plugins/builtin/__init__.py", "place"), ("core/replica/leader/replica_selector.py", "place")}
)
"""Names by which users call what the compatibility promise covers."""
METHOD = re.compile(r"^    (?:async )?def (take|begin|settle|look|note)\(", re.MULTILINE)
CLASSES_MAX = 3
LOGGING = frozenset(
    {"debug", "info", "warning", "error", "critical", "exception", "log", "report", "warn", "say", "tell", "failed"}
    | {"Line", "_report", "_log", "_warn", "_say", "_tell", "_tell_once", "_failed"}
)
"""The names of calls that take a line for the log, or for a person."""
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
WORD = re.compile("[A-Za-z]{2,}")
DOCSTRING_OR_COMMENT = re.compile(r'""".*?"""|^ *#[^\n]*', re.DOTALL | re.MULTILINE)
SUSPECT = (
    *WORDS,
    *PHRASES,
    *(phrase.replace("_", " ") for phrase in PHRASES),
    "hangs up",
    "anybody",
    "by themselves",
    " is no ",
    *NAMES_OF_PLACES,
)
"""A file without these needs no syntax tree."""
SUSPECT_NAMES = (*WORDS, *PHRASES, *NAMES_OF_PLACES)


class Finding(NamedTuple):
    path: str
    rule: str
    line: int
    what: str


def files() -> list[Path]:
    packages = [
        at for at in ROOT.iterdir() if at.is_dir() and not at.name.startswith(".") and at.name not in NO_PACKAGES
    ]
    return sorted(path for package in packages for path in package.rglob("*.py"))


def findings(paths: list[Path] | None = None) -> list[Finding]:
    """Return the findings in these files, or in all."""
    gc.disable()  # the trees have no cycles, and are let go one by one
    try:
        return [finding for path in (files() if paths is None else paths) for finding in _in_file(path)]
    finally:
        gc.enable()


def counts(found: list[Finding]) -> Counter[tuple[str, str]]:
    """Return the number of findings by file and rule. Classes with one public method name count by that name."""
    result: Counter[tuple[str, str]] = Counter()
    for finding in found:
        result[finding.what if finding.rule == "method" else finding.path, finding.rule] += 1
    return Counter({at: n for at, n in result.items() if at[1] != "method" or n > CLASSES_MAX})


def allowed() -> Counter[tuple[str, str]]:
    """Return the allow-lists. Of two lines for one file, which a merge may leave, the lower one counts."""
    result: Counter[tuple[str, str]] = Counter()
    for path in ALLOWED.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, rule, number = line.split()
            result[name, rule] = min(int(number), result.get((name, rule), int(number)))
    return result


def list_of(name: str) -> str:
    """Return the allow-list to which a file belongs."""
    folders = name.split("/")[:-1]
    return "_".join(folders[: 2 if folders and folders[0] in DIVIDED else 1]) or "methods"


def write(wanted: Counter[tuple[str, str]]) -> None:
    lists: dict[str, list[str]] = {}
    for (name, rule), number in sorted(wanted.items()):
        lists.setdefault(list_of(name), []).append(f"{name} {rule} {number}\n")
    ALLOWED.mkdir(exist_ok=True)
    for path in ALLOWED.glob("*.txt"):
        if path.stem not in lists:
            path.unlink()
    for stem, lines in lists.items():
        (ALLOWED / f"{stem}.txt").write_text("".join(lines), encoding="utf-8")


def growth(now: Counter[tuple[str, str]], before: Counter[tuple[str, str]]) -> list[str]:
    """Return the rules of which there are more findings than before."""
    sums = {rule: (_sum(now, rule), _sum(before, rule)) for rule in RULES}
    return [f"{rule}: {new}, allowed are {old}" for rule, (new, old) in sums.items() if new > old]


def _sum(by_file: Counter[tuple[str, str]], rule: str) -> int:
    return sum(number for (_, its), number in by_file.items() if its == rule)


def _in_file(path: Path) -> Iterator[Finding]:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    if name.startswith("tests/"):
        for match in TEST.finditer(text):
            words = match[1].split("_")
            if len(words) < 3 or words[0] in NO_SUBJECT or _is_private(words):
                yield Finding(name, "test", _line(text, match.start(1)), f"test_{match[1]}")
    if name in NAMES_THE_WORDS:
        return
    for match in OPENING.finditer(text):
        yield Finding(name, "docstring", _line(text, match.start(1)), text[match.start(1) :].partition("\n")[0])
    for match in FRAGMENT.finditer(text):
        at = text.rfind("def ", 0, match.start())
        decorators = text[:at].rpartition("\n\n")[2]
        if not NOUN_ALLOWED.search(decorators):
            yield Finding(name, "docstring", _line(text, match.start(1)), text[match.start(1) :].partition("\n")[0])
    for passage in PROSE.finditer(text):
        for match in IN_PROSE.finditer(passage[0]):
            yield Finding(name, "prose", _line(text, passage.start() + match.start()), match[0])
    is_test = name.startswith("tests/")
    code = DOCSTRING_OR_COMMENT.sub("", text).lower()
    if is_test:
        if any(word in code for word in SUSPECT_NAMES):
            yield from _names(name, ast.parse(text))
        return  # the values in them may be any words
    for match in METHOD.finditer(text):
        yield Finding(name, "method", _line(text, match.start(1)), match[1])
    if any(word in code for word in SUSPECT):
        tree = ast.parse(text)
        yield from _names(name, tree)
        yield from _texts_in(name, tree)


def _names(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield the private names that a file defines, each once; the rule `test` checks the names of tests."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        name = _defined(node)
        if name is None or name.startswith("test_") or (path, name) in STABLE:
            continue
        if _is_private([part.lower() for part in PARTS.findall(name)]) or _is_misnamed_partition(node):
            found.setdefault(name, getattr(node, "lineno", 1))
    for name, line in found.items():
        yield Finding(path, "identifier", line, name)


def _is_misnamed_partition(node: ast.AST) -> bool:
    """Return True for an argument or a variable whose annotation is of a TopicPartition, and whose name is not."""
    return (
        isinstance(node, ast.arg)
        and node.arg in NAMES_OF_PLACES
        and node.annotation is not None
        and PARTITION.search(ast.unparse(node.annotation)) is not None
    )


def _texts_in(path: str, tree: ast.Module) -> Iterator[Finding]:
    known = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _called(node) in LOGGING):
            for text in _texts(node):
                known.add(id(text))
                match = IN_TEXTS.search(str(text.value)) or IN_PROSE.search(str(text.value))
                if match is not None:
                    yield Finding(path, "text", text.lineno, f"{match[0]!r} in {text.value!r}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known:
            match = IN_PROSE.search(node.value) if " " in node.value else None
            if match is not None and len(WORD.findall(node.value)) >= WORDS_OF_TEXT_MIN:
                yield Finding(path, "text", node.lineno, f"{match[0]!r} in {node.value!r}")


def _defined(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.arg():
            return node.arg
        case ast.Name(ctx=ast.Store()):
            return node.id
        case ast.Attribute(ctx=ast.Store()):
            return node.attr
        case _:
            return None


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name():
            return node.func.id
        case ast.Attribute():
            return node.func.attr
        case _:
            return ""


def _texts(node: ast.Raise | ast.Call) -> Iterator[ast.Constant]:
    """Yield the texts of a raise or a call, but not those of calls in it that log."""
    todo: list[ast.AST] = [node.exc] if isinstance(node, ast.Raise) and node.exc is not None else []
    if isinstance(node, ast.Call):
        todo = [*node.args, *(keyword.value for keyword in node.keywords)]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part
        elif not (isinstance(part, ast.Call) and _called(part) in LOGGING):
            todo += ast.iter_child_nodes(part)


def _is_private(words: list[str]) -> bool:
    joined = f"_{'_'.join(words)}_"
    return any(word in WORDS for word in words) or any(f"_{phrase}_" in joined for phrase in PHRASES)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main(arguments: list[str]) -> int:
    if arguments and arguments != ["--update"]:
        for finding in findings([Path(argument).resolve() for argument in arguments]):
            _say(f"{finding.path}:{finding.line}: {finding.rule}: {finding.what}")
        return 0
    found = findings()
    now, before = counts(found), allowed()
    if arguments:
        more = growth(now, before)
        if not more:
            write(now)
            _say("\n".join(f"{rule}: {_sum(before, rule)} -> {_sum(now, rule)}" for rule in RULES))
            return 0
        _say("\n".join(more))
    for finding in found:
        at = finding.what if finding.rule == "method" else finding.path
        if now[at, finding.rule] > before[at, finding.rule]:
            _say(f"{finding.path}:{finding.line}: {finding.rule}: {finding.what}")
    return 1 if arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
