"""The simulated disk is itself a storage that keeps the contract, until its power is cut."""

import pytest

from barnabas.adapters.system import SeededEntropy
from barnabas.ports.errors import ClosedError
from barnabas.simulation.disk import FaultyDisk
from barnabas.testing.contracts.storage import Reopen, StorageContract, machine_for


def fresh() -> Reopen:
    return FaultyDisk(SeededEntropy(1), lambda: 0).open


class TestFaultyDisk(StorageContract):
    @pytest.fixture
    def reopen(self) -> Reopen:
        return fresh()


TestFaultyDiskMachine = machine_for(fresh).TestCase


def test_a_power_cut_keeps_what_was_flushed_and_a_prefix_of_the_rest() -> None:
    lengths = set()
    for seed in range(50):
        disk = FaultyDisk(SeededEntropy(seed), lambda: 0)
        file = disk.open().folder("t-0").open("a.log")
        file.append(b"flushed")
        file.flush()
        file.append(b"x" * 100)
        disk.power_cut()
        with pytest.raises(ClosedError):
            file.append(b"ghost")
        content = disk.open().folder("t-0").read_small("a.log")
        assert content.startswith(b"flushed")
        assert set(content[7:]) <= {ord("x"), 0}
        lengths.add(len(content))
    assert len(lengths) > 10
