"""Complete the site that mkdocs makes of the documents (`hooks` in mkdocs.yml).

The documents link to files as they lie in the checkout, so that a host of the repository shows them, too. In the site a
link out of `docs/` leads to a page with the file's content, and one to a folder to a page with all of its files.

The site shows its version, links to the repository if there is an address of it, has the words of `extra.search_words`
in its index, and keeps the anchors of headings that got another name.
"""

import json
import posixpath
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCE = "source"
"""The part of the site with pages of source files."""
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```|~~~)[^\n]*\n.*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
ELSEWHERE = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="https?:[^"]*"')
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash"}
FOLDER_SUFFIXES = (".md", ".py", ".toml")
LUNR_NODE_KEY = re.compile(r"(\w)=\1\+(\w)\+(\w)\.id\}return \1")
"""The key by which lunr recognizes equal nodes. It is the same for an edge `2` to node 41 and `24` to node 1, and some
searches fail."""
DOCUMENTED = (
    "__init__.py",
    "adapters/__init__.py",
    "adapters/coord_memory.py",
    "adapters/metrics_memory.py",
    "adapters/remote_memory.py",
    "adapters/storage_memory.py",
    "adapters/system.py",
    "adapters/transport_memory.py",
    "app/__init__.py",
    "app/clients",
    "app/compose/__init__.py",
    "app/compose/broker.py",
    "app/embedded_broker.py",
    "app/mirror",
    "app/typed_broker_settings.py",
    "core/__init__.py",
    "core/classic",
    "core/client",
    "core/log/__init__.py",
    "core/log/retention.py",
    "core/message",
    "core/replica/__init__.py",
    "core/replica/leader/__init__.py",
    "core/replica/leader/replica_selector.py",
    "core/security",
    "pipeline/__init__.py",
    "pipeline/load.py",
    "pipeline/queries",
    "pipeline/session.py",
    "pipeline/streams.py",
    "plugins",
    "ports",
    "schemas/__init__.py",
    "schemas/client.py",
    "schemas/encoders",
    "simulation",
    "testing",
)
"""The API reference reads these parts; the whole package would take several times as long."""
LESSER_PAGES = ("facts.md", "design/", "spec/")
"""Search lists these behind the pages for users."""
KEY_CELL = re.compile(r"(<tr>\s*<td[^>]*>)<code>([a-z][\w.-]*\.[\w.*-]*)</code>")
KEY_ROW = re.compile(r'<td id="([^"]+)"><code>.*?</code></td>\s*<td>(?:.*?)</td>\s*<td>(.*?)</td>\s*</tr>', re.DOTALL)
FORMER_ANCHORS: Mapping[str, Mapping[str, str]] = {
    "clients.md": {
        "consume-as-a-member-of-a-group": "share-a-topic",
        "exactly-once-transactions": "each-message-once",
        "schemas-avro-json-schema-protobuf-and-audit": "values-with-a-schema-counted",
        "delivery-results-and-errors": "what-became-of-a-message",
        "asyncio-asyncproducer-asyncconsumer": "without-waiting",
    },
    "architecture.md": {
        "architecture": "the-house-room-by-room",
        "data-flows": "the-ways",
        "packages": "the-rooms",
        "a-produce-request": "a-produce",
        "a-fetch-request": "a-fetch",
        "add-a-request-type": "one-more-request",
    },
    "recovery.md": {
        "recovery-at-startup": "at-a-start",
        "scrubbing-and-repair-from-replicas": "while-it-runs",
        "verify": "looking",
        "repair": "mending",
        "dump-segments-and-statistics": "reading-it-yourself",
    },
    "features.md": {
        "features-and-limitations": "what-is-there-and-what-is-not-yet",
        "clusters-replication-and-coordination": "several-brokers",
        "consumer-groups": "groups",
        "plug-ins-and-adapters": "extending-it",
        "testing-kit": "tests-of-yours",
        "apis-that-are-not-offered": "by-api-key",
    },
    "simulation.md": {
        "clusters-in-simulated-time": "a-cluster-in-simulated-time",
        "objects-of-a-world": "whom-there-is",
        "rules-for-programs": "what-a-program-may-do",
        "stories-of-the-project-make-sim": "what-the-project-plays-itself",
    },
    "security.md": {
        "security-protocols-tls-and-sasl": "what-there-is",
        "threats-who-can-reach-what": "who-can-reach-what",
    },
    "composing.md": {
        "embed-a-broker-in-your-program": "a-broker-in-your-program",
        "the-broker-object": "an-object",
        "a-broker-process-of-your-own": "a-process",
        "startup-and-shutdown": "from-start-to-stop",
    },
    "transactions.md": {
        "produce-in-a-transaction": "write",
        "consume-committed-messages": "read",
        "consume-process-produce": "read-work-write",
        "errors": "when-it-goes-wrong",
        "versions-1-and-2": "what-version-1-leaves-open",
        "inspect-and-abort-transactions": "look-and-mend",
    },
    "troubleshooting.md": {
        "first-checks": "first-looks",
        "clients-producers-and-consumers": "clients",
        "a-running-broker": "a-broker-that-runs",
        "report-a-problem": "if-nothing-here-helps",
    },
    "unit-testing.md": {
        "a-manual-clock": "a-clock-that-stands-still",
        "a-broker-without-threads": "a-broker-by-hand",
        "the-log-of-one-partition": "one-log",
        "code-that-uses-a-producer-or-a-consumer": "code-with-a-producer-or-a-consumer",
    },
    "cli.md": {
        "command-line": "the-command-line",
        "choose-a-cluster-profiles": "which-cluster",
        "times-and-durations": "times",
    },
    "performance.md": {
        "summary": "the-few-that-matter",
    },
    "first-hour.md": {
        "watch-the-cluster": "a-look-at-all-of-it",
    },
    "operations.md": {
        "run-one-broker": "one-broker",
        "run-several-brokers-replication": "several-brokers",
        "log-output": "the-log",
    },
    "classic.md": {
        "the-classic-generation-kafka-07": "the-classic-generation",
    },
    "audit.md": {
        "mirrors-consumers-and-loads": "the-tiers-behind",
        "compare-tiers": "compare",
        "the-audit-topic": "the-topic",
    },
    "adapters.md": {
        "storage-contract-tests": "the-suite-of-storage",
        "coordination-contract-tests": "the-suite-of-coordination",
        "other-contract-tests": "other-suites",
    },
}
"""Page → anchor of a heading → the anchor that it had under its former name."""


def on_startup(**_: object) -> None:
    """Lay the package where the API reference finds it."""
    package = ROOT / ".build" / "api" / "barnabas"
    for part in DOCUMENTED:
        link = package / part
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(ROOT / part)


def on_config(config: Any) -> None:
    """Read the version and the repository's address from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.site_name = f"{config.site_name} {project['version']}"
    config.repo_url = config.repo_url or project.get("urls", {}).get("Repository")
    if config.repo_url and not config.edit_uri and not config.edit_uri_template:
        config.edit_uri = "edit/main/docs/"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each file outside of `docs/` that a document links to."""
    wanted = {target for page in DOCS.rglob("*.md") for target in _outside(page.read_text(encoding="utf-8"), page)}
    known: set[Path] = set()
    while new := wanted - known:
        known |= new
        wanted |= {t for page in new if page.suffix == ".md" for t in _outside(page.read_text(encoding="utf-8"), page)}
    for target in sorted(known):
        files.append(File.generated(config, _place(target), content=_content(target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """Turn links that leave `docs/` into links to those pages, and set how the search treats the page."""
    place = page.file.src_uri
    if place.startswith(f"{SOURCE}/"):
        page.meta["search"] = {"exclude": True}
        page.edit_url = None
    elif place.startswith(LESSER_PAGES):
        page.meta["search"] = {"boost": 0.2}
    if words := config["extra"].get("search_words", {}).get(place):
        page.meta["tags"] = words
    shown = ROOT / place.removeprefix(f"{SOURCE}/").removesuffix(".md") if place.startswith(f"{SOURCE}/") else None
    here = DOCS / place if shown is None else shown
    if shown is None or shown.suffix == ".md":
        markdown = _without_code(markdown, lambda text: _relinked(text, here, place))
    return markdown


def on_page_content(html: str, *, page: Any, **_: object) -> str:
    """Give each key in the first cell of a row an anchor and places to break at, and headings their former anchors."""
    seen: set[str] = set()

    def key_cell(cell: re.Match[str]) -> str:
        key, start = cell[2], cell[1]
        if key not in seen:
            seen.add(key)
            start = start.replace("<td", f'<td id="{key}"')
        return f"{start}<code>{key.replace('.', '.<wbr>')}</code>"

    for anchor, former in FORMER_ANCHORS.get(page.file.src_uri, {}).items():
        heading = re.search(rf'<h\d id="{re.escape(anchor)}"', html)
        if heading is None:
            raise PluginError(f"{page.file.src_uri} has no heading {anchor} for its former anchor {former}")
        html = f'{html[: heading.start()]}<a id="{former}"></a>{html[heading.start() :]}'
    return KEY_CELL.sub(key_cell, html)


def on_post_build(*, config: Any) -> None:
    """Complete the search: an entry for each setting, and the index as a script, for a search without a server.

    Raises `PluginError` where a page would load something from another host.
    """
    index = Path(config["site_dir"]) / "search" / "search_index.json"
    if index.exists():
        found = json.loads(index.read_text(encoding="utf-8"))
        settings = Path(config["site_dir"]) / "configuration.html"
        found["docs"] += [
            {"location": f"configuration.html#{key}", "title": key, "text": text}
            for key, text in KEY_ROW.findall(settings.read_text(encoding="utf-8"))
        ]
        text = json.dumps(found, separators=(",", ":"))
        index.write_text(text, encoding="utf-8")
        index.with_suffix(".js").write_text(f"var __index = {text}", encoding="utf-8")
    for worker in Path(config["site_dir"]).glob("assets/javascripts/workers/search.*.min.js"):
        script = LUNR_NODE_KEY.sub(r'\1=\1+\2+\3.id+","}return \1', worker.read_text(encoding="utf-8"))
        worker.write_text(script, encoding="utf-8")
    for page in Path(config["site_dir"]).rglob("*.html"):
        found = ELSEWHERE.search(page.read_text(encoding="utf-8"))
        if found is not None:
            raise PluginError(f"{page} loads something from another host: {found[0]}")


def _outside(text: str, page: Path) -> set[Path]:
    """Return the files and folders outside of `docs/` that it links to."""
    found = set()
    for link in LINK.finditer(FENCE.sub("", text)):
        target = _target(link[2], page)
        if target is not None and not target.is_relative_to(DOCS):
            found.add(target)
    return found


def _target(link: str, page: Path) -> Path | None:
    """Return the linked file or folder of the checkout, None for anything else."""
    if ":" in link or link.startswith("/"):
        return None
    target = (page.parent / link).resolve()
    return target if target.is_relative_to(ROOT) and target.exists() else None


def _place(target: Path) -> str:
    """Return the path of its page in the site."""
    return f"{SOURCE}/{target.relative_to(ROOT).as_posix()}.md"


def _relinked(text: str, page: Path, place: str) -> str:
    def lead(link: re.Match[str]) -> str:
        target = _target(link[2], page)
        if target is None:
            return link[0]
        if target.is_relative_to(DOCS):
            if not place.startswith(f"{SOURCE}/"):
                return link[0] if target.is_file() else f"{link[1]}{link[2].rstrip('/')}/README.md{link[4]}"
            there = target.relative_to(DOCS).as_posix()
        else:
            there = _place(target)
        return f"{link[1]}{posixpath.relpath(there, posixpath.dirname(place))}{link[3] or ''}{link[4]}"

    return LINK.sub(lead, text)


def _without_code(text: str, change: Any) -> str:
    """Change what stands outside of fenced code."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _content(target: Path) -> str:
    if target.is_dir():
        files = sorted(path for path in target.iterdir() if path.suffix in FOLDER_SUFFIXES)
        return "\n\n".join([f"# {_name(target)}", *(_listing(path, "##") for path in files)])
    return target.read_text(encoding="utf-8") if target.suffix == ".md" else _listing(target, "#")


def _listing(path: Path, heading: str) -> str:
    """Return a file as it is, below its name."""
    language = LANGUAGES.get(path.suffix, "text")
    return f"{heading} {_name(path)}\n\n~~~~~{language}\n{path.read_text(encoding='utf-8')}\n~~~~~\n"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
