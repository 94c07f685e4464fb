"""The demo: a log line's way through a broker into a warehouse table and onto a page, checked line by line."""

import gzip
import hashlib
import io
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from attrs import define, frozen
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from .. import Admin, Broker, Consumer, Message, Producer
from ..app.extras import require
from ..ports.errors import BarnabasError, ConfigError
from ..ports.report import counted
from .session import REPORT_PACKAGES
from .spark.java import find_java

PARTITIONS = 4
LINES_AT_ONCE = 500
LINES_SHOWN = 5


@define
class Fingerprint:
    """The number of lines, and a sum of their hashes that does not depend on their order."""

    lines: int = 0
    total: int = 0

    def add(self, line: bytes) -> None:
        self.lines += 1
        digest = hashlib.blake2b(line, digest_size=8).digest()
        self.total = (self.total + int.from_bytes(digest, "big")) & (2**64 - 1)


@frozen
class LineSource:
    """A source of lines: `topic` names them, `total` is None when it is not known beforehand."""

    topic: str
    total: int | None
    messages: Iterator[Message]


def run(log: Path | None, out: Path, seconds: float) -> bool:
    """Play the demo; True if every line arrived exactly once.

    `log` None watches this machine for `seconds`. Table and page go to `out`, which must be empty, missing or the
    result of an earlier demo. Raises `BarnabasError`.
    """
    require("the demo", [*REPORT_PACKAGES, "deltalake"], "demo")
    find_java()
    console = Console(highlight=False)
    started = time.monotonic()
    source = _metrics(seconds) if log is None else _access_log(log)
    table, page = _make_room(out)
    sent = Fingerprint()
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as scratch, Broker(data_dir=scratch) as broker:
        console.print(f"[bold]broker[/] at {broker.bootstrap}, its log in {scratch}")
        with Admin(broker) as admin:
            admin.create_topic(source.topic, partitions=PARTITIONS)
        console.print(f"[bold]topic[/] {source.topic} with {PARTITIONS} partitions")
        tail = threading.Thread(target=_show_some, args=(broker, source.topic, console), daemon=True)
        tail.start()
        _send(broker, source, sent, console)
        tail.join(10)
        console.print("[bold]load[/] on Spark (a quarter of a minute to start) ...")
        from .load import load
        from .report import report
        from .session import local_session

        with local_session("barnabas demo") as spark:
            loaded = load(broker.bootstrap, [source.topic], table, spark=spark)
            console.print(
                f"       {counted(loaded.rows, 'row')} in a Delta table of {counted(loaded.files, 'Parquet file')}"
            )
            again = load(broker.bootstrap, [source.topic], table, spark=spark)
            console.print(f"       a second load brings {again.rows} rows: nothing is loaded twice")
            report(table, page, topic=source.topic, spark=spark)
    arrived = _fingerprint(table)
    complete = arrived == sent and again.rows == 0
    verdict = "[green]exactly once[/]" if complete else "[red]NOT THE SAME LINES[/]"
    console.print(f"[bold]check[/] {arrived.lines} of {counted(sent.lines, 'line')} in the table, {verdict}")
    console.print(f"[bold]table[/] {table.resolve()}")
    console.print(f"[bold]page[/]  {page.resolve()}", soft_wrap=True)
    console.print(f"done in {time.monotonic() - started:.0f} s")
    return complete


def _make_room(out: Path) -> tuple[Path, Path]:
    """Return the table's folder and the page's file in `out`, with those of an earlier demo gone."""
    table, page = out / "table", out / "report.html"
    marker = out / ".barnabas-demo"
    if out.exists() and not marker.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty and not from a demo; choose another folder with --out")
    shutil.rmtree(table, ignore_errors=True)
    page.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return table, page


def _access_log(path: Path) -> LineSource:
    """Return the lines of an access log, keyed by client address, with the number of lines counted beforehand."""
    try:
        total = sum(1 for _ in _lines(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    if not total:
        raise ConfigError(f"{path} has no lines")
    messages = (Message(value=line, key=line.split(b" ", 1)[0]) for line in _lines(path))
    return LineSource("access-log", total, messages)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == b"\x1f\x8b"
        lines: Iterable[bytes] = io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file
        for line in lines:
            yield line.rstrip(b"\r\n")


def _metrics(seconds: float) -> LineSource:
    """This machine's operations metrics, read about ten times a second."""
    require("the demo without a log", ["psutil"], "demo")
    import psutil

    def read() -> dict[str, float]:
        disk, net, memory = psutil.disk_io_counters(), psutil.net_io_counters(), psutil.virtual_memory()
        values = {"cpu_percent": psutil.cpu_percent(), "memory_percent": memory.percent}
        values |= {f"cpu{n}_percent": v for n, v in enumerate(psutil.cpu_percent(percpu=True))}
        values["load_1m"] = psutil.getloadavg()[0]
        values["processes"] = float(len(psutil.pids()))
        if disk is not None:
            values |= {"disk_read_bytes": float(disk.read_bytes), "disk_write_bytes": float(disk.write_bytes)}
        if net is not None:
            values |= {"net_sent_bytes": float(net.bytes_sent), "net_received_bytes": float(net.bytes_recv)}
        return values

    def watch() -> Iterator[Message]:
        pace = threading.Event()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now_ms = time.time_ns() // 1_000_000
            for metric, value in read().items():
                line = json.dumps({"ts": now_ms, "metric": metric, "value": value}).encode()
                yield Message(value=line, key=metric.encode(), timestamp_ms=now_ms)
            pace.wait(0.1)

    return LineSource("machine-metrics", None, watch())


def _send(broker: Broker, source: LineSource, sent: Fingerprint, console: Console) -> None:
    columns = (TextColumn("[bold]send[/]"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar, Producer(broker, linger_ms=5) as producer:
        task = bar.add_task("send", total=source.total)
        while batch := list(islice(source.messages, LINES_AT_ONCE if source.total else 1)):
            for message in batch:
                sent.add(message.value or b"")
            producer.send_many(source.topic, batch)
            bar.update(task, completed=sent.lines)
        producer.flush()
        if producer.failed:
            raise BarnabasError(f"{producer.failed} of {sent.lines} lines were not acknowledged by the broker")


def _show_some(broker: Broker, topic: str, console: Console) -> None:
    """Print the first lines as they come in, as `barnabas consume` would."""
    with Consumer(broker) as consumer:
        consumer.assign(topic, position="earliest")
        for message in islice(consumer.messages(), LINES_SHOWN):
            where = Text(f"  {message.topic}-{message.partition} @{message.offset} ", style="dim")
            line = Text((message.value or b"").decode("utf-8", "replace"))
            console.print(where + line, no_wrap=True, overflow="ellipsis")


def _fingerprint(table: Path) -> Fingerprint:
    """Return the fingerprint of the table, read without Spark and without our own reader."""
    from deltalake import DeltaTable

    arrived = Fingerprint()
    for batch in DeltaTable(table).to_pyarrow_dataset().to_batches(columns=["value"]):
        for value in batch.column("value").to_pylist():
            arrived.add(value)
    return arrived
