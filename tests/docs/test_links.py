"""Links in the documents lead somewhere, in the checkout as in the site."""

import re
from functools import cache
from pathlib import Path

from support.documents import CHECKOUT, all_pages, name_of, pages, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:[a-z][a-z_0-9]*/)+[a-z_0-9.]+\.(?:py|md|json|toml|sh))`")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of its headings, as repository hosts and the site make them."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return frozenset(found)


def test_links_lead_somewhere() -> None:
    wrong = [f"{name_of(page)}: {link}" for page in all_pages() for link in links(page) if not leads(link, page)]
    assert wrong == []


def links(page: Path) -> list[str]:
    """Return the links that do not lead to other hosts."""
    text = re.sub(r"`[^`\n]*`", "", prose(page.read_text(encoding="utf-8")))
    return [link for link in LINK.findall(text) if not link.startswith(("https://", "http://"))]


def leads(link: str, page: Path) -> bool:
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.exists() or not target.is_relative_to(CHECKOUT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


def test_source_files_that_the_text_names_are_there() -> None:
    wrong = []
    for page in pages():
        for name in SOURCE.findall(prose(page.read_text(encoding="utf-8"))):
            ours = (CHECKOUT / name.partition("/")[0]).is_dir()  # or a file on the user's machine
            if ours and not any((folder / name).exists() for folder in (CHECKOUT, page.parent)):
                wrong.append(f"{name_of(page)}: {name}")
    assert wrong == []
