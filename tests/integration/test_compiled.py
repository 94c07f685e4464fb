"""The compiled wheel: bytes, messages and errors are those of pure Python, and the unit tests of its modules pass."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.compiled_sample import sample_digests
from support.waiting import PATIENCE_S
from support.wheels import Installed, build_wheel, copy_tree

pytestmark = [pytest.mark.slow, pytest.mark.process]

CHECKOUT = Path(__file__).resolve().parents[2]
TESTED = (
    "tests/unit/message",
    "tests/unit/client",
    "tests/integration/test_clients_producer.py",
    "tests/integration/test_clients_consumer.py",
    "tests/adapters/test_transport_tcp.py",
    "tests/adapters/test_transport_tcp_inbound.py",
    "tests/adapters/test_wire_kafka_client.py",
    "tests/adapters/test_wire_kafka_fuzz.py",
    "tests/adapters/test_wire_kafka_golden.py",
    "tests/adapters/test_wire_kafka_server.py",
    "tests/adapters/test_wire_kafka_straight_code.py",
)
"""The tests that also run on the compiled modules."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("compiled")
    source = copy_tree(CHECKOUT, folder / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARNABAS_COMPILE", "1")
        wheel = build_wheel(source, folder / "wheels", timeout_s=30 * PATIENCE_S)
    assert not wheel.name.endswith("-none-any.whl")
    return Installed(folder / "environment", wheel)


def test_compiled_modules_return_what_pure_python_returns(compiled: Installed) -> None:
    script = CHECKOUT / "tests" / "support" / "compiled_sample.py"
    printed = compiled.run(script, timeout_s=20 * PATIENCE_S)
    assert printed.pop("compiled") is True
    expected = sample_digests()
    assert expected.pop("compiled") is False
    assert printed == expected


def test_tests_of_codecs_and_clients_pass_on_the_compiled_modules(compiled: Installed) -> None:
    command = [str(compiled.python), "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *TESTED]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout[-5000:]


def test_two_builds_of_the_compiled_wheel_are_equal_byte_by_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    monkeypatch.setenv("BARNABAS_COMPILE", "1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    wheels = []
    for name in ("first", "second"):
        source = copy_tree(CHECKOUT, tmp_path / name)
        script = (source / "setup.py").read_text()
        # Two modules are enough, and take seconds in place of a minute.
        head, _, rest = script.partition("COMPILED = (")
        short = '    "core.message.varint",\n    "core.client.producer.hashing",\n)\n'
        (source / "setup.py").write_text(f"{head}COMPILED = (\n{short}{rest.partition(chr(10) + ')' + chr(10))[2]}")
        wheels.append(build_wheel(source, tmp_path / f"{name}-wheels", timeout_s=10 * PATIENCE_S).read_bytes())
    assert wheels[0] == wheels[1]


def test_compiled_wheel_says_so(compiled: Installed) -> None:
    shown = subprocess.run(
        [str(compiled.command), "--version"], capture_output=True, text=True, timeout=5 * PATIENCE_S, check=True
    )
    assert shown.stdout.rstrip().endswith(" (compiled)")
    ours = subprocess.run(
        [sys.executable, "-m", "barnabas.app.cli.main", "--version"],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    assert "compiled" not in ours.stdout
