"""The collector of cycles while modules are loaded."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnabas.app import background
from barnabas.app.background import loading

IN_A_PROCESS = """
import gc
collections = []
gc.callbacks.append(lambda phase, _: collections.append(phase))
from barnabas.testing import TestBroker
before = len(collections)
with TestBroker() as broker:
    collected = len(collections) - before
    assert gc.isenabled() and not gc.get_freeze_count()
print(before, collected)
"""


@pytest.fixture(autouse=True)
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(background, "_begun", set())
    enabled = gc.isenabled()
    gc.enable()
    yield
    if not enabled:
        gc.disable()


def test_first_block_pauses_the_collector_and_later_ones_do_not() -> None:
    seen = []
    for _ in range(2):
        with loading("something"):
            seen.append(gc.isenabled())
        assert gc.isenabled()
    assert seen == [False, True]


def test_collector_works_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), loading("something"):
        raise ValueError("broken")
    assert gc.isenabled()


def test_collector_that_the_user_stopped_stays_stopped() -> None:
    gc.disable()
    with loading("something"):
        pass
    assert not gc.isenabled()


def test_frozen_objects_stay_frozen() -> None:
    before = gc.get_freeze_count()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with loading("something"):
            pass
        assert gc.get_freeze_count() >= frozen - 100  # some of them have ended
        assert gc.isenabled()
    finally:
        if not before:
            gc.unfreeze()


def test_first_test_broker_of_a_process_starts_without_collections() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True)
    before, collected = map(int, done.stdout.split())
    assert before < 60  # 122 without the pause
    assert collected < 20  # 146 without it
