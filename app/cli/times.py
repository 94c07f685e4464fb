"""Times and durations: parsed from options, and as text."""

import re
import time
from datetime import UTC, datetime

from ...ports.errors import ConfigError

_MILLISECONDS = re.compile(r"@(\d+)|(\d{9,})")
_DAYS = r"(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
_TIME = r"(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?(?:(?P<milliseconds>\d+)MS)?"
_SHORT, _ISO = re.compile(_DAYS + _TIME), re.compile(f"P{_DAYS}(?:T{_TIME})?")
_UNIT_MS = {
    "weeks": 604_800_000,
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1000,
    "milliseconds": 1,
}


def parse_time_ms(text: str, option: str, *, now_ms: int | None = None) -> int:
    """Parse a time to milliseconds since the epoch: ISO (UTC by default), `now`, an age (`-15m`, `2h30m`, `7d`), or
    milliseconds (`@1700000000000`). Raises `ConfigError` with the name of the option."""
    wanted = text.strip()
    number = _MILLISECONDS.fullmatch(wanted)
    if number is not None:
        return int(number[1] or number[2])
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    ago = 0 if wanted == "now" else _duration_ms(wanted.removeprefix("-"))
    if ago is not None:
        return max(0, now - ago)
    try:
        moment = datetime.fromisoformat(wanted)
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a time: give 2026-01-31, 2026-01-31T12:00, 15m (ago), now, "
            "or milliseconds such as @1700000000000"
        ) from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_ms(text: str, option: str) -> int:
    """Parse `90m`, `2h30m`, `7d`, `2w`, or `PT90M` as in Kafka's tools. Raises `ConfigError` with the option's name."""
    found = _duration_ms(text.strip())
    if found is None:
        raise ConfigError(f"{option} {text!r}: give a duration such as 90m, 2h30m, 7d or PT90M")
    return found


def parse_period_ms(text: str, option: str) -> int:
    """Parse a duration that must not be 0. Raises `ConfigError` with the name of the option."""
    found = _duration_ms(text.strip())
    if not found:
        raise ConfigError(f"{option} {text!r} is not a duration; give 30s, 5m or 1h")
    return found


def age_text(milliseconds: float) -> str:
    """Return an age for a person: "90 s", "12 min", "3 h", "40 d". A time to come has the age "0 s"."""
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
    unit_ms, unit = next(((size, name) for size, name in units if milliseconds >= 2 * size), (1000, "s"))
    return f"{max(0, int(milliseconds // unit_ms))} {unit}"


def _duration_ms(text: str) -> int | None:
    written = text.upper()
    found = _SHORT.fullmatch(written) or _ISO.fullmatch(written)
    parts = {unit: float(number) for unit, number in (found.groupdict() if found else {}).items() if number}
    return round(sum(number * _UNIT_MS[unit] for unit, number in parts.items())) if parts else None
