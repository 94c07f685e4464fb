"""The example of a loop in the simulated world: as its text says, and it finds the mistake that it is for."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from barnabas import Consumer, Producer


@pytest.fixture
def example(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(checkout / "examples" / "simulated_loop"))
    return import_module("play")


def careless(bill_of: Callable[[bytes], bytes]) -> Callable[[object], None]:
    """Bills are written ten at a time, or when nothing comes; meanwhile the positions of their orders are committed."""

    def run(bootstrap: Any) -> None:
        with (
            Producer(bootstrap, acks="all") as producer,
            Consumer(bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer,
        ):
            consumer.subscribe("orders")
            bills: list[bytes] = []
            while True:
                order = consumer.poll(30.0)
                if order is not None:
                    assert isinstance(order.value, bytes)
                    bills.append(bill_of(order.value))
                if order is None or len(bills) == 10:
                    producer.send_many("bills", bills)
                    bills = []

    return run


@pytest.mark.slow
def test_an_hour_in_seconds(checkout: Path) -> None:
    command = [sys.executable, str(checkout / "examples" / "simulated_loop" / "play.py"), "1"]
    played = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "all billed" in played.stdout


@pytest.mark.slow
def test_the_page_about_it_shows_what_works(checkout: Path) -> None:
    text = (checkout / "docs" / "simulation.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    observed: dict[str, Any] = {}
    exec(compile(code, "docs/simulation.md", "exec"), observed)
    assert observed["world"].now > 600
    assert observed["world"].programs["work"].lives >= 1


@pytest.mark.slow
def test_the_same_seed_plays_the_same_hour(example: Any) -> None:
    assert example.play(2, seconds=300) == example.play(2, seconds=300)


@pytest.mark.slow
def test_a_loop_that_commits_too_early_is_found(example: Any) -> None:
    for seed in range(5):
        shop, billed = example.play(seed, careless(example.bill_of), seconds=600)
        try:
            example.check(shop, billed)
        except AssertionError as error:
            assert "no bill for" in str(error)
            return
    pytest.fail("five seeds did not find it")
