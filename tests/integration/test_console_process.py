"""`barnabas console` and `barnabas serve --console` as processes."""

import re
import shlex
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from support.process import COMMAND, barnabas, broker_process
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.process


def _page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
    return text


@pytest.mark.slow
def test_console_of_the_documented_command_serves_pages_until_sigterm(checkout: Path, tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (checkout / "docs/console.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    with broker_process(tmp_path / "data", "console.listen=127.0.0.1:0") as broker:
        address = broker.listeners[0].removeprefix("kafka://")
        words = shlex.split(blocks[0].replace("localhost:9092", address))
        command = [str(COMMAND), *words[1:], "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline().decode()
                assert ready.startswith("barnabas console ready http://127.0.0.1:")
                assert f"{address}" in _page(ready.split()[-1])
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()
        assert [each.partition("://")[0] for each in broker.listeners] == ["kafka", "http"]
        assert "Overview" in _page(broker.listeners[1])
        assert broker.stop() == 0


def test_console_command_rejects_wrong_arguments() -> None:
    assert b"--bootstrap HOST:PORT" in barnabas("console", expect=2).stderr
    wrong = barnabas("console", "--bootstrap", "127.0.0.1:1", "--listen", "nowhere", expect=2)
    assert b"--listen='nowhere' is not HOST:PORT" in wrong.stderr
