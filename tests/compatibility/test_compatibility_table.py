"""The table in docs/compatibility.md says what the tests of the matrix find."""

from pathlib import Path

import pytest
from support.compat import outcomes, table
from support.compat.matrix import CLIENTS, FEATURES


@pytest.fixture
def page(checkout: Path) -> str:
    return (checkout / "docs" / "compatibility.md").read_text(encoding="utf-8")


def results(**changed: str) -> list[outcomes.Found]:
    """Return results in which everything was tested."""
    return [
        outcomes.Found(
            client=key, feature=feature, state=changed.get(f"{key}_{feature}", "yes"), reason="a\nb", version="1.2"
        )
        for key, entry in CLIENTS.items()
        for feature in entry.features
    ]


def test_the_page_agrees_with_the_matrix(page: str) -> None:
    """The matrix is what the tests insist on, so this holds whichever of them run here."""
    assert table.parse(page) == table.planned()


def test_the_page_agrees_with_what_this_run_found(page: str) -> None:
    written = table.parse(page)
    found = table.cells_of(each for each in outcomes.read() if each.run == outcomes.this_run())
    assert {cell: written[cell] for cell in found} == found


def test_failing_check_is_named() -> None:
    text = table.render(results(kcat_headers="no"))
    row = next(line for line in text.splitlines() if line.startswith(f"| {FEATURES['headers']} "))
    assert row.count("| yes ") == len(CLIENTS) - 1
    number = row.partition("no (")[2].partition(")")[0]
    assert f"({number}) kcat: a." in " ".join(text.split())


def test_untested_client_is_not_written_to_the_table() -> None:
    with pytest.raises(ValueError, match=r"not tested: kcat-headers$"):
        table.render(results(kcat_headers="skipped"))


def test_rendered_table_is_found_and_parsed() -> None:
    empty = f"# Title\n\n{table.BEGIN}\n{table.END}\n\nmore\n"
    text = table.render(results(kcat_headers="no"))
    page = table.replaced(empty, text)
    assert page == f"# Title\n\n{table.BEGIN}\n{text}\n{table.END}\n\nmore\n"
    assert {cell for cell, state in table.parse(page).items() if state == "no"} == {("kcat", "headers")}
    assert table.replaced(page, text) == page
