import importlib.util
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from barnabas.pipeline import session
from barnabas.pipeline.spark.ending import stop_session
from barnabas.ports.errors import ConfigError


def test_missing_pyspark_raises_config_error_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find(name))
    with pytest.raises(ConfigError, match=r"pyspark not installed; to get it: pip install .*\[spark\]'$"):
        session.require_spark()


def test_a_local_session_keeps_to_itself(tmp_path: Path) -> None:
    settings = session.local_settings(tmp_path, cores=3, memory="1g", quick=True, log_level="ERROR")
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.ui.enabled"] == "false"
    for key in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert settings[key].startswith(str(tmp_path))


def test_workers_are_spoken_to_over_unix_sockets_where_their_paths_fit() -> None:
    def sockets_in(folder: Path) -> list[str]:
        settings = session.local_settings(folder, cores=1, memory="1g", quick=True, log_level="ERROR")
        return [value for key, value in settings.items() if "unix.domain" in key]

    assert sockets_in(Path("/tmp/barnabas-spark-12345678")) == ["true", "/tmp/barnabas-spark-12345678"]
    assert sockets_in(Path("/tmp") / ("long" * 20)) == []


@pytest.mark.parametrize("ended", [True, False], ids=["noticed", "unnoticed"])
def test_a_session_whose_java_is_gone_does_not_stand_in_the_way_of_the_next(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    class Context:
        _jsc: object = "of a Java that is gone"
        stopped = False

        def stop(self) -> None:
            assert self._jsc is None
            self.stopped = True

    class Session:
        sparkContext = Context()

        def stop(self) -> None:
            assert not ended
            warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)
            raise ConnectionRefusedError(111, "Connection refused")

    gateway = SimpleNamespace(proc=SimpleNamespace(poll=lambda: -9 if ended else None))
    attributes = [(SparkContext, "_gateway"), (SparkContext, "_jvm"), (SparkSession, "_instantiatedSession")]
    for where, name in attributes:
        monkeypatch.setattr(where, name, gateway)
    monkeypatch.setattr(SparkSession, "_activeSession", None)
    monkeypatch.setattr(SQLContext, "_instantiatedContext", None)
    session = Session()
    stop_session(session)  # type: ignore[arg-type]  # as one behaves
    assert session.sparkContext.stopped
    assert [getattr(where, name) for where, name in attributes] == [None, None, None]
