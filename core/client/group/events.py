"""The events and settings of a group membership."""

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
    """The longest time between two polls of the user; in a rebalance the other members wait as long for this one."""
    exclude_internal_topics: bool = True
    """Patterns do not match internal topics."""
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    group_protocol: str = "classic"
    """ "consumer": KIP-848; "auto": that, or "classic" where the cluster does not offer it or the group refuses it."""
    group_remote_assignor: str | None = None
    """The assignor of the coordinator that this member asks for, with KIP-848; None: the coordinator chooses."""


@frozen(kw_only=True)
class GroupMetadata:
    """A consumer's identity in its group: generation -1 and member "" while it is not a member."""

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
    """The topic of the position, as far as the reader knows; one created again has another id. The position is not
    committed if the reader, or a coordinator that takes topic ids, has another topic of that name by then."""


@frozen(kw_only=True)
class Assigned:
    """These partitions were added to the assignment: fetch them from these positions, then call the listener."""

    positions: Mapping[TopicPartition, CommittedOffset | None]
    """None: nothing is committed, so `auto.offset.reset` decides."""
    generation_id: int


@frozen(kw_only=True)
class Revoke:
    """The member must give up these: commit, call the listener, stop reading them, then `revoked_done`.

    Reading of other partitions continues meanwhile; commits are valid until then.
    """

    partitions: Sequence[TopicPartition]
    reason: str


@frozen(kw_only=True)
class Lost:
    """The member has lost these, maybe to another one already: stop reading them; commits would be refused."""

    partitions: Sequence[TopicPartition]
    """Empty if the member had none; the reason is still worth a line in the log."""
    reason: str


@frozen(kw_only=True)
class Failed:
    """The user must see an error. Unless `final`, the membership tries again when the next event is taken.

    A `final` one is returned for every event that is asked for: another consumer has taken this one's place.
    """

    error: BarnabasError
    final: bool = False


GroupEvent = Assigned | Revoke | Lost | Failed

CommitResultCallback = Callable[[BarnabasError | None], None]
"""Takes None once the positions are committed, or else the error."""
OffsetsCallback = Callable[[Mapping[TopicPartition, CommittedOffset | None] | BarnabasError], None]
"""Takes the committed offset of each partition (None: none), or the error."""

TopicPartitions = Collection[TopicPartition]
