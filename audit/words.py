"""Times, as people write and read them."""

import re
from datetime import UTC, datetime

from ..ports.errors import ConfigError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(text: str, option: str) -> int:
    """Milliseconds of "10m", "30s", "2h", "1d" or "500ms". Raises `ConfigError`."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)", text.strip())
    if found is None or not int(found[1]):
        raise ConfigError(f"{option} {text!r} is no duration; write 30s, 10m, 2h or 1d")
    return int(found[1]) * _UNITS_MS[found[2]]


def parse_moment(text: str, option: str, now_ms: int) -> int:
    """Milliseconds since 1970 of an ISO time (UTC unless it says so) or a duration before now. Raises `ConfigError`."""
    if re.fullmatch(r"\d+\s*(ms|s|m|h|d)", text.strip()):
        return max(0, now_ms - parse_duration(text, option))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is no time; write 2026-01-31T12:00, or 2h for two hours ago") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def moment_text(time_ms: int) -> str:
    """`2026-01-31 12:00`, in UTC; with seconds where they are not 0."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M}" + (f":{moment:%S}" if moment.second else "")


def delay_text(delay_ms: int | None) -> str:
    """`870 ms`, `4.2 s`, `3.1 min`, `2.5 h`; a dash where there is none."""
    if delay_ms is None:
        return "-"
    for limit, unit_ms, unit in ((1000, 1, "ms"), (120_000, 1000, "s"), (7_200_000, 60_000, "min")):
        if delay_ms < limit:
            return f"{delay_ms} ms" if unit_ms == 1 else f"{delay_ms / unit_ms:.1f} {unit}"
    return f"{delay_ms / 3_600_000:.1f} h"


def share_text(share: float | None) -> str:
    """`99.98 %`; 100 % only when it is all of them; a dash where nothing was expected."""
    if share is None:
        return "-"
    return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"


def positive(value: object, name: str) -> int:
    """A whole number above 0. Raises `ConfigError`."""
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number <= 0:
        raise ConfigError(f"{name}={value}: expected a whole number above 0")
    return number
