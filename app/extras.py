"""Optional packages: which extra brings them, and how to install it from where this Barnabas came."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..ports.errors import ConfigError


def require(purpose: str, packages: Iterable[str], extra: str) -> None:
    """Raises `ConfigError` that names the packages which are not installed and the extra that brings them."""
    missing = [name for name in packages if not _is_installed(name)]
    if missing:
        raise ConfigError(f"{purpose}: {', '.join(missing)} not installed; to get it: {install_command(extra)}")


def _is_installed(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def install_command(extra: str) -> str:
    """Return the command that installs the extra from the checkout, wheel or repository that this installation came
    from."""
    return f"pip install {_requirement(extra, _origin())}"


def _origin() -> dict[str, Any]:
    """Return pip's record of an installation that did not come from an index (PEP 610)."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution("barnabas").read_text("direct_url.json")
        found = json.loads(text) if text else {}
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _requirement(extra: str, origin: dict[str, Any]) -> str:
    from urllib.parse import unquote, urlsplit

    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        return f"'barnabas[{extra}] @ {origin['vcs_info'].get('vcs', 'git')}+{url}'"
    path = Path(unquote(urlsplit(url).path))
    if url.startswith("file:") and "dir_info" in origin:
        return f"{'-e ' if origin['dir_info'].get('editable') else ''}'{path}[{extra}]'"
    if url.startswith("file:"):
        return f"'{path}[{extra}]'"
    return f"'barnabas[{extra}] @ {url}'" if url else f"'barnabas[{extra}]'"
