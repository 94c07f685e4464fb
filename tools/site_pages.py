"""Add pages of the source files that documents link to.

The documents link to files as they lie in the checkout, so that a host of the repository shows them, too. In the site a
link out of `docs/` leads to a page with the file's content, and one to a folder to a page with all of its files.
mkdocs calls the functions here (`hooks` in mkdocs.yml).
"""

import posixpath
import re
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


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Turn links that leave `docs/` into links to those pages."""
    place = page.file.src_uri
    shown = ROOT / place.removeprefix(f"{SOURCE}/").removesuffix(".md") if place.startswith(f"{SOURCE}/") else None
    here = DOCS / place if shown is None else shown
    if shown is None or shown.suffix == ".md":
        markdown = _without_code(markdown, lambda text: _relinked(text, here, place))
    return markdown


def on_post_build(*, config: Any) -> None:
    """The site loads nothing from other hosts. Raises `PluginError` where it would."""
    for page in Path(config["site_dir"]).rglob("*.html"):
        found = ELSEWHERE.search(page.read_text(encoding="utf-8"))
        if found is not None:
            raise PluginError(f"{page} loads something from another host: {found[0]}")


def _outside(text: str, page: Path) -> set[Path]:
    """The files and folders outside of `docs/` that it links to."""
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
    """A file as it is, below its name."""
    language = LANGUAGES.get(path.suffix, "text")
    return f"{heading} {_name(path)}\n\n~~~~~{language}\n{path.read_text(encoding='utf-8')}\n~~~~~\n"


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
