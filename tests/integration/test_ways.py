"""The ways of docs/architecture.md are walked: what a real client sends meets each function that the page names."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.waiting import PATIENCE_S, wait_for

from barnabas import Broker, Consumer, Producer
from barnabas.app.clients.classic.producer import ClassicProducer

STEP = re.compile(r"`([a-z_0-9/]+\.py):([\w.]+)`")

Met = set[tuple[str, str]]


@pytest.fixture(scope="module")
def steps(checkout: Path) -> dict[str, list[tuple[str, str]]]:
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    ways = page.partition("## The ways\n")[2].partition("\n## ")[0]
    found = re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", ways, re.DOTALL | re.MULTILINE)
    return {name: STEP.findall(way) for name, way in found}


@contextmanager
def watching(checkout: Path) -> Iterator[Met]:
    """The functions of ours that are called meanwhile, in this thread and in those that begin."""
    met: Met = set()
    root = f"{checkout}/"

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            met.add((frame.f_code.co_filename.removeprefix(root), frame.f_code.co_qualname))

    before = sys.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield met
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def test_produce_join_and_fetch(checkout: Path, steps: dict[str, list[tuple[str, str]]], tmp_path: Path) -> None:
    with watching(checkout) as met:
        settings = {"group_initial_rebalance_delay_ms": 0}
        with Broker(tmp_path, config=settings) as broker, Producer(broker.bootstrap) as producer:
            producer.send("t", b"x").result(PATIENCE_S)
            with Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["t"])
                assert consumer.poll(30.0) is not None
    for way in ("A produce", "A fetch", "A group join"):
        assert [step for step in steps[way] if step not in met] == [], way


def test_classic_produce(checkout: Path, steps: dict[str, list[tuple[str, str]]], tmp_path: Path) -> None:
    with watching(checkout) as met, Broker(tmp_path, listeners="classic://127.0.0.1:0") as broker:
        (listener,) = broker.listeners
        with ClassicProducer(broker_list=f"0:{listener.removeprefix('classic://')}") as producer:
            producer.send("t", b"x").result(PATIENCE_S)
        wait_for(lambda: steps["A classic produce"][-1] in met)  # 0.7 answers no produce
    assert [step for step in steps["A classic produce"] if step not in met] == []
