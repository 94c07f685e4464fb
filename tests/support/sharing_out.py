"""Which worker of pytest-xdist runs what, and when."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

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
    "tests/simulation/test_drain_story.py",
    "idempotent",
)
"""Groups and files that take long, by the CPU time and the waits that were measured: begun last, one of them would keep
a worker busy while the others have nothing left. All others come as pytest-randomly has shuffled them."""


def part_of(nodeid: str) -> str:
    """The group of a test, or else its file: what it shares with others in there is made once."""
    _, at, group = nodeid.rpartition("@")
    return group if at and "]" not in group else nodeid.partition("::")[0]


class InParts(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    """Hands out groups and files, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._positions: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Send the positions of the next part's tests. All workers have collected the same, and what pytest-xdist does
        instead, to search the list of all tests for each of them, is a third of the controller's CPU time."""
        if not self._positions:
            self._positions = {nodeid: position for position, nodeid in enumerate(self.collection)}
        part, tests = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[part] = tests
        node.send_runtest_some([self._positions[nodeid] for nodeid, completed in tests.items() if not completed])

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Forget the parts that are done: they would be counted again after each test."""
        for part in [part for part, tests in workload.items() if all(tests.values())]:
            del workload[part]
        return int(super()._pending_of(workload))

    def _reschedule(self, node: WorkerController) -> None:
        """A worker has to know of the test after the present one, and of no more: others may be free before it."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def rotate(entries: Sequence[Any], worker: Mapping[str, Any]) -> list[Any]:
    """Return the entries, begun at another one by each worker; `worker` is its `workerinput`, empty without xdist."""
    if not worker:
        return list(entries)
    first = len(entries) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    return [*entries[first:], *entries[:first]]


def sort(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(part_of(item.nodeid), len(places)))


_SHOWN_S = 0.005
"""The durations from which on pytest's `--durations` shows a setup or a teardown."""


def send_less(config: pytest.Config) -> None:
    """Let this worker of pytest-xdist keep to itself what its controller would count but never show: that a test
    begins, and a quick setup or teardown that passed. That is half of the messages, which both sides pay for."""
    if config.option.verbose > 0 or config.getoption("xmlpath", default=None):
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = _filtered(plugin.sendevent)


def _filtered(send: Callable[..., None]) -> Callable[..., None]:
    def send_event(name: str, **fields: Any) -> None:
        if name != "logstart" and not (name == "testreport" and _is_dull(fields["data"])):
            send(name, **fields)

    return send_event


def _is_dull(report: Mapping[str, Any]) -> bool:
    return (
        report.get("when") in ("setup", "teardown")
        and report["outcome"] == "passed"
        and not report["sections"]
        and report["duration"] < _SHOWN_S
    )
