"""The topics of a single broker's coordination tree, compared with the partition folders."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

from ....ports.storage import FileMissing, Folder
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...cluster.layout import TOPICS, decode_topic
from ...log.checkpoints import PARTITION_METADATA, format_partition_metadata, parse_partition_metadata
from .findings import Finding, Fix, note
from .fixes import RENAMED, Quarantine, Write

RECOVER = "'barnabas topics recover' enters it there"


@frozen(kw_only=True)
class KnownTopics:
    """The readable topics of the tree; `whole` is False if a part of it is lost."""

    topics: Mapping[str, tuple[bytes, int]]
    """Id and number of partitions."""
    whole: bool = True

    def id_of(self, partition: TopicPartition) -> bytes | None:
        """Return the topic id of a partition, if it is known."""
        topic_id, count = self.topics.get(partition.topic, (None, 0))
        return topic_id if partition.partition < count else None

    def partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(name, n) for name, (_, count) in self.topics.items() for n in range(count))


def known_topics(nodes: Iterable[tuple[str, bytes]], file: str) -> tuple[KnownTopics, list[Finding]]:
    """Return the topics by (path, data) of nodes, and findings for nodes that cannot be read as a topic."""
    topics: dict[str, tuple[bytes, int]] = {}
    findings: list[Finding] = []
    for path, data in nodes:
        parent, _, name = path.rpartition("/")
        if parent != TOPICS:
            continue
        try:
            topic, going = decode_topic(name, data, {})
        except ValueError as error:
            text = f"topic {name!r} cannot be read: {error}"
            remedy = f"remove the node; {RECOVER.replace('enters it', 'enters the topic')}"
            findings.append(Finding(kind="tree-damaged", file=file, text=text, remedy=remedy, needs_person=True))
            continue
        if not going:
            topics[name] = (topic.topic_id, len(topic.partitions))
    return KnownTopics(topics=topics, whole=not findings), findings


def label_findings(
    folder: Folder, partition: TopicPartition, known: KnownTopics | None, *, classic: bool
) -> Iterator[Finding]:
    """Check the partition.metadata of a folder, and which topic owns the folder. Raises `StorageError`."""
    file = f"{folder.name}/{PARTITION_METADATA}"
    wanted = known.id_of(partition) if known is not None else None
    label: bytes | None = None
    try:
        label = parse_partition_metadata(folder.read_small(PARTITION_METADATA))
    except FileMissing:
        pass  # a start writes it
    except ValueError as error:
        remedy, fix = RENAMED, cast("Fix", Quarantine((PARTITION_METADATA,)))
        if wanted is not None:
            remedy, fix = "it is rewritten", Write(PARTITION_METADATA, format_partition_metadata(wanted), True)
        yield Finding(kind="label-damaged", file=file, text=str(error), remedy=remedy, fix=fix)
    if known is None or not known.whole:
        return
    if wanted is None and not classic:
        text = "belongs to no topic that the coordination file knows"
        yield Finding(kind="orphan", file=folder.name, text=text, remedy=RECOVER, needs_person=True)
    elif wanted is not None and label is not None and label != wanted:
        text = "is of another topic of that name than the one that the coordination file knows"
        remedy = "the next start renames it to *-stray; remove partition.metadata before if it is this topic's"
        yield Finding(kind="label-foreign", file=file, text=text, remedy=remedy, needs_person=True)


def without_folder(known: KnownTopics, present: Collection[TopicPartition], file: str) -> list[Finding]:
    """Return a finding for each partition of the tree without a folder here."""
    return [
        note("partition-missing", file, f"{each} has no folder here", "the next start creates it empty")
        for each in sorted(known.partitions())
        if each not in present
    ]
