"""The trend of a group's lag between two looks: whether it catches up, and when it will have. Texts of both."""

from __future__ import annotations

from collections.abc import Mapping

from ....ports.values import frozen
from ..times import age_text


@frozen
class Trend:
    """The growth of the lag in a second (negative: it shrinks) in messages, and of the age of the oldest unread message
    in milliseconds: 1000 for a group that reads nothing. None: unknown."""

    messages: float | None = None
    age_ms: float | None = None


def trend_of(before: tuple[int | None, int | None] | None, now: tuple[int | None, int | None], seconds: float) -> Trend:
    """Return the trend from one (lag, age in milliseconds) to a later one; without an earlier one it is unknown."""
    if before is None or seconds <= 0:
        return Trend()
    rates = [
        None if old is None or new is None else (new - old) / seconds for old, new in zip(before, now, strict=True)
    ]
    return Trend(*rates)


def done_in_ms(lag: int | None, trend: Trend) -> int | None:
    """Return the time until the group has caught up if it continues like this; None: it does not, or it is unknown."""
    if lag == 0:
        return 0
    if lag is None or trend.messages is None or trend.messages >= 0:
        return None
    return round(1000 * lag / -trend.messages)


def trend_text(per_second: float | None) -> str:
    """Format messages per second: `+5/s`, `-0.5/s`, `0/s`; a dash for None."""
    if per_second is None:
        return "-"
    digits = 1 if 0 < abs(per_second) < 10 else 0
    return f"{per_second:+.{digits}f}/s" if round(per_second, digits) else "0/s"


def age_trend_text(ms_per_second: float | None) -> str:
    """Format the trend of an age: `+1.0s/s` for a group that stands still; a dash for None."""
    if ms_per_second is None:
        return "-"
    return f"{ms_per_second / 1000:+.1f}s/s" if round(ms_per_second / 1000, 1) else "0s/s"


def done_in_text(milliseconds: int | None) -> str:
    """Format the time until a group has caught up; a dash for None."""
    return "-" if milliseconds is None else age_text(milliseconds).replace(" ", "")


def deliveries_text(counts: Mapping[str, int]) -> str:
    """Return `12 once, 3 twice, 1 5 times`: how often the messages in flight were delivered."""
    words = {"1": "once", "2": "twice"}
    return ", ".join(f"{messages} {words.get(count, f'{count} times')}" for count, messages in counts.items())
