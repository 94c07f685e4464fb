"""Fixtures and settings of all tests."""

import gc
import logging
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from support.long_tests import MOST_QUICK_EXAMPLES

if TYPE_CHECKING:
    from support.etcd_server import EtcdServer
    from support.s3_server import S3Server
    from support.zookeeper_server import ZookeeperServer

_CHECKOUT = Path(__file__).resolve().parents[1]
_reseeds = pytest.StashKey[bool]()

# The tests start hundreds of Python processes; each would compile the package again where nothing is kept.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The folders of the tests are in memory where there is room: a tenth less CPU time, and no disk that others keep busy.
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 8 << 30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# A shell has what it runs in the background ignore Ctrl-C, and so would all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The user may have an own cluster in service: no command here may find it.
os.environ["XDG_CONFIG_HOME"] = os.devnull
for _name in ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE"):
    os.environ.pop(_name, None)

# jsonschema would build 38 grammars, 1.4 s of each worker's CPU time, to check formats of which no test here asks.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: it cannot be imported

settings.register_profile(
    "quick",
    max_examples=MOST_QUICK_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
)
settings.register_profile("prove", settings.get_profile("quick"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.import_plugin("support.forked_workers")
    parser.addoption("--seeds", type=int, default=10, help="how many seeds the simulation plays (all with -m '')")
    parser.addoption("--billing-seeds", type=int, default=25, help="how many seeds it plays of bills")
    parser.addoption("--cluster-seeds", type=int, default=100, help="how many seeds it plays of whole clusters")
    parser.addoption("--late", default="", help="what is late at random: watches,timers,offloaded (see support.late)")


def pytest_configure(config: pytest.Config) -> None:
    # pytest-randomly would seed numpy's numbers as well, of which no test makes use, and all three times per test.
    config.stash[_reseeds] = getattr(config.option, "randomly_reset_seed", False)
    config.option.randomly_reset_seed = False
    kinds = [kind for kind in config.getoption("late").split(",") if kind]
    if kinds:
        from support.late import KINDS

        late = ExitStack()
        config.add_cleanup(late.close)
        for kind in kinds:
            late.enter_context(KINDS[kind]())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected items, which live to the end, so that garbage collections between tests skip them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # 3 to 7 % of the CPU time of tests of groups and logs
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _reseed(item, "setup")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _reseed(item, "call")


def _reseed(item: pytest.Item, phase: str) -> None:
    """Let the random numbers of a test depend on its name and on `--randomly-seed` alone."""
    if item.config.stash[_reseeds]:
        random.seed(f"{item.config.option.randomly_seed} {phase} {item.nodeid}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Take away the handlers that a command in this process has set up: their stream is closed with the test.

    A hook costs each of 16,000 tests less than a fixture that all of them use.
    """
    root, ours = logging.getLogger(), logging.getLogger("barnabas")
    before, level = list(root.handlers), ours.level
    try:
        return (yield)
    finally:
        for handler in list(root.handlers):
            if type(handler) is logging.StreamHandler and handler not in before:
                root.removeHandler(handler)
        ours.setLevel(level)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the project."""
    return _CHECKOUT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that use it skip where it is absent."""
    folder = Path(os.environ.get("BARNABAS_TEST_DATA", _CHECKOUT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the real data sets are not here; set BARNABAS_TEST_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def command() -> Path:
    """The installed `barnabas` command."""
    path = _CHECKOUT / ".venv" / "bin" / "barnabas"
    if not path.exists():
        pytest.skip("the command is not installed; run `make install`")
    return path


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ZookeeperServer]":
    """One for all tests of this process that do not hurt it; each keeps to a path of its own. Their xdist group is
    `zookeeper`."""
    from support.zookeeper_server import ZookeeperServer

    server = ZookeeperServer(tmp_path_factory.mktemp("zookeeper") / "server")
    try:
        server.start()
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EtcdServer]":
    """Yield an etcd server; the xdist group is `etcd`, or another one."""
    from support.etcd_server import EtcdServer

    server = EtcdServer(tmp_path_factory.mktemp("etcd") / "server")
    try:
        server.start()
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def s3_server() -> "Iterator[S3Server]":
    from support.s3_server import run_s3_server

    with run_s3_server() as server:
        yield server
