"""`barnabas cluster features`, as an operator uses it."""

import json
from collections.abc import Iterator

import pytest
from support.command import barnabas_here

from barnabas import Broker
from barnabas.core.cluster import features
from barnabas.ports.broker_api.features import SupportedVersionRange

FRUIT = "fruit.version"


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(features.SUPPORTED, FRUIT, SupportedVersionRange(0, 3))
    with Broker(storage="memory", coordination="memory") as broker:
        yield broker.bootstrap


def run(bootstrap: str, *words: str, ends: int = 0) -> str:
    done = barnabas_here("cluster", "features", *words, "--bootstrap", bootstrap, expect=ends)
    return (done.stdout if ends == 0 else done.stderr).decode()


def level(bootstrap: str) -> int:
    described = json.loads(run(bootstrap, "describe", "--json"))
    (found,) = [each for each in described["features"] if each["feature"] == FRUIT]
    assert (found["supported_min_version"], found["supported_max_version"]) == (0, 3)
    return int(found["finalized_version_level"])


def test_levels_are_lowered_and_raised_again(bootstrap: str) -> None:
    assert level(bootstrap) == 3
    assert run(bootstrap, "downgrade", "--feature", f"{FRUIT}=1") == f"{FRUIT} was downgraded to 1.\n"
    assert run(bootstrap, "upgrade", "-f", f"{FRUIT}=2", "--dry-run") == f"{FRUIT} can be upgraded to 2.\n"
    assert level(bootstrap) == 1
    assert run(bootstrap, "upgrade", "-f", f"{FRUIT}=2") == f"{FRUIT} was upgraded to 2.\n"
    assert run(bootstrap, "upgrade", "--all") == f"{FRUIT} was upgraded to 3.\n"
    assert run(bootstrap, "upgrade", "--all") == "every feature is at its newest level\n"
    assert run(bootstrap, "disable", "-f", FRUIT, "--unsafe") == f"{FRUIT} was disabled.\n"
    assert level(bootstrap) == 0
    assert FRUIT in run(bootstrap, "describe")


def test_what_is_refused_is_explained(bootstrap: str) -> None:
    assert "only supports versions 0-3" in run(bootstrap, "upgrade", "-f", f"{FRUIT}=4", ends=1)
    assert "Can't downgrade the version" in run(bootstrap, "upgrade", "-f", f"{FRUIT}=1", ends=1)
    assert "does not support this feature" in run(bootstrap, "upgrade", "-f", "metadata.version=7", ends=1)
    assert level(bootstrap) == 3


@pytest.mark.parametrize(
    "words",
    [
        ("upgrade",),
        ("upgrade", "--all", "-f", "a=1"),
        ("upgrade", "-f", "a"),
        ("upgrade", "-f", "a=-1"),
        ("upgrade", "-f", "a=1", "-f", "a=2"),
        ("downgrade",),
        ("disable",),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(words: tuple[str, ...]) -> None:
    assert run("127.0.0.1:1", *words, ends=2)
