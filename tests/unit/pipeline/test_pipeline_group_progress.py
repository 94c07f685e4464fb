"""The commits of a stream to its group, and their times."""

import time
from collections.abc import Mapping

import pytest

from barnabas.pipeline.source.options import read_options
from barnabas.pipeline.topics.group_offsets import RETRY_S, GroupProgress, check_group, commit_to_group
from barnabas.pipeline.topics.model import ClusterPartition, Where
from barnabas.ports.errors import ConfigError

A, B = ClusterPartition("t", 0), ClusterPartition("t", 1)


class Group:
    def __init__(self) -> None:
        self.commits: list[dict[ClusterPartition, int]] = []
        self.reports: list[str] = []
        self.error: str | None = None
        self.progress = GroupProgress(self.commit, self.reports.append)

    def commit(self, offsets: Mapping[ClusterPartition, int]) -> str | None:
        self.commits.append(dict(offsets))
        return self.error


def test_group_progress_commits_all_partitions_first_then_changes() -> None:
    group = Group()
    group.progress.reached({A: 5, B: 7})
    group.progress.reached({A: 5, B: 7})
    group.progress.reached({A: 6, B: 7})
    assert group.commits == [{A: 5, B: 7}, {A: 6}]


def test_group_progress_does_not_commit_start_offsets() -> None:
    group = Group()
    group.progress.set_initial_offsets({A: 5, B: 7})
    group.progress.set_initial_offsets({A: 9, B: 9})
    group.progress.reached({A: 5, B: 7})
    assert not group.commits
    group.progress.reached({A: 9, B: 9})
    assert group.commits == [{A: 9, B: 9}]


def test_after_a_failure_there_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    group = Group()
    group.error = "no coordinator"
    group.progress.reached({A: 1})
    group.progress.reached({A: 2})
    assert (group.commits, group.reports) == ([{A: 1}], ["no coordinator"])
    now += RETRY_S
    group.error = None
    group.progress.reached({A: 2})
    group.progress.reached({A: 2})
    assert group.commits == [{A: 1}, {A: 2}]


def test_group_commit_to_unreachable_cluster_returns_error_text() -> None:
    settings = {"default.api.timeout.ms": "50"}
    assert commit_to_group("127.0.0.1:1", settings, "g", {A: 1})


def test_only_streams_of_this_generation_have_a_group() -> None:
    topic = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    asked = topic | {"commitOffsetsToGroup": "g"}
    assert read_options(asked, streaming=True).commit_to_group == "g"
    assert read_options(asked, streaming=None).commit_to_group == "g"
    assert read_options(topic, streaming=True).commit_to_group is None
    with pytest.raises(ConfigError, match="is for streams"):
        read_options(asked)
    with pytest.raises(ConfigError, match="must name a consumer group"):
        read_options(topic | {"commitOffsetsToGroup": " "}, streaming=True)
    with pytest.raises(ConfigError, match="commitOffsetsToGroup is not supported with a classic cluster"):
        read_options(asked | {"kafka.bootstrap.servers": "classic://h:1"}, streaming=True)
    check_group(None, Where(bootstrap="classic://h:1"))
    with pytest.raises(ConfigError, match="classic"):
        check_group("g", Where(bootstrap="classic://h:1"))
