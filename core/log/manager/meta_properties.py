"""meta.properties: which cluster and broker a data folder belongs to (facts B3)."""

import re
from collections.abc import Sequence

from ....ports.errors import ConfigError
from ....ports.storage import FileMissing, LogDir
from ....ports.values import frozen
from ...cluster.layout import decode_id

META_PROPERTIES = "meta.properties"
IMPORT_INCOMPLETE = "import-incomplete"
"""The mark of an import that has not ended in this data folder."""

_LINE = re.compile(r"([\w.]+)\s*[=:\s]\s*(.*)")
_BROKER_KEYS = ("broker.id", "node.id")  # of version 0 and 1
_VERSIONS = ("0", "1")


@frozen(kw_only=True)
class MetaProperties:
    """The cluster and broker of a data folder; `broker_id` is None if the file has none."""

    cluster_id: str
    broker_id: int | None = None


def format_meta_properties(identity: MetaProperties) -> bytes:
    lines = ["#", "version=0", f"cluster.id={identity.cluster_id}"]
    if identity.broker_id is not None:
        lines.append(f"broker.id={identity.broker_id}")
    return "\n".join([*lines, ""]).encode()


def parse_properties(content: bytes) -> dict[str, str]:
    """Return the lines of the file, also those that this version does not know. Raises `ValueError`."""
    values: dict[str, str] = {}
    for line in content.decode().splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        found = _LINE.fullmatch(stripped)
        if found is None:
            raise ValueError(f"{stripped[:50]!r} is not of the form key=value")
        values[found[1]] = found[2]
    if values.get("version") not in _VERSIONS:
        raise ValueError(f"version {values.get('version')!r}, expected 0 or 1")
    return values


def parse_meta_properties(content: bytes) -> MetaProperties:
    """Parse the file. Raises `ValueError` without a cluster id, or for an unknown version."""
    values = parse_properties(content)
    cluster_id = values.get("cluster.id", "")
    try:
        decode_id(cluster_id)
    except ValueError as error:
        raise ValueError(f"cluster.id={cluster_id[:50]}: {error}") from error
    number = next((values[key] for key in _BROKER_KEYS if key in values), None)
    return MetaProperties(cluster_id=cluster_id, broker_id=None if number is None else int(number))


def read_meta_properties(log_dir: LogDir) -> MetaProperties | None:
    """Read the file of a folder; None without one. Raises `StorageError`, `ConfigError` for a corrupt file."""
    try:
        return parse_meta_properties(log_dir.root.read_small(META_PROPERTIES))
    except FileMissing:
        return None
    except ValueError as error:
        text = f"{log_dir.path}/{META_PROPERTIES} is corrupt: {error}"
        raise ConfigError(f"{text}; if the folder belongs to this broker, delete the file: it is recreated") from error


def write_meta_properties(log_dir: LogDir, identity: MetaProperties) -> None:
    """Write the file. Raises `StorageError`."""
    log_dir.root.write_small(META_PROPERTIES, format_meta_properties(identity))


def check_broker(found: Sequence[tuple[LogDir, MetaProperties]], broker_id: int) -> None:
    """Raise `ConfigError` for a data folder of another broker."""
    for log_dir, identity in found:
        if identity.broker_id is not None and identity.broker_id != broker_id:
            text = f"{log_dir.path} belongs to broker {identity.broker_id} by its {META_PROPERTIES}"
            raise ConfigError(
                f"{text}, and this is broker {broker_id}: set broker.id={identity.broker_id}, or give this broker a "
                "folder of its own"
            )


def check_common_cluster(found: Sequence[tuple[LogDir, MetaProperties]]) -> str | None:
    """Return the cluster id of the data folders; None without any. Raises `ConfigError` for several."""
    names = {identity.cluster_id: log_dir.path for log_dir, identity in found}
    if len(names) > 1:
        clusters = ", ".join(f"{path} has {name}" for name, path in names.items())
        raise ConfigError(f"conflicting cluster.id in {META_PROPERTIES} of the data folders: {clusters}")
    return next(iter(names), None)
