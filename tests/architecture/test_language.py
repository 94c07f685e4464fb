"""Names, docstrings, error texts and test names use the terms of docs/glossary.md, not private words.

`tools/language.py` counts them by file. `language/*.txt` has the counts that are still tolerated; they only shrink.
"""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "language.py"
UPDATE = "python tools/language.py --update"


@pytest.fixture(scope="module")
def language() -> ModuleType:
    spec = importlib.util.spec_from_file_location("language", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_file_gains_private_words_and_every_allowance_is_needed(language: ModuleType) -> None:
    found = language.findings()
    now, allowed = language.counts(found), language.allowed()
    gained = {at for at, number in now.items() if number > allowed[at]}
    shown = [
        f"{finding.path}:{finding.line}: {finding.rule}: {finding.what}"
        for finding in found
        if (finding.what if finding.rule == "method" else finding.path, finding.rule) in gained
    ]
    reasons = [f"{rule}: {reason}" for rule, reason in language.RULES.items() if any(its == rule for _, its in gained)]
    assert not gained, "\n".join([*reasons, f"(of a moved file: {UPDATE})", *shown])
    unneeded = [f"{name} {rule} {number}, found {now[name, rule]}" for (name, rule), number in allowed.items()
                if number > now[name, rule]]  # fmt: skip
    assert not unneeded, "\n".join([f"lower these with {UPDATE}", *unneeded])


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("def append(told: int) -> None: ...\n", ["identifier"]),
        ("class SetAside:\n    pass\n", ["identifier"]),
        ("self._put_off = 1\n", ["identifier"]),
        ("asides = kept_alive = 1\n", ["identifier"]),
        ("coursework = untold = 1\n", []),
        ("def settle() -> None: ...\n", ["identifier"]),
        ("def leader(place: TopicPartition) -> int: ...\n", ["identifier"]),
        ("def leaders(places: Sequence[TopicPartition]) -> list[int]: ...\n", ["identifier"]),
        ("def path(place: Path, tp: TopicPartition) -> str: ...\n", []),
        ('def f() -> None:\n    """The same, or None."""\n', ["docstring"]),
        ('def f() -> None:\n    """Of its files."""\n', ["docstring"]),
        ('def f() -> None:\n    """Return the files of the log."""\n', []),
        ('def f() -> None:\n    """Offsets that are committed."""\n', []),
        ('def f() -> int:\n    """The size of the log."""\n', ["docstring"]),
        ('@property\ndef f() -> int:\n    """The size of the log."""\n', []),
        ('def f() -> None:\n    """The leader has changed."""\n', []),
        ('raise ValueError("nobody leads t-0 any more")\n', ["text"]),
        ('report(f"{name} is kept")\n', ["text"]),
        ('x = "kept"\n', []),
        ('return f"{name} goes on"\n', ["text"]),
        ('option(help="Keep messages so long.")\n', ["text"]),
        ('raise ValueError("nobody leads t-0")\n', ["text"]),
        ('raise ValueError(f"{name} is no offset")\n', ["text"]),
        ('raise ValueError(f"there is no topic {name}, or it is no longer here")\n', []),
        ('x = "no_more"\n', []),
        ('def f() -> None:\n    """Return what the broker told."""\n', ["prose"]),
        ("x = 1  # nobody reads it any more\n", ["prose", "prose"]),
        ("x = 1  # at most one, no more than that\n", []),
    ],
)
def test_private_word_in_source_is_found(
    language: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, rules: list[str]
) -> None:
    monkeypatch.setattr(language, "ROOT", tmp_path)
    path = tmp_path / "core.py"
    path.write_text(source, encoding="utf-8")
    assert [finding.rule for finding in language.findings([path])] == rules


def test_short_or_private_test_name_is_found(
    language: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "ROOT", tmp_path)
    path = tmp_path / "tests" / "test_log.py"
    path.parent.mkdir()
    names = [
        "test_where_to",
        "test_what_is_kept_after_restart",
        "test_it_is_read_again",
        "test_append_full_disk_refused",
    ]
    path.write_text("".join(f"def {name}() -> None: ...\n" for name in names), encoding="utf-8")
    assert [finding.what for finding in language.findings([path])] == names[:3]


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ('def f() -> None:\n    """Of its files."""\n', ["docstring"]),
        ('def f() -> int:\n    """The size of the log."""\n', ["docstring"]),
        ("x = 1  # nobody reads it\n", ["prose"]),
        ('x = "told"\n', []),
        ('raise ValueError("nobody leads t-0")\n', []),
        ("kept = 1\n", ["identifier"]),
        ("def go_on() -> None: ...\n", ["identifier"]),
        ("def f(place: TopicPartition) -> None: ...\n", ["identifier"]),
    ],
)
def test_private_word_in_body_of_a_test_is_found(
    language: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, rules: list[str]
) -> None:
    monkeypatch.setattr(language, "ROOT", tmp_path)
    path = tmp_path / "tests" / "support" / "logs.py"
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    assert [finding.rule for finding in language.findings([path])] == rules


def test_fourth_class_with_the_same_method_is_counted(language: ModuleType) -> None:
    found = [language.Finding(f"core/f{number}.py", "method", 1, "take") for number in range(4)]
    assert language.counts(found[:3]) == Counter()
    assert language.counts(found) == Counter({("take", "method"): 4})


def test_update_moves_counts_to_a_new_path_and_refuses_growth(
    language: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "ALLOWED", tmp_path / "language")
    language.write(Counter({("core/log/old.py", "docstring"): 2, ("take", "method"): 5}))
    assert sorted(path.name for path in (tmp_path / "language").iterdir()) == ["core_log.txt", "methods.txt"]
    moved = Counter({("core/log/new.py", "docstring"): 2, ("take", "method"): 4})
    assert language.growth(moved, language.allowed()) == []
    assert language.growth(Counter({("core/log/new.py", "docstring"): 3}), language.allowed()) == [
        "docstring: 3, allowed are 2"
    ]


def test_two_lines_for_one_file_after_a_merge_mean_the_lower_count(
    language: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "ALLOWED", tmp_path)
    (tmp_path / "core_log.txt").write_text("core/log/log.py text 3\ncore/log/log.py text 1\n", encoding="utf-8")
    assert language.allowed() == Counter({("core/log/log.py", "text"): 1})
