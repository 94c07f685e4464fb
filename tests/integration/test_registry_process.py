"""Registries and brokers as processes: stopped, killed, away, beside each other."""

import importlib.util
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.ports import free_port
from support.process import COMMAND, BrokerProcess, barnabas, broker_process
from support.schema_registry import Asking
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.cli.main import main

pytestmark = pytest.mark.process


def schema(number: int) -> str:
    return f'{{"type":"fixed","name":"F{number}","size":1}}'


@contextmanager
def registry_process(bootstrap: str, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`barnabas registry`, and its URL."""
    command = [str(COMMAND), "registry", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().decode()
            assert ready.startswith("barnabas registry ready http://127.0.0.1:")
            yield process, ready.split()[-1]
        finally:
            process.kill()


@pytest.mark.slow
def test_registry_of_broker_process_survives_restart(tmp_path: Path) -> None:
    settings = ["schema.registry.listen=127.0.0.1:0"]
    with broker_process(tmp_path / "data", *settings) as broker:
        assert [each.partition("://")[0] for each in broker.listeners] == ["kafka", "http"]
        assert Asking(broker.listeners[1]).register("s", schema(1)) == 1
        assert broker.stop() == 0
        assert "ERROR" not in broker.log()
    with broker_process(tmp_path / "data", *settings) as broker:
        ask = Asking(broker.listeners[1])
        assert ask("GET", "/schemas/ids/1") == (200, {"schema": schema(1)})
        assert ask.register("s2", schema(2)) == 2


def test_a_service_that_cannot_start_stops_the_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = ["--listen", "kafka://127.0.0.1:0", "--set", f"schema.registry.listen={address}"]
        wrong = barnabas("serve", "--data", tmp_path / "data", *given, expect=2)
    assert f"cannot listen on {address}" in wrong.stderr.decode().splitlines()[-1]
    assert "ready" not in wrong.stdout.decode()


def test_registry_command_rejects_wrong_arguments() -> None:
    assert b"--bootstrap HOST:PORT" in barnabas("registry", expect=2).stderr
    wrong = barnabas("registry", "--bootstrap", "127.0.0.1:1", "--listen", "nowhere", expect=2)
    assert b"--listen='nowhere' is not HOST:PORT" in wrong.stderr


@pytest.mark.slow
def test_a_killed_registry_loses_no_schema_that_it_acknowledged(tmp_path: Path) -> None:
    """Killed at once, while four clients register; another one continues."""
    acknowledged: dict[int, int] = {}

    def register(ask: Asking, number: int) -> None:
        acknowledged[number] = ask.register(f"s{number}", schema(number))

    with broker_process(tmp_path / "data") as broker:
        with registry_process(broker.bootstrap) as (process, url), ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(register, Asking(url), number) for number in range(400)]
            wait_for(lambda: len(acknowledged) >= 50)
            process.kill()
            for each in asked:
                each.cancel()
        with registry_process(broker.bootstrap) as (process, url):
            ask = Asking(url)
            stored = {each["id"]: each for each in ask("GET", "/schemas")[1]}
            assert len(stored) >= len(acknowledged) >= 50
            for number, own_id in acknowledged.items():
                assert (stored[own_id]["subject"], stored[own_id]["schema"]) == (f"s{number}", schema(number))
            assert ask.register("new", schema(5000)) > max(acknowledged.values())
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_the_broker_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Clients register schemas meanwhile, and retry when the brokers are unavailable."""
    listen = [f"kafka://127.0.0.1:{free_port()}"]
    broker = BrokerProcess(tmp_path / "data", listen=listen)
    acknowledged: dict[int, int] = {}

    def register(ask: Asking, number: int) -> None:
        while True:
            status, answer = ask("POST", f"/subjects/s{number}/versions", {"schema": schema(number)})
            if status == 200:
                acknowledged[number] = answer["id"]
                return
            assert answer["error_code"] in (50002, 50003), answer

    try:
        with registry_process(listen[0].partition("://")[2]) as (_, url):
            ask = Asking(url)
            with ThreadPoolExecutor(4) as pool:
                asked = [pool.submit(register, ask, number) for number in range(100)]
                wait_for(lambda: len(acknowledged) >= 30)
                broker.kill()
                assert ask("GET", "/schemas/ids/1")[0] == 200  # what is known needs no broker
                broker = BrokerProcess(tmp_path / "data", listen=listen)
                for each in asked:
                    each.result(PATIENCE_S)
            assert sorted(acknowledged.values()) == list(range(1, 101))
            assert ask.register("s1", schema(1)) == acknowledged[1]
    finally:
        broker.stop()


@pytest.mark.slow
def test_a_registry_without_a_broker_says_so(tmp_path: Path) -> None:
    listen = [f"kafka://127.0.0.1:{free_port()}"]
    with registry_process(listen[0].partition("://")[2]) as (_, url):
        ask = Asking(url)
        assert ask.code("GET", "/subjects") == (503, 50003)
        assert ask.code("POST", "/subjects/s/versions", {"schema": schema(1)}) == (503, 50003)
        with broker_process(tmp_path / "data", listen=listen):
            wait_for(lambda: ask("GET", "/subjects") == (200, []))
            assert ask.register("s", schema(1)) == 1


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    with pytest.raises(SystemExit) as ended:
        main(["registry", "--bootstrap", "127.0.0.1:1"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "uvicorn not installed" in line
    assert "[registry]" in line
