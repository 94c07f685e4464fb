"""The distribution of tests: those that stay together in one process, and those that begin first."""

from collections import deque
from collections.abc import Iterable, Sequence

import pytest

LONGEST_FIRST: Sequence[str] = (
    "spark",
    "etcd",
    "zookeeper",
    "confluent",
    "chaos",
    "reliability",
    "tests/integration/test_audit.py",
    "cli",
    "compatibility-barnabas",
    "tests/integration/test_cookbook.py",
    "tests/unit/cluster/test_election_search.py",
    "compatibility-librdkafka",
    "tests/unit/replica/test_mirror_search.py",
    "tests/simulation/test_cluster_cases.py",
    "tests/simulation/test_tiering_story.py",
    "tests/simulation/test_group_story.py",
    "tests/integration/test_cli_everyday.py",
    "tests/integration/test_coordinator_moves.py",
    "tests/unit/pipeline/test_table_formats.py",
    "tests/simulation/test_share_story.py",
    "tests/simulation/test_security_story.py",
    "tests/adapters/test_transport_tcp.py",
    "tests/adapters/test_transport_tls.py",
    "idempotent",
    "tests/unit/pipeline/test_table_upkeep.py",
    "tests/integration/test_top.py",
    "tests/integration/test_kafka_consumer_groups.py",
    "tests/integration/test_share_moves.py",
    "tests/integration/test_mirror_identical.py",
    "tests/adapters/test_coord_embedded.py",
    "tests/integration/test_least_rights.py",
    "tests/integration/test_queries.py",
    "tests/integration/test_release.py",
    "tests/unit/coordinator/test_coordinator_search.py",
    "tests/unit/tiering/test_tiering_search.py",
    "tests/adapters/test_wire_kafka_oracle.py",
    "tests/unit/log/test_log_damage.py",
    "tests/unit/client/test_consumer_membership_stories.py",
    "tests/unit/log/test_compaction_machine.py",
    "tests/unit/cluster/test_registry.py",
    "tests/unit/pipeline/test_table_iceberg.py",
    "tests/unit/testing/test_sharing_out.py",
    "tests/unit/tiering/test_tiering_seeds.py",
    "tests/unit/message/test_codecs_builtin.py",
    "tests/unit/cluster/test_acl_search.py",
)
"""Groups and files that take long, by the CPU time and the waits that were measured: begun last, one of them would keep
a worker busy while the others have nothing left. All others come as pytest-randomly has shuffled them."""


def part_of(item: pytest.Item) -> str:
    """Return the group of a test (its marker `xdist_group`), or else its file: tests there share what is made once."""
    groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    return "_".join(sorted(groups)) or item.nodeid.partition("::")[0]


class Parts:
    """The tests of a run as parts that stay together, by their positions in the list of what was collected."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        parts: dict[str, list[int]] = {}
        for position, item in enumerate(items):
            parts.setdefault(part_of(item), []).append(position)
        places = {name: place for place, name in enumerate(LONGEST_FIRST)}
        self._parts = deque(parts[name] for name in sorted(parts, key=lambda name: places.get(name, len(places))))

    def __len__(self) -> int:
        return len(self._parts)

    def take(self) -> list[int]:
        return self._parts.popleft()

    def put_back(self, positions: Iterable[int]) -> None:
        """Have the rest of a part done next."""
        rest = list(positions)
        if rest:
            self._parts.appendleft(rest)
