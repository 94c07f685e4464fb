"""The example plugin, installed as a user installs it, and used by its names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

_USE = """
from barnabas import Broker, Consumer, Producer
from barnabas.plugins.host import PluginHost
from barnabas.ports.errors import ConfigError

LINES = [b'%s - - [17/May/2015:10:05:03 +0000] "GET %s HTTP/1.1" 200 500' % line for line in (
    (b"10.0.0.1", b"/a"), (b"10.0.0.2", b"/style.css?v=2"), (b"10.0.0.2", b"/b"), (b"10.0.0.1", b"/c"),
)]

host = PluginHost()
assert "access-log" in host.names, host.names
assert "client_host" in host.known("partitioner")
with Broker(storage="memory", num_partitions=4) as broker:
    props = {"suffixes": ".css,.js"}
    with Producer(broker, partitioner="client_host", callback_handler="without_assets",
                  callback_handler_props=props) as producer:
        handles = [producer.send("views", line) for line in LINES]
    assert [handle.result().offset >= 0 for handle in handles] == [True, False, True, True]
    with Consumer(broker, decoder="access_log") as consumer:
        consumer.assign("views", position="earliest")
        messages = list(consumer.messages(stop_at_end=True))
    assert sorted(m.value["path"] for m in messages) == ["/a", "/b", "/c"], messages
    assert len({m.partition for m in messages if m.value["host"] == "10.0.0.1"}) == 1
    assert all(m.value["status"] == 200 for m in messages)
try:
    PluginHost(blocked=["access-log"]).partitioner("client_host")
except ConfigError as error:
    print("blocked:", error)
"""


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example was installed into, by pip, without a network."""
    source = tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(checkout / "examples" / "plugin_access_log", source)
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_example_plugin_is_found_by_entry_point_and_works(installed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _USE],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("blocked: unknown partitioner 'client_host'; known:")
