"""The table in docs/compatibility.md: what was found, in words and footnotes."""

import re
from collections.abc import Iterable, Mapping
from textwrap import wrap

from .matrix import CLIENTS, FEATURES
from .outcomes import Found

BEGIN, END = "<!-- compatibility:begin -->", "<!-- compatibility:end -->"
YES, NO, LACKS = "yes", "no", "-"
Cells = Mapping[tuple[str, str], str]
"""(client, feature) → "yes", "no" or "-"."""


def planned() -> dict[tuple[str, str], str]:
    """Return the results that the matrix expects; a test with another result fails."""
    cells = {}
    for entry in CLIENTS.values():
        for feature in FEATURES:
            state = LACKS if feature in entry.lacks else NO if feature in entry.faults else YES
            cells[entry.key, feature] = state
    return cells


def cells_of(found: Iterable[Found]) -> dict[tuple[str, str], str]:
    """Return the results, without cells that were skipped or are no longer in the matrix."""
    plan = planned()
    return {
        (each.client, each.feature): each.state
        for each in found
        if each.state in (YES, NO) and plan.get((each.client, each.feature), LACKS) != LACKS
    }


def render(found: Iterable[Found]) -> str:
    """Return the table with its footnotes, without the markers. Raises `ValueError` for cells without a result."""
    results = list(found)
    cells = {key: state for key, state in planned().items() if state == LACKS} | cells_of(results)
    missing = [f"{key}-{feature}" for key, feature in planned() if (key, feature) not in cells]
    if missing:
        raise ValueError(f"not tested: {', '.join(missing)}")
    notes: dict[str, int] = {}
    lines = [_row(["", *(entry.title for entry in CLIENTS.values())]), _row(["---"] * (len(CLIENTS) + 1))]
    for feature, title in FEATURES.items():
        row = [title]
        for key, entry in CLIENTS.items():
            state = cells[key, feature]
            reason = entry.lacks.get(feature) or entry.faults.get(feature) or ""
            if state == NO and not reason:
                reason = next(each.reason for each in results if (each.client, each.feature) == (key, feature))
                reason = reason.partition("\n")[0]
            note = f" ({notes.setdefault(f'{entry.title}: {reason}', len(notes) + 1)})" if state != YES else ""
            row.append(state + note)
        lines.append(_row(row))
    versions = {CLIENTS[each.client].title: each.version for each in results if each.version}
    tested = ", ".join(f"{title} ({version})" for title, version in sorted(versions.items()) if title != "Barnabas")
    below = " ".join([f"Last written for {tested}.", *(f"({number}) {note}." for note, number in notes.items())])
    lines += ["", *wrap(below, 120, break_on_hyphens=False)]
    return "\n".join(lines)


def parse(page: str) -> dict[tuple[str, str], str]:
    """Return the cells of the table in the page. Raises `ValueError` without a table."""
    rows = [line for line in page[slice(*_places(page))].splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    if len(table) < 3:
        raise ValueError("the page has no table of compatibility")
    keys = {entry.title: key for key, entry in CLIENTS.items()}
    features = {title: feature for feature, title in FEATURES.items()}
    columns = [keys[title] for title in table[0][1:]]
    return {
        (key, features[row[0]]): re.sub(r" \(\d+\)$", "", cell)
        for row in table[2:]
        for key, cell in zip(columns, row[1:], strict=True)
    }


def replaced(page: str, table: str) -> str:
    """Return the page with this table between the markers."""
    start, end = _places(page)
    return f"{page[:start]}\n{table}\n{page[end:]}"


def _places(page: str) -> tuple[int, int]:
    """Return the begin and the end of the text between the markers."""
    start, end = page.find(BEGIN), page.find(END)
    if start < 0 or end < start:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return start + len(BEGIN), end


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
