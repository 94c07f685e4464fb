"""The fixtures for pytest (entry point `pytest11`). The rest of Barnabas is loaded when a test asks for a fixture."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..app.clients.consumer.consumer import Consumer
    from ..app.clients.producer.producer import Producer
    from .broker import TestBroker
    from .cluster import TestCluster

_CLUSTER_MARKER = "barnabas_cluster(brokers=3, **settings): how the cluster of the fixture `barnabas_cluster` is made."
_MARKER = "barnabas_topic(partitions=1, **configs): how the topic of the fixture `barnabas_topic` is made."
_INI_HELP = "Settings of the test broker and of test clusters, one KEY=VALUE per line (Kafka's dotted keys)."
_NAME_MAX = 180
_brokers = pytest.StashKey["TestBroker"]()
_numbers = pytest.StashKey[int]()

MakeTopic = Callable[..., str]

# Failed assertions of the contract suites then show their values; nothing is imported by this.
pytest.register_assert_rewrite("barnabas.testing.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option and the ini setting."""
    group = parser.getgroup("barnabas", "a Kafka broker for tests")
    group.addoption(
        "--barnabas-set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the test broker and of test clusters; may be given several times",
    )
    parser.addini("barnabas_config", _INI_HELP, type="linelist", default=[])
    parser.addini("barnabas_timeout", "Seconds that `assert_produced` waits for messages (10).", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Let the markers be known, and the time that a test waits for messages."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _CLUSTER_MARKER)
    given = config.getini("barnabas_timeout")
    if given:
        from .running import set_patience_s

        try:
            before = set_patience_s(float(given))
        except ValueError:
            raise pytest.UsageError(f"barnabas_timeout={given!r} is not a number of seconds") from None
        config.add_cleanup(partial(_set_patience_back, before))


def _set_patience_back(seconds: float) -> None:
    from .running import set_patience_s

    set_patience_s(seconds)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Undo what a test did to the broker that all share, before its clients are closed."""
    broker = item.config.stash.get(_brokers, None)
    if broker is not None:
        broker.faults.clear()
        broker.allow_all()
        broker.clock.set_right()
        broker.start()


@pytest.fixture(scope="session")
def barnabas_config(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """Settings of `barnabas_broker` and of `barnabas_cluster`: those of the ini file, then of --barnabas-set. Override
    it to give others."""
    lines = [*request.config.getini("barnabas_config"), *request.config.getoption("--barnabas-set")]
    settings: dict[str, object] = {}
    for line in lines:
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"barnabas: {line!r} is not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def barnabas_broker(request: pytest.FixtureRequest, barnabas_config: Mapping[str, object]) -> Iterator[TestBroker]:
    """A `TestBroker` for the whole run (under xdist: one per worker).

    After each test its faults are removed, its wall clock is set right, and it is started again if it was stopped.
    """
    from .broker import TestBroker

    with TestBroker(barnabas_config) as broker:
        request.config.stash[_brokers] = broker
        try:
            yield broker
        finally:
            del request.config.stash[_brokers]


@pytest.fixture
def barnabas_cluster(request: pytest.FixtureRequest, barnabas_config: Mapping[str, object]) -> Iterator[TestCluster]:
    """A `TestCluster` for this test alone, made as `@pytest.mark.barnabas_cluster(brokers=5, min_insync_replicas=2)`
    says."""
    from .cluster import TestCluster

    marker = request.node.get_closest_marker("barnabas_cluster")
    with TestCluster(config=barnabas_config, **(marker.kwargs if marker is not None else {})) as cluster:
        yield cluster


@pytest.fixture
def barnabas_topics(request: pytest.FixtureRequest, barnabas_broker: TestBroker) -> Iterator[MakeTopic]:
    """Makes topics with names of their own: `barnabas_topics(partitions=3, retention_ms=1000) -> str`.

    Settings are Kafka's, in snake case or in `configs={...}`. They are gone after the test.
    """
    made: list[str] = []

    def make(*, partitions: int = 1, configs: Mapping[str, object] | None = None, **settings: object) -> str:
        both = {**(configs or {}), **{name.replace("_", "."): value for name, value in settings.items()}}
        name = barnabas_broker.create_topic(_unique(request), partitions=partitions, configs=both)
        made.append(name)
        return name

    yield make
    for name in made:
        barnabas_broker.delete_topic(name)


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, barnabas_topics: MakeTopic) -> str:
    """The name of an empty topic for this test alone, made as `@pytest.mark.barnabas_topic(partitions=3)` says."""
    marker = request.node.get_closest_marker("barnabas_topic")
    return barnabas_topics(**(marker.kwargs if marker is not None else {}))


@pytest.fixture
def barnabas_group(request: pytest.FixtureRequest) -> str:
    """The name of a consumer group for this test alone."""
    return _unique(request)


@pytest.fixture
def barnabas_producer(barnabas_broker: TestBroker) -> Iterator[Producer]:
    """Barnabas' own `Producer`, connected to the broker."""
    with barnabas_broker.producer() as producer:
        yield producer


@pytest.fixture
def barnabas_consumer(barnabas_broker: TestBroker, barnabas_group: str) -> Iterator[Consumer]:
    """Barnabas' own `Consumer` in the group `barnabas_group`; it begins with the earliest messages.

    Call `subscribe(topic)`, or `assign(topic)`.
    """
    with barnabas_broker.consumer(group_id=barnabas_group) as consumer:
        yield consumer


def _unique(request: pytest.FixtureRequest) -> str:
    """Return the name of the test, and a number."""
    stash = request.config.stash
    number = stash[_numbers] = stash.get(_numbers, 0) + 1
    worker: Any = getattr(request.config, "workerinput", {})
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-.")[:_NAME_MAX]
    return "-".join(part for part in (name, worker.get("workerid", ""), str(number)) if part)
