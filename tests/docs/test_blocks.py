"""Every block of code in the documents is run by a test, or at least looked at: commands by the real parser, Python by
the compiler, settings by the broker's tables. A block of an unknown kind fails here.

A block of `sh`, `console`, `python` or `toml` is one that a test runs: RUN says which. What cannot be run here (it
serves for ever, names other machines, or is another's) is written as `shell`, or as Python with a title.
"""

import ast
import importlib
import importlib.util
import re
import tomllib
from collections import Counter
from collections.abc import Iterator

import pytest
from support.documents import (
    SHELL,
    Block,
    NotTaken,
    barnabas_words,
    blocks,
    commands,
    flags,
    lines_of,
    name_of,
    pages,
    parse,
    prose,
    read,
)

from barnabas.app.config import BrokerConfig

TO_BE_RUN = ("sh", "console", "python", "toml")
DRAWINGS = ("", "text")
OF_OTHERS = ("shell", "json", "properties", "yaml")
"""Commands that cannot be run here, and files that other programs read."""
RUN = {
    "README.md": {"test_readme": 4, "test_testing_docs": 1},
    "docs/adapters.md": {"test_own_adapters": 3},
    "docs/audit.md": {"test_audit_docs": 4},
    "docs/changing-a-cluster.md": {"test_operations_docs": 3},
    "docs/checklist.md": {"test_deployment_docs": 1},
    "docs/classic.md": {"test_classic_docs": 1},
    "docs/cli.md": {"test_cli_docs": 3},
    "docs/clients.md": {"test_clients_docs": 7},
    "docs/coming-from-aiokafka.md": {"test_coming_from_docs": 2},
    "docs/coming-from-confluent-kafka.md": {"test_coming_from_docs": 3},
    "docs/coming-from-kafka-python.md": {"test_coming_from_docs": 3},
    "docs/coming-from-kcat.md": {"test_coming_from_docs": 2},
    "docs/coming-from-rpk.md": {"test_coming_from_docs": 1},
    "docs/composing.md": {"test_composing_docs": 4},
    "docs/console.md": {"test_console_process": 1},
    "docs/deletion-policies.md": {"test_deletion_policies": 1},
    "docs/first-hour.md": {"test_first_hour": 11},
    "docs/groups.md": {"test_groups_docs": 5},
    "docs/index.md": {"test_front_page": 1},
    "docs/operations.md": {"test_operations_docs": 4},
    "docs/plugins.md": {"test_plugins_docs": 36},
    "docs/queries.md": {"test_queries": 8},
    "docs/recovery.md": {"test_recovery_docs": 3},
    "docs/schemas.md": {"test_schema_docs": 3, "test_typed_docs": 3},
    "docs/share-consumer.md": {"test_share_docs": 3},
    "docs/simulation.md": {"test_simulated_loop": 1},
    "docs/spark.md": {"test_spark_docs": 6},
    "docs/streams.md": {"test_streams_docs": 6},
    "docs/tables.md": {"test_table_docs_load": 5, "test_table_docs": 6},
    "docs/testing.md": {"test_testing_docs": 12},
    "docs/transactions.md": {"test_transactions_docs": 3},
    "docs/troubleshooting.md": {"test_troubleshooting_docs": 1},
    "docs/unit-testing.md": {"test_unit_testing_docs": 7},
    "docs/uses.md": {"test_streams_docs": 1},
}
"""Page → tests of tests/integration → how many of its blocks they run. A new block: have it run, then count it here."""

OTHERS = {
    "--no-deps", "--wheel-dir",  # of pip
    "--follow", "--now", "--output", "--since",  # of systemctl and journalctl
    "--home-dir", "--shell", "--system",  # of useradd
    "--filename", "--namespace",  # of kubectl
    "--groups",  # of benchmarks.console_pages
    "--check", "--strict",  # of sha256sum
    "--data-dir", "--force-new-cluster", "--prefix",  # of etcd
    "--barnabas-set",  # of pytest, by the plug-in
    "--late",  # of our pytest
    "--faults", "--minutes", "--over", "--rate", "--record", "--seed", "--transactions",  # of make chaos
    "--new-groups", "--shares",  # of make chaos
    "--preload",  # of gunicorn
    "--update",  # of tools/language.py
    "--rare",  # of tools/simulate.py
}  # fmt: skip


def everything() -> Iterator[Block]:
    for page in pages():
        yield from blocks(name_of(page))


def test_every_block_is_run_or_looked_at() -> None:
    found: dict[str, int] = Counter()
    for block in everything():
        if block.language in TO_BE_RUN:
            found[block.page] += 1
        else:
            known = block.language in (*DRAWINGS, *OF_OTHERS) or block.language.startswith('python title="')
            assert known, f"{block}: no check exists for a block of {block.language!r}"
    assert found == {page: sum(tests.values()) for page, tests in RUN.items()}, "see RUN above"


def test_the_tests_that_run_them_are_there() -> None:
    for page, tests in RUN.items():
        for test in tests:
            text = read(f"tests/integration/{test}.py")
            assert re.search(rf'"(docs/)?{page.rpartition("/")[2]}"', text), f"{test} does not read {page}"


def test_commands_are_taken_by_the_real_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")  # as of a profile in use
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    extras = set(tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"])
    wrong = []
    for block in everything():
        for line in lines_of(block) if block.language in SHELL else ():
            for words in barnabas_words(line):
                try:
                    parse(words)
                except NotTaken as error:
                    wrong.append(f"{block}: {line}: {error}")
            if line.startswith("make "):
                assert line.split()[1] in targets, f"{block}: {line}"
            for named in re.findall(r"\[([a-z,]+)\]", line) if line.startswith("pip ") else ():
                assert set(named.split(",")) <= extras, f"{block}: {line}"
    assert wrong == []


def test_python_blocks_compile_and_their_imports_exist() -> None:
    wrong = []
    for block in everything():
        if not block.language.startswith("python"):
            continue
        for node in ast.walk(ast.parse(block.code, filename=str(block))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "barnabas":
                wrong += [f"{block}: {node.module}.{each.name}" for each in node.names if not _exists(node, each.name)]
    assert wrong == []


def _exists(node: ast.ImportFrom, name: str) -> bool:
    module = importlib.import_module(str(node.module))
    return hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}") is not None


def test_settings_are_those_of_a_broker() -> None:
    """Blocks of a user's pyproject.toml are exempt."""
    found = [tomllib.loads(block.code) for block in everything() if block.language == "toml"]
    settings = [each for each in found if "project" not in each]
    assert settings
    assert all(BrokerConfig.from_mapping(each) for each in settings)


def test_commands_that_the_text_names_are_there() -> None:
    """`barnabas COMMAND ...` in a sentence, with dots, bars or words left out: the command, and its options."""
    wrong = []
    for page in pages():
        for call in re.findall(r"`barnabas ([^`]+)`", prose(read(name_of(page)))):
            words = call.split()
            name = " ".join(words[:3]), " ".join(words[:2]), words[0]
            known = next((commands()[each] for each in name if each in commands()), None)
            if known is None and words[0] not in {"COMMAND", "ready", "mirroring", "auditing"} and words[0][0] != "-":
                wrong.append(f"{name_of(page)}: barnabas {call}")
            options = {option for each in known.params for option in each.opts} if known is not None else flags()
            for word in words:
                flag = word.partition("=")[0]
                if flag.startswith("--") and flag not in options | {"--help"}:
                    wrong.append(f"{name_of(page)}: barnabas {call}: {flag}")
    assert wrong == []


def test_options_that_the_text_names_are_there() -> None:
    """`--flag` anywhere in code, of any command here."""
    wrong = []
    for page in map(name_of, pages()):
        code = re.findall(r"`([^`\n]+)`", prose(read(page)))
        code += [line for block in blocks(page) if block.language in SHELL for line in lines_of(block)]
        named = {flag for text in code for flag in re.findall(r"(?<![\w-])--[a-z](?:[a-z.-]*[a-z])?", text)}
        wrong += [f"{page}: {flag}" for flag in sorted(named - flags() - OTHERS)]
    assert wrong == []


def test_code_in_documents_has_at_most_110_columns() -> None:
    """At 1400 pixels the column of the site has room for 110 characters of code."""
    wrong = [
        f"{block}: {line}"
        for block in everything()
        if block.page.startswith("docs/")
        and block.language not in ("console", "properties", "text")  # a terminal's lines, values in one line, messages
        for line in block.code.splitlines()
        if len(line) > 110 and not line.startswith("curl ")
    ]
    assert wrong == []
