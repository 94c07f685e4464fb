"""Messages as Arrow columns, both ways, without a Python object per message. Needs numpy and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...extras import require

if TYPE_CHECKING:
    from .tables import GatheredRows


def require_arrow(purpose: str) -> None:
    """Raises `ConfigError` that names the missing packages, and the extra that installs them."""
    require(purpose, ["numpy", "pyarrow"], "query")


def gather(with_headers: bool) -> GatheredRows:
    """Return a collector of messages for a table. Raises the error of `require_arrow`."""
    require_arrow("Arrow")
    from .tables import GatheredRows

    return GatheredRows(with_headers)
