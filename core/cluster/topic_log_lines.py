"""Log lines about changes of topics and configurations."""

from collections.abc import Mapping

from ...ports.report import Line, counted, info
from .topics import Topic


def made(topic: Topic) -> Line:
    """Return the line about a new topic."""
    own = "".join(f", {name}={value}" for name, value in sorted(topic.configs.items()))
    text = f"topic {topic.name} was made: {_partitions(topic)}, replication factor {topic.replication_factor}{own}"
    return info(text, topic=topic.name, partitions=len(topic.partitions), configs=dict(topic.configs))


def resized(before: Topic, after: Topic) -> Line:
    """Return the line about a changed number of partitions."""
    text = f"topic {after.name} has {_partitions(after)} now, {len(before.partitions)} before"
    return info(text, topic=after.name, partitions=len(after.partitions))


def deleted(topic: Topic) -> Line:
    """Return the line about a deleted topic; its files are removed later."""
    return info(f"topic {topic.name} was deleted: {_partitions(topic)}", topic=topic.name)


def configured(what: str, before: Mapping[str, str], after: Mapping[str, str]) -> Line | None:
    """Return the line about changed configs of a topic or broker; None if they did not change."""
    changes = [
        f"{name}={after[name]}" + (f" (was {before[name]})" if name in before else "")
        for name in sorted(after)
        if after[name] != before.get(name)
    ]
    changes += [f"{name} is no longer set (was {before[name]})" for name in sorted(before.keys() - after.keys())]
    return info(f"configuration of {what}: {', '.join(changes)}", configs=dict(after)) if changes else None


def _partitions(topic: Topic) -> str:
    return counted(len(topic.partitions), "partition")
