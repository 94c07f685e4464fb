"""Formats of times and shares, for people."""

from datetime import UTC, datetime

from ..ports.errors import ConfigError


def moment_text(time_ms: int) -> str:
    """Format `2026-01-31 12:00`, in UTC; with seconds unless they are 0."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M}" + (f":{moment:%S}" if moment.second else "")


def delay_text(delay_ms: int | None) -> str:
    """Format `870 ms`, `4.2 s`, `3.1 min`, `2.5 h`; a dash for None."""
    if delay_ms is None:
        return "-"
    for limit, unit_ms, unit in ((1000, 1, "ms"), (120_000, 1000, "s"), (7_200_000, 60_000, "min")):
        if delay_ms < limit:
            return f"{delay_ms} ms" if unit_ms == 1 else f"{delay_ms / unit_ms:.1f} {unit}"
    return f"{delay_ms / 3_600_000:.1f} h"


def share_text(share: float | None) -> str:
    """Format `99.98 %`; 100 % only for all; a dash if nothing was expected."""
    if share is None:
        return "-"
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"


def positive(value: object, name: str) -> int:
    """Return a whole number above 0. Raises `ConfigError`."""
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number <= 0:
        raise ConfigError(f"{name}={value}: expected a whole number above 0")
    return number
