"""docs/cli.md names every command, each with options that it has."""

import re

from support.documents import commands, read

PAGE = "docs/cli.md"
ROW = re.compile(r"^\| `([a-z0-9 -]+)`(?: ¹)? \| (.+?) \| (.*?) ?\|$", re.MULTILINE)


def test_every_command_has_a_row() -> None:
    there = {name for name, each in commands().items() if not hasattr(each, "commands") or each.invoke_without_command}
    there.discard("cluster")  # alone it is `cluster overview`
    rows = [name for name, _, _ in ROW.findall(read(PAGE))]
    assert sorted(rows) == sorted(there)


def test_a_row_names_options_that_the_command_has() -> None:
    wrong = []
    for name, what, options in ROW.findall(read(PAGE)):
        known = {option for each in commands()[name].params for option in (*each.opts, *each.secondary_opts)}
        wrong += [f"{name} {flag}" for flag in re.findall(r"--[a-z-]+", f"{what} {options}") if flag not in known]
    assert wrong == []


def test_commands_that_take_a_classic_cluster_are_marked() -> None:
    marked = set(re.findall(r"^\| `([a-z -]+)` ¹ \|", read(PAGE), re.MULTILINE))
    assert marked == {
        name for name, each in commands().items() if any("--zk-connect" in option.opts for option in each.params)
    }


def test_commands_with_dry_run_are_documented() -> None:
    """The row of a command that changes something only with --execute names that option."""
    rows = {name: what for name, what, _ in ROW.findall(read(PAGE))}
    for name, each in commands().items():
        if any("--execute" in option.opts and option.is_flag for option in each.params):
            assert "`--execute`" in rows[name], name
