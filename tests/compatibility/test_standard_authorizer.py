"""Our rules for ACLs decide as Apache Kafka's own class does, in random cases."""

import subprocess
from pathlib import Path

import pytest
from support.acl_cases import answers, random_cases
from support.compat.fetched import fetched, need, run
from support.compat.java_client import QUICK, broker_classpath
from support.compat.model import Unavailable

CASES = 100_000
LIMIT_S = 600
_SOURCE = Path(__file__).parents[1] / "support" / "compat" / "java" / "AclOracle.java"

pytestmark = [pytest.mark.slow, pytest.mark.process]


def _oracle() -> list[str]:
    try:
        need("java", "javac", "mvn")
        classpath = broker_classpath()

        def compile_oracle(into: Path) -> None:
            command = ["javac", "-nowarn", "-cp", classpath, "-d", str(into), str(_SOURCE)]
            run(command, into, "the oracle could not be compiled")

        recipe = f"{classpath}\n{_SOURCE.read_text(encoding='utf-8')}"
        folder = fetched("acl-oracle", recipe, compile_oracle)
    except Unavailable as error:
        pytest.skip(f"Apache Kafka's class cannot be had here: {error}")
    return ["java", *QUICK, "-cp", f"{folder}:{classpath}", "AclOracle"]


def test_random_decisions_equal_those_of_kafka() -> None:
    command = _oracle()
    lines = list(random_cases(22, CASES))
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = [line for line in done.stdout.splitlines() if line in ("ALLOWED", "DENIED")]
    ours = list(answers(iter(lines)))
    assert len(expected) == len(ours) == CASES
    questions = [line for line in lines if line.startswith(("ask", "any"))]
    differing = [each for each in zip(questions, expected, ours, strict=True) if each[1] != each[2]]
    assert not differing, (len(differing), differing[:5])
