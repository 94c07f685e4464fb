"""One test a seed; `--seeds N` says how many, `--cluster-seeds N` for whole clusters."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")))
    if "billing_seed" in metafunc.fixturenames:
        metafunc.parametrize("billing_seed", range(metafunc.config.getoption("--billing-seeds")))
    if "cluster_seed" in metafunc.fixturenames:
        metafunc.parametrize("cluster_seed", range(metafunc.config.getoption("--cluster-seeds")))
