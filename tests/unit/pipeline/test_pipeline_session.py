import importlib.util
from pathlib import Path

import pytest

from barnabas.pipeline import session
from barnabas.ports.errors import ConfigError


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
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
