"""SIGTERM while something starts: it ends in order, with exit code 0, no traceback, and nothing of it is left."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.etcd_server import EtcdServer
from support.ports import free_pairs, free_port
from support.process import COMMAND, broker_process
from support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("etcd")]
PATIENCE_S = 120.0
MOMENTS_S = [0.1, 0.25, 0.4, 0.6, 0.9, 1.3]


@contextmanager
def begun(folder: Path, words: Sequence[str]) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "stderr"
    with (
        log.open("wb") as stderr,
        (folder / "stdout").open("wb") as stdout,
        subprocess.Popen([str(COMMAND), *words], stdout=stdout, stderr=stderr) as process,
    ):
        try:
            yield process, log
        finally:
            process.kill()


def ends_in_order(process: "subprocess.Popen[bytes]", log: Path, how: signal.Signals = signal.SIGTERM) -> str:
    """Send the signal; returns what was logged."""
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(how)
    code = process.wait(PATIENCE_S)
    said = log.read_text()
    # Before the command itself runs, Python has no handler yet, and nothing has begun.
    assert code == 0 or (code == -how and not said), (code, said)
    assert "Traceback" not in said, said
    assert "Exception ignored" not in said, said
    wait_for(lambda: not any(map(_runs, below)), PATIENCE_S)
    return said


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_line(log: Path, text: str) -> None:
    wait_for(lambda: text in log.read_text(), PATIENCE_S)


@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_a_broker_at_any_moment(tmp_path: Path, moment_s: float) -> None:
    words = ["serve", "--data", str(tmp_path / "data"), "--listen", "kafka://127.0.0.1:0"]
    place = f"etcd+managed://127.0.0.1:{free_pairs(1)[0]}/x"
    with begun(tmp_path, [*words, "--set", f"coordination={place}"]) as (process, log):
        time.sleep(moment_s)
        ends_in_order(process, log)
    with broker_process(tmp_path / "data", f"coordination={place}") as broker:
        assert broker.stop() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_whose_etcd_waits_for_the_others(tmp_path: Path, how: signal.Signals) -> None:
    place = f"etcd+managed://{','.join(f'127.0.0.1:{port}' for port in free_pairs(3))}"
    words = ["serve", "--data", str(tmp_path / "data"), "--listen", "kafka://127.0.0.1:0"]
    with begun(tmp_path, [*words, "--set", f"coordination={place}"]) as (process, log):
        wait_for_line(log, " starts: ")
        time.sleep(0.3)
        began_s = time.monotonic()
        said = ends_in_order(process, log, how)
        assert time.monotonic() - began_s < 30, "it waits for 60 s for the other members"
        assert "is stopped before it has started" in said


@pytest.mark.parametrize("scheme", ["zookeeper", "etcd"])
def test_a_broker_that_waits_for_its_coordination(tmp_path: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/x"
        words = ["serve", "--data", str(tmp_path / "data"), "--listen", "kafka://127.0.0.1:0"]
        words += ["--set", f"coordination={place}", "--set", "zookeeper.connection.timeout.ms=60000"]
        with begun(tmp_path, words) as (process, log):
            wait_for_line(log, " starts: ")
            time.sleep(0.3)
            began_s = time.monotonic()
            assert "is stopped before it has started" in ends_in_order(process, log)
            assert time.monotonic() - began_s < 30
    with broker_process(tmp_path / "data") as broker:
        assert broker.stop() == 0, "its folder is free again"


@pytest.mark.parametrize("moment_s", MOMENTS_S)
def test_a_cluster_at_any_moment(tmp_path: Path, moment_s: float) -> None:
    words = ["cluster", "start", "--data", str(tmp_path / "data"), "--base-port", "0", "--brokers", "2"]
    with begun(tmp_path, words) as (process, log):
        time.sleep(moment_s)
        ends_in_order(process, log)


@pytest.mark.parametrize("moment_s", MOMENTS_S[::2])
def test_a_registry_at_any_moment(tmp_path: Path, moment_s: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        words = ["registry", "--bootstrap", bootstrap, "--listen", f"127.0.0.1:{free_port()}"]
        with begun(tmp_path, words) as (process, log):
            time.sleep(moment_s)
            ends_in_order(process, log)


def test_a_broker_that_waits_for_the_session_of_its_last_life(tmp_path: Path, etcd_server: EtcdServer) -> None:
    place = f"coordination=etcd://127.0.0.1:{etcd_server.port}/stopped-at-start"
    with broker_process(tmp_path / "data", place, "zookeeper.session.timeout.ms=60000") as broker:
        broker.kill()
    words = ["serve", "--data", str(tmp_path / "data"), "--listen", "kafka://127.0.0.1:0", "--set", place]
    with begun(tmp_path, words) as (process, log):
        wait_for_line(log, "waits")
        assert not (tmp_path / "stdout").read_text(), "it is not ready"
        ends_in_order(process, log)
