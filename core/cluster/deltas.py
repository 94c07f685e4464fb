"""The changes of a cluster's metadata, one type for each: `ClusterImage.after` makes the next image from it."""

from collections.abc import Mapping

from attrs import field

from ...ports.values import frozen
from .features import FeaturesImage
from .layout import EntityKind
from .topics import BrokerRegistration, PartitionState, ReplicaId, Topic


@frozen(kw_only=True)
class TopicSet:
    """A topic was created or changed. `states` None: those of its partitions stay, if its id is the same.
    `states_versions` are the versions of the nodes with these states; a node that is not newer changes nothing."""

    topic: Topic
    states: Mapping[int, PartitionState] | None = None
    states_versions: Mapping[int, int] = {}


@frozen(kw_only=True)
class TopicDeleting:
    """A topic is unknown from now on; its name is not free yet."""

    topic: Topic


@frozen(kw_only=True)
class LeadershipEnded:
    """The topic was deleted: no broker leads its partitions. The image has it until the queue of topics comes to it."""

    topic: Topic


@frozen(kw_only=True)
class TopicUnreadable:
    """The node of this name is unreadable: there is no topic, but its name is taken."""

    name: str


@frozen(kw_only=True)
class TopicGone:
    """The topic of this name is gone, and the name is free."""

    name: str


@frozen(kw_only=True)
class StatesChanged:
    """Some partitions of a topic have other leaders or in-sync replicas. Nothing changes if `version`, that of the
    node with this number, is not newer than the known one, or the topic has another id. None: the node was removed by
    hand."""

    topic: str
    topic_id: bytes
    states: Mapping[int, PartitionState]
    version: int | None
    node: int = 0


@frozen(kw_only=True)
class BrokersChanged:
    """The set of live brokers changed to these."""

    brokers: Mapping[int, BrokerRegistration]


@frozen(kw_only=True)
class ControllerChanged:
    """Another broker is the controller; None: there is none."""

    controller: ReplicaId | None


@frozen(kw_only=True)
class ConfigsChanged:
    """The dynamic configs of a broker changed; `broker_id` None: those of all brokers."""

    broker_id: int | None
    configs: Mapping[str, str] = field(repr=False)


@frozen(kw_only=True)
class EntityChanged:
    """An entity was created or changed; `value` None: it was removed, or its node is unreadable."""

    kind: EntityKind
    name: str
    value: Mapping[str, object] | None = field(repr=False)
    """Not shown: credentials are secret."""
    is_unreadable: bool = False


@frozen
class FeaturesChanged:
    """The finalized levels of features changed to these."""

    features: FeaturesImage


Delta = (
    TopicSet
    | TopicDeleting
    | LeadershipEnded
    | TopicUnreadable
    | TopicGone
    | StatesChanged
    | BrokersChanged
    | ControllerChanged
    | ConfigsChanged
    | EntityChanged
    | FeaturesChanged
)
