"""Messages as Arrow columns, both ways, without a Python object per message. Needs numpy and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...extras import require

if TYPE_CHECKING:
    from .tables import GatheredRows


def require_arrow(purpose: str) -> None:
    """Raises `ConfigError` that names what is missing, and the extra that brings it."""
    require(purpose, ["numpy", "pyarrow"], "query")


def gather(with_headers: bool) -> GatheredRows:
    """What takes messages for a table. Raises as `require_arrow`."""
    require_arrow("Arrow")
    from .tables import GatheredRows

    return GatheredRows(with_headers)
