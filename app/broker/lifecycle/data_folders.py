"""The check, before a start opens anything, that the data folders and the coordination tree belong together."""

from collections.abc import Callable, Container, Sequence

from ....core.cluster.brokers import cluster_id, stored_cluster_id
from ....core.cluster.features import newest_levels
from ....core.cluster.registry import ClusterRegistry
from ....core.log.manager.broker_epoch_file import noted_registrations
from ....core.log.manager.meta_properties import (
    IMPORT_INCOMPLETE,
    META_PROPERTIES,
    MetaProperties,
    check_broker,
    check_common_cluster,
    read_meta_properties,
    write_meta_properties,
)
from ....core.log.manager.survey import find_partitions
from ....core.tree.service_url import redact_url
from ....ports.coordination import CoordinationError
from ....ports.entropy import Entropy
from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.storage import LogDir, StorageError
from ...config import BrokerConfig
from ...config.classic import CLASSIC

Report = Callable[[str], None]


def checked_cluster_id(
    log_dirs: Sequence[LogDir],
    config: BrokerConfig,
    registry: ClusterRegistry,
    entropy: Entropy,
    report: Report,
    *,
    owns_topics: bool,
    deleted: Container[bytes] = (),
) -> str:
    """Return the id of this broker's cluster, and write it into each data folder.

    `owns_topics`: this broker may change the topics in the tree. `deleted`: the ids of topics that were deleted while
    this broker was down. Raises `ConfigError` for folders of another broker or cluster, `CoordinationError` if the tree
    has lost all topics, or its cluster: a start would create them again next to their data.
    """
    _check_no_import(log_dirs)
    identities = known_identities(log_dirs, config.broker_id)
    if owns_topics and registry.image.is_empty:
        _check_nothing_is_lost(log_dirs, config, report, deleted)
    known = check_common_cluster(identities)
    if known is not None and owns_topics and stored_cluster_id(registry.coordination) is None:
        _check_never_registered(log_dirs, config, known)
    found = cluster_id(registry.coordination, entropy, known, newest_levels())
    if known is not None and found != known:
        folder = next(log_dir.path for log_dir, identity in identities if identity.cluster_id == known)
        raise ConfigError(
            f"{folder} belongs to the cluster {known} by its {META_PROPERTIES}, but the coordination tree "
            f"({redact_url(config.coordination)}) to {found}: set coordination to the right one, or use another data "
            "folder"
        )
    for log_dir in log_dirs:
        if all(other is not log_dir for other, _ in identities):
            _note(log_dir, MetaProperties(cluster_id=found, broker_id=config.broker_id), report)
    return found


def _check_no_import(log_dirs: Sequence[LogDir]) -> None:
    """Raise `ConfigError` for a folder of an import that has not ended: some of its topics are missing."""
    for log_dir in log_dirs:
        try:
            found = IMPORT_INCOMPLETE in log_dir.root.files()
        except StorageError:
            continue  # the folder cannot be used, which its logs will report
        if found:
            text = f"{log_dir.path} has parts of an import that was interrupted ({IMPORT_INCOMPLETE})"
            raise ConfigError(f"{text}: run the same 'barnabas import' again, which continues it")


def _check_never_registered(log_dirs: Sequence[LogDir], config: BrokerConfig, known: str) -> None:
    """Raise `CoordinationError` if this broker was registered in the tree, which has no cluster now."""
    if not noted_registrations(log_dirs):
        return
    folder = log_dirs[0].path
    raise CoordinationError(
        f"the coordination tree ({redact_url(config.coordination)}) is empty, but this broker was registered in it as"
        f" one of the cluster {known}, by {folder}: the tree was lost, emptied, or is not the one of this broker. "
        f"Bring it back, or set coordination to the right one, or let 'barnabas topics recover --data {folder} "
        "--execute' begin the cluster again with the topics of the folders; users, ACLs, quotas and settings that were "
        "set are lost then"
    )


def known_identities(log_dirs: Sequence[LogDir], broker_id: int) -> list[tuple[LogDir, MetaProperties]]:
    """Return the data folders that have an identity. Raises `ConfigError` for those of another broker."""
    identities = []
    for log_dir in log_dirs:
        try:
            identity = read_meta_properties(log_dir)
        except StorageError:
            continue  # the folder cannot be used, which its logs will report
        if identity is not None:
            identities.append((log_dir, identity))
    check_broker(identities, broker_id)
    return identities


def _note(log_dir: LogDir, identity: MetaProperties, report: Report) -> None:
    try:
        write_meta_properties(log_dir, identity)
    except StorageError as error:
        report(f"{log_dir.path}: {META_PROPERTIES} cannot be written: {error}")


def _check_nothing_is_lost(
    log_dirs: Sequence[LogDir], config: BrokerConfig, report: Report, deleted: Container[bytes]
) -> None:
    topics: set[str] = set()
    count = 0
    for log_dir in log_dirs:
        try:
            for found in find_partitions(log_dir, report):
                if found.format_name != CLASSIC and found.topic_id not in deleted:  # classic topics need no tree
                    topics.add(found.partition.topic)
                    count += 1
        except StorageError:
            continue
    if not count:
        return
    folders = ", ".join(log_dir.path for log_dir in log_dirs)
    held = f"{counted(count, 'partition')} of {counted(len(topics), 'topic')}"
    raise CoordinationError(
        f"{folders} has {held} (such as {min(topics)}), but the coordination tree "
        f"({redact_url(config.coordination)}) knows no topic: it was lost, emptied, or is not the one of this broker. "
        "Bring it back, or set coordination to the right one, or let "
        f"'barnabas topics recover --data {log_dirs[0].path}' create it again from the folders; to begin "
        "without this data, move the folders of the partitions away"
    )
