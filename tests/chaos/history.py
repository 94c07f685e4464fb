"""The actions and observations of clients, and the faults of the cluster."""

from typing import Any, NamedTuple

from attrs import define, field, frozen

ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"
"""The outcome of a message: a broker acknowledged it; it never left the client; or it is not known."""


class Send(NamedTuple):
    """A message. Times in seconds from the beginning; `sequence` counts what its client sent."""

    client: str
    sequence: int
    partition: int
    begun_s: float
    done_s: float
    outcome: str
    offset: int
    """-1: not known."""
    why: str = ""

    @property
    def value(self) -> str:
        return value_of(self.client, self.sequence)


class Poll(NamedTuple):
    """A message that a consumer was given. Within one `session` it reads on from where it is."""

    client: str
    session: int
    partition: int
    offset: int
    value: str
    at_s: float


class Commit(NamedTuple):
    """A position of a group, as its coordinator has acknowledged it."""

    group: str
    partition: int
    offset: int
    at_s: float


class Share(NamedTuple):
    """A message that a member of a share group was given, or, if `is_accepted`, whose acceptance was confirmed."""

    client: str
    partition: int
    offset: int
    at_s: float
    is_accepted: bool = False


@frozen
class Fault:
    """Something done to the cluster."""

    name: str
    about: str
    begun_s: float
    ended_s: float


class Replacement(NamedTuple):
    """A client whose process stood still and was replaced by a fresh one, by the rule of `chaos.watchdog`."""

    client: str
    at_s: float
    why: str
    stacks: str
    """The stacks of its threads when it hung."""


@define
class History:
    """All of it. Lists are appended to from several threads."""

    sends: list[Send] = field(factory=list)
    polls: list[Poll] = field(factory=list)
    commits: list[Commit] = field(factory=list)
    shares: list[Share] = field(factory=list)
    is_shared: bool = False
    """True if the share group has come to the end after all faults were over."""
    faults: list[Fault] = field(factory=list)
    resets: list[str] = field(factory=list)
    """Consumers whose offset was out of range."""
    broken: list[str] = field(factory=list)
    """Producers that could not continue: an idempotent one fails when messages before its own are missing."""
    transactional: list[tuple[str, str]] = field(factory=list)
    """Kind and text of each anomaly of the transactional load, as `chaos.transactions` finds them."""
    replaced: list[Replacement] = field(factory=list)
    not_replaced: list[str] = field(factory=list)
    """Readers that stood still and were not replaced, with the reason: what they were not given is an anomaly."""
    final: dict[int, list[tuple[int, str]]] = field(factory=dict)
    """Partition → offset and value of all that it holds in the end."""
    groups: dict[str, str] = field(factory=dict)
    """Client → its group."""
    drained: set[str] = field(factory=set)
    """Groups and clients that have read to the end after all faults were over."""
    replicas: dict[str, dict[int, list[tuple[int, int, int]]]] = field(factory=dict)
    """Partition's folder → broker → (base offset, leader epoch, CRC) of each batch in its log."""


def value_of(client: str, sequence: int) -> str:
    """Return the unique value of a message."""
    return f"{client}.{sequence}"


def to_fields(history: History) -> dict[str, Any]:
    """For a JSON file."""
    return {
        "sends": [send._asdict() for send in history.sends],
        "polls": [list(poll) for poll in history.polls],
        "commits": [commit._asdict() for commit in history.commits],
        "shares": [list(share) for share in history.shares],
        "final": history.final,
        "resets": history.resets,
        "broken": history.broken,
        "transactional": history.transactional,
        "replaced": [each._asdict() for each in history.replaced],
        "not_replaced": history.not_replaced,
    }
