"""What can change in a cluster, one type for each: `ClusterImage.after` makes the next image of it."""

from collections.abc import Mapping

from ...ports.values import frozen
from .topics import BrokerRegistration, PartitionState, Topic


@frozen(kw_only=True)
class TopicSet:
    """A topic is new, or another than it was. `states` None: those of its partitions stay, if it has kept its id."""

    topic: Topic
    states: Mapping[int, PartitionState] | None = None


@frozen(kw_only=True)
class TopicDeleting:
    """A topic is unknown from now on; its name is not free yet."""

    topic: Topic


@frozen(kw_only=True)
class TopicUnreadable:
    """The node of this name makes no sense: no topic, but its name is taken."""

    name: str


@frozen(kw_only=True)
class TopicGone:
    """Nothing has this name any more."""

    name: str


@frozen(kw_only=True)
class StatesChanged:
    """Some partitions of a topic have other leaders or in-sync replicas."""

    topic: str
    states: Mapping[int, PartitionState]


@frozen(kw_only=True)
class BrokersChanged:
    """The brokers that live are these."""

    brokers: Mapping[int, BrokerRegistration]


@frozen(kw_only=True)
class ConfigsChanged:
    """What was set for a broker while it ran; `broker_id` None: for all of them."""

    broker_id: int | None
    configs: Mapping[str, str]


Delta = TopicSet | TopicDeleting | TopicUnreadable | TopicGone | StatesChanged | BrokersChanged | ConfigsChanged
