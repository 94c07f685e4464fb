"""What a group membership tells its owner, and what it is told when it is made."""

from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import field

from ....ports.broker_api.groups import NO_GENERATION
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import frozen


@frozen(kw_only=True)
class GroupSettings:
    """Times in ms. `group_instance_id` makes a static member."""

    group_id: str
    group_instance_id: str | None = None
    client_rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: float = 3_000
    max_poll_interval_ms: float = 300_000
    """So long the user may be busy between two polls; as long the other members wait for this one in a rebalance."""
    exclude_internal_topics: bool = True
    """Patterns do not match internal topics."""
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000


@frozen(kw_only=True)
class GroupMetadata:
    """Who a consumer is in its group: generation -1 and member "" while it is not a member."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


@frozen
class CommittedOffset:
    """A position of a group: the offset of the next record to read, the epoch of the one before, and a text."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = field(default=NO_TOPIC_ID, eq=False)
    """Of which topic, as far as the reader knows: one that was made again under the name is another one. A position is
    not committed when the topic is another one by then, for the reader or, where it takes ids, for the coordinator."""


@frozen(kw_only=True)
class Assigned:
    """The member has got these, besides what it has already: read them from here; then call the listener."""

    positions: Mapping[TopicPartition, CommittedOffset | None]
    """None: nothing is committed, so `auto.offset.reset` decides."""
    generation_id: int


@frozen(kw_only=True)
class Revoke:
    """The member is to give up these: commit, call the listener, read them no more, then `revoked_done`.

    Everything else goes on meanwhile; commits count until then.
    """

    partitions: Sequence[TopicPartition]
    reason: str


@frozen(kw_only=True)
class Lost:
    """These are the member's no more, and may be another's already: read them no more; commits would be refused."""

    partitions: Sequence[TopicPartition]
    """Empty if the member had none; the reason is still worth a line in the log."""
    reason: str


@frozen(kw_only=True)
class Failed:
    """The user must know. The membership tries again from the next event on that is asked for, unless `final`.

    One that is `final` is told again each time an event is asked for: another consumer has taken this one's place.
    """

    error: BarnabasError
    final: bool = False


GroupEvent = Assigned | Revoke | Lost | Failed

CommitResultCallback = Callable[[BarnabasError | None], None]
"""Takes None once the positions are committed, or why they are not."""
OffsetsCallback = Callable[[Mapping[TopicPartition, CommittedOffset | None] | BarnabasError], None]
"""Takes what is committed of each partition (None: nothing), or why that cannot be told."""

TopicPartitions = Collection[TopicPartition]
