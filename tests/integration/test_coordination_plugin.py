"""A user's own coordination back end, installed as a package and chosen in a configuration file."""

from pathlib import Path

from support.command import barnabas_here
from support.process import BrokerProcess

from barnabas import Consumer, Producer

PLUGIN = """
from pathlib import Path

from barnabas.adapters.coord_embedded import EmbeddedCoordination
from barnabas.plugins import CoordinationBackend, hookimpl


def open_session(request):
    name = request.url.partition("://")[2]
    return EmbeddedCoordination(str(Path(request.data_dir).parent / f"{name}.toy"), report=request.report)


@hookimpl
def barnabas_coordination(scheme):
    return CoordinationBackend(open=open_session, shared=False) if scheme == "toy" else None


@hookimpl
def barnabas_names(kind):
    return ["toy"] if kind == "coordination" else []
"""


def installed(folder: Path) -> dict[str, str]:
    """Install the plug-in into `folder`; return the environment that finds it there."""
    info = folder / "toy_tree-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-tree\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[barnabas]\ntoy = toy_tree\n")
    (folder / "toy_tree.py").write_text(PLUGIN)
    return {"PYTHONPATH": str(folder)}


def test_broker_stores_its_topics_in_the_back_end_of_an_installed_plugin(tmp_path: Path) -> None:
    environment = installed(tmp_path / "site")
    config = tmp_path / "broker.toml"
    config.write_text('coordination = "toy://mine"\nnum.partitions = 3\n')
    for _ in range(2):
        broker = BrokerProcess(tmp_path / "data", config=config, environment=environment)
        try:
            with Producer(broker.bootstrap) as producer:
                producer.send("orders", b"x").result()
        finally:
            broker.stop()
    assert (tmp_path / "mine.toy").exists()
    assert not (tmp_path / "data" / "coordination.db").exists()
    broker = BrokerProcess(tmp_path / "data", config=config, environment=environment)
    try:
        with Consumer(broker.bootstrap) as consumer:
            consumer.assign("orders", position="earliest")
            assert len(list(consumer.messages(stop_at_end=True))) == 2
    finally:
        broker.stop()


def test_broker_without_the_plugin_ends_with_a_list_of_the_known_schemes(tmp_path: Path) -> None:
    ended = barnabas_here(
        "serve",
        "--data",
        tmp_path / "data",
        "--listen",
        "kafka://127.0.0.1:0",
        "--set",
        "coordination=toy://mine",
        expect=2,
    )
    text = ended.stderr.decode()
    assert "coordination=toy://mine: unknown coordination scheme 'toy'" in text
    assert "known: embedded, etcd, etcd+managed, memory, zookeeper" in text
