"""The built-in deletion policies, by their names: segments of one age, or by keys, headers and consumers."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError

if TYPE_CHECKING:
    from ...core.log.config import LogConfig
    from ...core.log.retention import DeletionContext, DeletionPolicy, SegmentInfo
    from ...core.message.message import Message


class KafkaDeletionPolicy:
    """By size and by age, as Kafka does (facts B3).

    A segment goes if the log keeps `retention_bytes` or more without it, or if its largest timestamp is older than
    `retention_ms`; the first that stays keeps all after it.
    """

    def deletable(self, segments: "Sequence[SegmentInfo]", *, now_ms: int, config: "LogConfig") -> int:
        excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
        by_size = 0
        if config.retention_bytes >= 0:
            for segment in segments:
                excess -= segment.size_bytes
                if excess < 0:
                    break
                by_size += 1
        by_age = 0
        if config.retention_ms >= 0:
            for segment in segments:
                if now_ms - segment.largest_timestamp_ms <= config.retention_ms:
                    break
                by_age += 1
        return max(by_size, by_age)


class KeepAll:
    """Deletes nothing."""

    def deletable(self, segments: "Sequence[SegmentInfo]", *, now_ms: int, config: "LogConfig") -> int:  # noqa: ARG002
        return 0


class Consumed:
    """A segment goes when all of these consumer groups have committed positions behind it, and not before, however old
    or large the log is. A group that has committed nothing, or that cannot be asked, keeps everything."""

    def __init__(self, context: "DeletionContext") -> None:
        self._groups = [name.strip() for name in context.parameters.split(",") if name.strip()]
        if not self._groups:
            raise ConfigError("deletion.policy=consumed needs the groups to wait for, as in consumed:billing,audit")
        self._context = context

    def deletable(self, segments: "Sequence[SegmentInfo]", *, now_ms: int, config: "LogConfig") -> int:  # noqa: ARG002
        partition, committed = self._context.partition, self._context.committed
        if partition is None:
            return 0
        found = [committed(group, partition) for group in self._groups]
        read_up_to = min(-1 if position is None else position for position in found)
        return sum(segment.next_offset <= read_up_to for segment in segments)


def _plain(made: "Callable[[], DeletionPolicy]") -> "Callable[[DeletionContext], DeletionPolicy]":
    def make(context: "DeletionContext") -> "DeletionPolicy":
        if context.parameters:
            raise ConfigError(f"this deletion.policy takes no parameters; it got {context.parameters!r}")
        return made()

    return make


# Built-in deletion policies that let single messages go: by their keys, or by what they say themselves.
#
# Both also apply retention.ms and retention.bytes, segment by segment.

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_HOUR_MS = 3_600_000
_LOOK_AGAIN_MIN_MS = 60_000
_DIGITS_MAX = 15


class KeyPrefixAge(KafkaDeletionPolicy):
    """`PREFIX=AGE,...`: a message goes at the age of the longest prefix that its key begins with. Others, and those
    without a key, stay."""

    def __init__(self, context: "DeletionContext") -> None:
        ages = [_prefix_and_age(each) for each in context.parameters.split(",") if each.strip()]
        if not ages:
            raise ConfigError("deletion.policy=key-prefix-age needs prefixes and ages, as in user-=7d,session-=12h")
        ages.sort(key=lambda each: len(each[0]), reverse=True)
        self._ages_ms = ages
        self._prefixes = tuple(prefix for prefix, _ in ages)
        self.look_again_ms = _tenth(min(age for _, age in ages))

    def keeps(self, message: "Message", *, now_ms: int) -> bool:
        key = message.key
        if key is None or not key.startswith(self._prefixes):
            return True
        age_ms = next(age for prefix, age in self._ages_ms if key.startswith(prefix))
        return not _is_older(message, age_ms, now_ms)


class HeaderTtl(KafkaDeletionPolicy):
    """Delete a message as many milliseconds after its timestamp as its header `HEADER` says, in decimal digits.

    Messages without a valid header stay.
    """

    look_again_ms = _HOUR_MS

    def __init__(self, context: "DeletionContext") -> None:
        self._header = context.parameters.strip()
        if not self._header:
            raise ConfigError("deletion.policy=header-ttl needs the name of the header, as in header-ttl:ttl-ms")

    def keeps(self, message: "Message", *, now_ms: int) -> bool:
        for name, value in message.headers:
            if name == self._header:
                is_number = value is not None and value.isdigit() and len(value) <= _DIGITS_MAX
                return not (is_number and _is_older(message, int(value or b""), now_ms))
        return True


def _is_older(message: "Message", age_ms: int, now_ms: int) -> bool:
    """Return True if the message has a timestamp and is older than `age_ms`."""
    timestamp = message.timestamp_ms
    return timestamp is not None and timestamp >= 0 and now_ms - timestamp > age_ms


def _prefix_and_age(text: str) -> tuple[bytes, int]:
    prefix, equals, age = text.strip().rpartition("=")
    if not equals:
        raise ConfigError(f"deletion.policy=key-prefix-age: {text.strip()!r} is not PREFIX=AGE")
    return prefix.encode(), duration_ms(age)


def duration_ms(text: str) -> int:
    """Return milliseconds of "90s", "12h", "7d". Raises `ConfigError`."""
    number = text.strip().rstrip("".join(_UNITS_MS))
    unit = text.strip()[len(number) :]
    if not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX and unit in _UNITS_MS):
        raise ConfigError(f"{text!r} is not a duration; use a number and one of {', '.join(_UNITS_MS)}")
    return int(number) * _UNITS_MS[unit]


def _tenth(age_ms: int) -> int:
    """Return the delay of the next check, so that messages exceed their age by at most a tenth."""
    return max(_LOOK_AGAIN_MIN_MS, min(age_ms // 10, 24 * _HOUR_MS))


_POLICIES: "dict[str, Callable[[DeletionContext], DeletionPolicy]]" = {
    "kafka": _plain(KafkaDeletionPolicy),
    "none": _plain(KeepAll),
    "consumed": Consumed,
    "key-prefix-age": KeyPrefixAge,
    "header-ttl": HeaderTtl,
}
DELETION_POLICY_NAMES = tuple(_POLICIES)


def builtin_deletion_policy(name: str, context: "DeletionContext") -> "DeletionPolicy | None":
    """Return the policy of this name, None if there is none. Raises `ConfigError` for its parameters."""
    made = _POLICIES.get(name)
    return made(context) if made is not None else None
