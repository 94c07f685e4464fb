"""What the log says of changes of topics."""

from collections.abc import Mapping

from ...ports.report import Line, counted, info
from .topics import Topic


def made(topic: Topic) -> Line:
    """A topic was made."""
    own = "".join(f", {name}={value}" for name, value in sorted(topic.configs.items()))
    text = f"topic {topic.name} was made: {_partitions(topic)}, replication factor {topic.replication_factor}{own}"
    return info(text, topic=topic.name, partitions=len(topic.partitions), configs=dict(topic.configs))


def resized(before: Topic, after: Topic) -> Line:
    """A topic has other partitions."""
    text = f"topic {after.name} has {_partitions(after)} now, {len(before.partitions)} before"
    return info(text, topic=after.name, partitions=len(after.partitions))


def deleted(topic: Topic) -> Line:
    """A topic is no more; its files follow."""
    return info(f"topic {topic.name} was deleted: {_partitions(topic)}", topic=topic.name)


def configured(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Line | None:
    """The configs of a topic or broker were changed; None: they are what they were."""
    changes = [
        f"{name}={after[name]}" + (f" (was {before[name]})" if name in before else "")
        for name in sorted(after)
        if after[name] != before.get(name)
    ]
    changes += [f"{name} is no longer set (was {before[name]})" for name in sorted(before.keys() - after.keys())]
    return info(f"configuration of {what}: {', '.join(changes)}", configs=dict(after)) if changes else None


def _partitions(topic: Topic) -> str:
    return counted(len(topic.partitions), "partition")
