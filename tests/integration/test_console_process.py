"""`barnabas console` and `barnabas serve --console` as processes."""

import re
import shlex
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest
from support.certificates import authority, certificate, chain, pem
from support.process import COMMAND, barnabas, broker_process
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.process


def _page(address: str) -> str:
    trust = None
    if address.startswith("https:"):
        trust = ssl.create_default_context(cadata=pem(authority().cert_pem))
    with urllib.request.urlopen(address, timeout=PATIENCE_S, context=trust) as answer:
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


@pytest.mark.slow
def test_console_serves_https_with_its_own_certificate_and_with_that_of_a_broker(tmp_path: Path) -> None:
    leaf = certificate("localhost", "127.0.0.1", "::1")
    cert, key, both = (tmp_path / name for name in ("cert.pem", "key.pem", "both.pem"))
    cert.write_text(chain(leaf))
    key.write_text(pem(leaf.private_key_pem))
    both.write_text(key.read_text() + cert.read_text())
    own = ("ssl.keystore.type=PEM", f"ssl.keystore.location={both}")
    with broker_process(tmp_path / "data", "console.listen=https://127.0.0.1:0", *own) as broker:
        assert "Overview" in _page(broker.listeners[1])
        files = ["--tls-cert", str(cert), "--tls-key", str(key), "--listen", "127.0.0.1:0"]
        command = [str(COMMAND), "console", "--bootstrap", broker.bootstrap, *files]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline().decode()
                assert ready.startswith("barnabas console ready https://127.0.0.1:")
                assert "Overview" in _page(ready.split()[-1])
            finally:
                process.kill()


def test_console_command_rejects_wrong_arguments() -> None:
    assert b"--bootstrap HOST:PORT" in barnabas("console", expect=2).stderr
    wrong = barnabas("console", "--bootstrap", "127.0.0.1:1", "--listen", "nowhere", expect=2)
    assert b"--listen='nowhere' is not HOST:PORT" in wrong.stderr
    half = barnabas("console", "--bootstrap", "127.0.0.1:1", "--tls-cert", "cert.pem", expect=2)
    assert b"--tls-key FILE" in half.stderr
