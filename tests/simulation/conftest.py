"""One test a seed; `--seeds N` says how many, `--cluster-seeds N` for whole clusters. The first few are quick."""

import os
from collections.abc import Iterator, Mapping

import pytest
from simulation.knobs import set_knobs
from support.long_tests import first_is_quick

QUICK: Mapping[str, int] = {"seed": 1, "billing_seed": 1, "cluster_seed": 1}
"""The number of seeds that `make test` plays."""


@pytest.fixture(autouse=True)
def _usual_knobs() -> Iterator[None]:
    """A story that was made and not played leaves its knobs as they are."""
    yield
    set_knobs({})


@pytest.fixture(autouse=True)
def _on_one_core(pytestconfig: pytest.Config) -> Iterator[None]:
    """Threads of a story take turns, one at a time: to hand over to another core takes longer than to stay."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    worker = int(getattr(pytestconfig, "workerinput", {"workerid": "gw0"})["workerid"].removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(cores)[worker % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, quick in QUICK.items():
        if name in metafunc.fixturenames:
            seeds = range(metafunc.config.getoption(f"--{name.replace('_', '-')}s"))
            metafunc.parametrize(name, first_is_quick(seeds, quick))
