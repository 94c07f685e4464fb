"""Brokers, consumers and registries that die, stop and are cut off: nothing is lost, and nothing has two owners."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.classic_story import Story
from support.etcd_server import EtcdServer
from support.zookeeper_server import ZookeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("reliability")]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture(params=["zookeeper", "etcd"])
def story(request: pytest.FixtureRequest, tmp_path: Path, stack: ExitStack) -> Story:
    server = (ZookeeperServer if request.param == "zookeeper" else EtcdServer)(tmp_path / "registries")
    server.start()
    stack.callback(server.stop)
    server.wait_ready()
    return Story(tmp_path, server, request.param, server.port, stack)


def test_two_groups_get_everything_in_order_whatever_happens(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    story.begin()
    story.wait_until_stable("start", time.monotonic())
    story.appear("clicks")
    joined = story.moved("a", lambda: story.join("a4"), "a4 joins")
    left = story.moved("a", lambda: story.leave("a4"), "a4 leaves")
    story.lose_broker(1)
    story.lose_members_for_a_while(paused="a1", cut_off="b1")
    story.pause_broker(2)
    story.stall_broker()
    story.restart_registries()
    story.lose_member("a2", "a5")
    verdicts = story.judge()
    codes = story.cluster.close()
    with capsys.disabled():
        print()
        for line in story.figures:
            print("  ", line)
        for name, verdict in verdicts.items():
            print(f"   group {name}: {verdict}")
        print(f"   {time.monotonic() - began:.0f} s; {story.writers.failed} messages could not be sent")
    assert codes == [0, 0, 0]
    assert not story.complaints()
    assert max(joined, left) <= 5, "of 9: the range algorithm moves about half"
