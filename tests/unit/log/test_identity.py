"""meta.properties: written as Kafka does, read as any Kafka writes it."""

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.manager.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    check_broker,
    check_common_cluster,
    format_meta_properties,
    parse_meta_properties,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.ports.errors import ConfigError

CLUSTER, OTHER = "MkU3OEVBNTcwNTJENDM2Qg", "AAAAAAAAAAAAAAAAAAAAAQ"


def log_dir(path: str = "/data", content: bytes | None = None) -> MemoryLogDir:
    made = MemoryLogDir(MemoryDisk(), path=path)
    if content is not None:
        made.root.write_small(META_PROPERTIES, content)
    return made


def test_meta_properties_are_read_as_written() -> None:
    for identity in (MetaProperties(cluster_id=CLUSTER, broker_id=7), MetaProperties(cluster_id=CLUSTER)):
        place = log_dir()
        write_meta_properties(place, identity)
        assert read_meta_properties(place) == identity
    assert format_meta_properties(MetaProperties(cluster_id=CLUSTER, broker_id=7)).splitlines() == [
        b"#",
        b"version=0",
        b"cluster.id=" + CLUSTER.encode(),
        b"broker.id=7",
    ]
    assert read_meta_properties(log_dir()) is None


@pytest.mark.parametrize(
    "text",
    [
        f"#\n#Tue Jul 01 12:00:00 UTC 2025\nbroker.id=3\nversion=0\ncluster.id={CLUSTER}\n",
        f"#\nnode.id=3\ndirectory.id={OTHER}\nversion=1\ncluster.id={CLUSTER}\n",
        f"version = 1\r\ncluster.id : {CLUSTER}\r\nnode.id 3\r\n",
    ],
)
def test_files_of_kafka(text: str) -> None:
    assert parse_meta_properties(text.encode()) == MetaProperties(cluster_id=CLUSTER, broker_id=3)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\0", b"\xff\xfe", b"version=0\n", f"version=9\ncluster.id={CLUSTER}\n".encode(),
     b"version=0\ncluster.id=short\n", f"version=0\ncluster.id={CLUSTER}\nbroker.id=one\n".encode()],
)  # fmt: skip
def test_damaged_ones_are_refused_with_their_path(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_meta_properties(content)
    with pytest.raises(ConfigError, match=r"/data/meta.properties is corrupt.*delete the file"):
        read_meta_properties(log_dir(content=content))


def test_the_folder_of_another_broker() -> None:
    found = [
        (log_dir("/a"), MetaProperties(cluster_id=CLUSTER)),
        (log_dir("/b"), MetaProperties(cluster_id=CLUSTER, broker_id=2)),
    ]
    check_broker(found, 2)
    with pytest.raises(ConfigError, match=r"/b belongs to broker 2.*this is broker 1: set broker.id=2"):
        check_broker(found, 1)
    assert check_common_cluster(found) == CLUSTER
    assert check_common_cluster([]) is None
    with pytest.raises(ConfigError, match=r"conflicting cluster\.id"):
        check_common_cluster([*found, (log_dir("/c"), MetaProperties(cluster_id=OTHER))])
