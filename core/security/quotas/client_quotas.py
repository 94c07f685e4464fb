"""The limits of clients, which of them applies, and which clients share a meter, Kafka's `DefaultQuotaCallback`."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from ....ports.broker_api.quotas import CLIENT_ID, IP, USER, QuotaEntry
from .entities import CONNECTION_CREATION_RATE

_ABSENT: Final = "absent"
_NAMED: Final = "named"
_DEFAULT: Final = "default"
_Part = tuple[Literal["absent", "named", "default"], str]
_NO: _Part = (_ABSENT, "")
_ANY: _Part = (_DEFAULT, "")


class MeterKey(NamedTuple):
    """The clients that share one meter: those of a user, of a client id, or of a pair; None = any."""

    user: str | None
    client_id: str | None


class AppliedQuota(NamedTuple):
    """The limit for a client, and its meter."""

    limit: float
    meter: MeterKey


class ClientQuotas:
    """The quotas of all entities. Immutable: a change makes a new one."""

    def __init__(self, entries: Iterable[QuotaEntry] = ()) -> None:
        self._limits: dict[str, dict[tuple[_Part, _Part], float]] = {}
        self._ips: dict[str | None, float] = {}
        for entry in entries:
            if IP in entry.entity:
                if (rate := entry.limits.get(CONNECTION_CREATION_RATE)) is not None:
                    self._ips[entry.entity[IP]] = rate
                continue
            parts = _part(entry, USER), _part(entry, CLIENT_ID)
            for key, limit in entry.limits.items():
                self._limits.setdefault(key, {})[parts] = limit

    def has(self, key: str) -> bool:
        """Return True if some client has a limit for this key."""
        return key in self._limits

    @property
    def has_ips(self) -> bool:
        """True if an address, or all of them, have a limit of new connections."""
        return bool(self._ips)

    def find(self, key: str, user: str, client_id: str) -> AppliedQuota | None:
        """Return the limit that applies to a client of a user: the first that exists, the most special one first.

        None: there is no limit. A default gives each user and client id a meter of its own.
        """
        limits = self._limits.get(key)
        if limits is None:
            return None
        the_user: _Part = (_NAMED, user)
        the_client: _Part = (_NAMED, client_id)
        for parts in (
            (the_user, the_client),
            (the_user, _ANY),
            (the_user, _NO),
            (_ANY, the_client),
            (_ANY, _ANY),
            (_ANY, _NO),
            (_NO, the_client),
            (_NO, _ANY),
        ):
            limit = limits.get(parts)
            if limit is not None:
                has_user, has_client = parts[0] is not _NO, parts[1] is not _NO
                return AppliedQuota(limit, MeterKey(user if has_user else None, client_id if has_client else None))
        return None

    def connection_rate(self, ip: str) -> float | None:
        """Return the limit of new connections per second from an address; None = no limit."""
        return self._ips.get(ip, self._ips.get(None))


def _part(entry: QuotaEntry, kind: str) -> _Part:
    if kind not in entry.entity:
        return _NO
    name = entry.entity[kind]
    return _ANY if name is None else (_NAMED, name)
