"""The site has pages of the source files that the documents link to."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from support.documents import CHECKOUT

pytest.importorskip("mkdocs", reason="the extra docs is not installed")


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", CHECKOUT / "tools" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page:
    """As much of a page as the hook looks at."""

    def __init__(self, place: str) -> None:
        self.file = self
        self.src_uri = place


def shown(site: ModuleType, place: str, markdown: str) -> str:
    return str(site.on_page_markdown(markdown, page=Page(place)))


def test_links_out_of_the_documents_lead_to_pages_of_the_files(site: ModuleType) -> None:
    text = "[a](../examples/streams/README.md#top), [b](../examples/own_adapter), [c](tables.md), `[d](../LICENSE)`\n"
    assert shown(site, "spark.md", f"{text}```\n[e](../LICENSE)\n```\n") == (
        "[a](source/examples/streams/README.md.md#top), [b](source/examples/own_adapter.md), [c](tables.md), "
        "`[d](source/LICENSE.md)`\n```\n[e](../LICENSE)\n```\n"
    )
    back = "[f](../../docs/installation.md)"
    assert shown(site, "source/examples/streams/README.md.md", back) == "[f](../../../installation.md)"


def test_a_file_is_shown_as_it_is(site: ModuleType, tmp_path: Path) -> None:
    page = site._content(CHECKOUT / "examples" / "streams" / "orders_with_names.py")
    source = (CHECKOUT / "examples" / "streams" / "orders_with_names.py").read_text(encoding="utf-8")
    assert page == f"# examples/streams/orders_with_names.py\n\n~~~~~python\n{source}\n~~~~~\n"
    assert "## examples/own_adapter/json_coordination.py" in site._content(CHECKOUT / "examples" / "own_adapter")
