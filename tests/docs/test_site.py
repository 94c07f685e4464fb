"""The site shows source files that documents link to, finds words that people search for, and is readable."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.documents import CHECKOUT

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
pytest.importorskip("mkdocstrings_handlers.python", reason="the extra docs is not installed")


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", CHECKOUT / "tools" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page:
    """The attributes of a page that the hook reads."""

    def __init__(self, place: str) -> None:
        self.file = self
        self.src_uri = place
        self.meta: dict[str, object] = {}


def shown(site: ModuleType, place: str, markdown: str) -> str:
    return str(site.on_page_markdown(markdown, page=Page(place), config={"extra": {}}))


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "BARNABAS_REPOSITORY": "https://git.example.org/barnabas"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


SEARCHES = {
    "isr": "reliability",
    "insync": "configuration",
    "min.insync.replicas": "configuration",
    "auto.offset.reset": "configuration",
    "offset.reset": "configuration",
    "interval.messages": "configuration",
    "decommission": "changing-a-cluster",
    "migrate": "coming-from-[a-z-]+",
    "async": "clients",
    "exactly once": "transactions",
    "connected clients": "operations",
    "docker": "testing",
    "dead letter": "cookbook/workers",
    "fastapi": "cookbook/frameworks",
    "Producer": "api/producer",
    "TLS": "security",
    "linger": "configuration",
}
"""Search words → a page that must be among the first three results."""

ASK = """
const fs = require("fs"), vm = require("vm");
const [worker, index, ...words] = process.argv.slice(1);
const answers = [];
let listener;
const scope = { console, postMessage: m => answers.push(m), addEventListener: (_, f) => { listener = f; } };
scope.self = scope;
vm.createContext(scope);
vm.runInContext(fs.readFileSync(worker, "utf8"), scope);
const found = JSON.parse(fs.readFileSync(index, "utf8"));
(async () => {
  await listener({ data: { type: 0, data: { ...found, options: { suggest: false } } } });
  for (const word of words) await listener({ data: { type: 2, data: word } });
  await new Promise(done => setTimeout(done, 0));
  const pages = answers.filter(m => m.type === 3).map(m => m.data.items.map(page => page[0].location));
  console.log(JSON.stringify(pages));
})();
"""
"""Material's own search, as a browser runs it in a worker."""


def test_search_finds_keys_by_their_parts_and_words_that_people_use(built: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: it runs the search of the site as a browser does")
    (worker,) = (built / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    command = [node, "-e", ASK, str(worker), str(built / "search" / "search_index.json"), *SEARCHES]
    asked = subprocess.run(command, capture_output=True, text=True, check=True)
    wrong = {
        word: pages[:3]
        for (word, wanted), pages in zip(SEARCHES.items(), json.loads(asked.stdout), strict=True)
        if not any(re.match(rf"{wanted}\.html", page) for page in pages[:3])
    }
    assert wrong == {}


def test_search_works_from_a_folder_without_a_server(built: Path) -> None:
    script = (built / "search" / "search_index.js").read_text(encoding="utf-8")
    assert json.loads(script.removeprefix("var __index = "))["docs"]
    assert "javascripts/iframe-worker.js" in (built / "index.html").read_text(encoding="utf-8")


def test_pages_show_the_version_and_link_to_the_repository(built: Path) -> None:
    page = (built / "clients.html").read_text(encoding="utf-8")
    assert re.search(r"Barnabas \d+\.\d+\.\d+", page)
    assert 'href="https://git.example.org/barnabas"' in page
    assert 'href="https://git.example.org/barnabas/edit/main/docs/clients.md"' in page


def test_every_page_has_one_first_heading(built: Path) -> None:
    several = {
        page.relative_to(built).as_posix()
        for page in built.rglob("*.html")
        if "source" not in page.parts and len(re.findall(r"<h1\b", page.read_text(encoding="utf-8"))) != 1
    }
    assert several == set()


def test_a_key_of_the_configuration_has_an_anchor(built: Path) -> None:
    assert '<td id="min.insync.replicas">' in (built / "configuration.html").read_text(encoding="utf-8")
