"""docs/features.md does not say more, or less, of the protocol than there is."""

import re

from support.documents import read

from barnabas.app.compose.broker import kafka_apis


def test_features_page_lists_every_api() -> None:
    page = read("docs/features.md")
    offered = {key for key in kafka_apis() if key < 30_000}  # the others are our own
    assert f"({len(offered)} APIs)" in page
    section = page.partition("## APIs that are not offered")[2]
    refused: set[int] = set()
    for numbers in re.findall(r"\((\d[^)]*)\)", section):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers.partition(" is ")[0]):
            refused |= set(range(int(first), int(last or first) + 1))
    assert {4, 5, 6, 7} <= refused
    assert refused & offered == set()
