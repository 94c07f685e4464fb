"""The table as a tier of the audit: rows that were dropped or doubled in it are named, loads are counted once."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.command import barnabas_here
from support.waiting import PATIENCE_S

from barnabas import Admin, Producer
from barnabas.audit.publishing import wall_ms
from barnabas.audit.reading import AuditReader
from barnabas.audit.reconcile import TierFigures, reconcile
from barnabas.pipeline.load import load
from barnabas.pipeline.table_audit import TableAudit, audited_load
from barnabas.ports.errors import ConfigError
from barnabas.testing import TestBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]
DAY_MS = 86_400_000
PROPS = {"interval.ms": 100, "window.ms": DAY_MS, "instance": "web-1/t"}


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with TestBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("views", partitions=2)
        yield broker.bootstrap


def table_tier(bootstrap: str) -> TierFigures:
    reader = AuditReader([bootstrap])
    try:
        reader.read()
        found = reconcile(reader.totals, now_ms=wall_ms(), grace_ms=0)
    finally:
        reader.close()
    assert len(found.windows) == 1, "the test ran over midnight"
    return next(tier for tier in found.windows[0].tiers if tier.tier == "table")


@pytest.mark.slow
def test_rows_dropped_and_doubled_in_the_table_are_named(bootstrap: str, spark: "SparkSession", tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    observed: list[str] = []
    audit = TableAudit(bootstrap, tmp_path / "t", ["views", "not-there"], tier="table", window_ms=DAY_MS)
    with Producer(bootstrap, callback_handler="audit", callback_handler_props=PROPS) as producer:
        producer.send_many("views", [b"x"] * 100, partition=0)
        producer.flush()
        producer.send("views", b"keyed", b"key", headers=[("own", b"1")], partition=1).result(PATIENCE_S)
    with audited_load(audit, observed.append):
        load(bootstrap, ["views"], tmp_path / "t", spark=spark)
        table = DeltaTable(tmp_path / "t")
        table.delete("partition = 0 AND offset >= 7 AND offset < 10")
        rows = table.to_pyarrow_table(filters=[("partition", "=", 0), ("offset", "=", 50)])
        write_deltalake(tmp_path / "t", rows, mode="append")
    assert observed == []
    found = table_tier(bootstrap)
    assert (found.after, found.count, found.arrived, found.pending) == ("producer", 99, 98, 0)
    assert [str(which) for which in found.lost] == ["web-1/t 7-9"]
    assert [str(which) for which in found.doubled] == ["web-1/t 50"]
    assert audit.count() == 0


@pytest.mark.slow
def test_loads_are_counted_once_whatever_was_counted_before(
    bootstrap: str, spark: "SparkSession", tmp_path: Path
) -> None:
    def audit() -> TableAudit:
        return TableAudit(bootstrap, tmp_path / "t", ["views"], tier="table", window_ms=DAY_MS)

    observed: list[str] = []
    with audited_load(audit(), observed.append):
        pass
    assert observed == [], "there is no table to count"
    with Producer(bootstrap, callback_handler="audit", callback_handler_props=PROPS) as producer:
        producer.send_many("views", [b"x"] * 10)
        producer.flush()
        load(bootstrap, ["views"], tmp_path / "t", spark=spark, format="parquet")
        assert audit().count() == 10
        producer.send_many("views", [b"x"] * 5)
    with audited_load(audit(), observed.append):
        load(bootstrap, ["views"], tmp_path / "t", spark=spark)
    assert audit().count() == 0
    found = table_tier(bootstrap)
    assert (found.count, found.arrived, found.pending, found.agrees) == (15, 15, 0, True)


def test_a_classic_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="current cluster"):
        TableAudit("zookeeper://127.0.0.1:1", tmp_path, ["t"])
    words = ("load", "--topics", "t", "--into", str(tmp_path), "--audit", "table", "--audit-window", "soon")
    assert b"--audit-window" in barnabas_here(*words, "--bootstrap", "127.0.0.1:1", expect=2).stderr
