"""The Python of Spark's workers, and the error for one without Barnabas."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipeline.session import workers_python
from barnabas.ports.errors import ConfigError


def _session(master: str = "local[2]", **settings: str) -> Any:
    conf = SimpleNamespace(get=settings.get)
    context = SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context)


def _python(folder: Path, script: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def _none_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_on_this_machine_it_is_this_python() -> None:
    session = _session()
    with workers_python(session):
        assert session.sparkContext.pythonExec == sys.executable
    assert session.sparkContext.pythonExec == "python3"


def test_one_that_is_chosen_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = _python(tmp_path, f'exec {sys.executable} "$@"')
    session = _session(**{"spark.pyspark.python": ours})
    with workers_python(session):
        assert session.sparkContext.pythonExec == ours
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with workers_python(session):
        assert session.sparkContext.pythonExec == sys.executable


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (
            "echo {version}; echo barnabas pyarrow",
            "chosen for Spark's workers, lacks barnabas, pyarrow; set PYSPARK_PYTHON",
        ),
        ("echo 3.7; echo", "is Python 3.7, but this is Python"),
        ("exit 3", "does not run"),
    ],
)
def test_one_that_cannot_be_is_refused_before_any_job(tmp_path: Path, script: str, text: str) -> None:
    python = _python(tmp_path, script.format(version=".".join(map(str, sys.version_info[:2]))))
    session = _session(**{"spark.pyspark.python": python})
    with pytest.raises(ConfigError, match=text), workers_python(session):
        pass
    assert session.sparkContext.pythonExec == "python3"


def test_a_clusters_python_is_asked_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _python(tmp_path, "echo {}; echo barnabas".format(".".join(map(str, sys.version_info[:2]))))
    monkeypatch.setenv("PATH", str(tmp_path))
    text = "'python3', Spark's choice for its workers, lacks barnabas"
    with pytest.raises(ConfigError, match=text), workers_python(_session("spark://h:7077")):
        pass
    nowhere = _session(**{"spark.pyspark.python": "/nowhere/python"})
    with pytest.raises(ConfigError, match="is not on this machine"), workers_python(nowhere):
        pass


def test_a_server_has_its_own_workers() -> None:
    from pyspark.errors import PySparkAttributeError

    class Remote:
        @property
        def sparkContext(self) -> None:  # Spark's name
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
            )

    remote: Any = Remote()
    with workers_python(remote):
        pass
