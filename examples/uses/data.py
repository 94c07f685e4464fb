"""The real data that the examples play: where each file comes from, and its records as messages with their own time."""

import csv
import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from attrs import frozen

from barnabas import ConfigError, Message


@frozen
class RealData:
    """A file that an example needs, by the name under which it is looked for, and where it can be had."""

    name: str
    origin: str

    def find(self, folder: Path) -> Path:
        """Return the file, packed or not. Raises `ConfigError` that says where it comes from."""
        for name in (self.name, self.name.removesuffix(".gz")):
            if (folder / name).is_file():
                return folder / name
        raise ConfigError(f"no {self.name} in {folder}; it is {self.origin}; give its folder by --data DIR")


ACCESS_LOG = RealData(
    "apache_access_10k.log.gz",
    "'Common Data Formats/apache_logs/apache_logs' of github.com/elastic/examples, with gzip or without",
)
ORDERS = RealData(
    "online_retail.csv.gz",
    "data/retail-data/by-day/*.csv of github.com/databricks/Spark-The-Definitive-Guide, joined under one header",
)
NETWORK = RealData(
    "zeek_events.ndjson.gz",
    "zeek-json/*.json.gz of github.com/brimdata/zed-sample-data, joined in the order of _write_ts",
)
SERIES = RealData(
    "nab_real_metrics.tar.gz", "data/real* and labels/combined_windows.json of github.com/numenta/NAB, as a tar"
)
SERVER_STATUS = RealData(
    "nginxplus_status.ndjson.gz",
    "'Common Data Formats/nginx_json_plus_logs/nginxplus_json_logs' of github.com/elastic/examples, gzip or not",
)


def text_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked if it is packed, without their ends."""
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == b"\x1f\x8b"
        lines: Iterable[bytes] = io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file
        for line in lines:
            yield line.rstrip(b"\r\n")


def access_messages(path: Path) -> Iterator[Message]:
    """Lines of an access log, keyed by client address, at the time of the line (of the line before, if it has none)."""
    now_ms = None
    for line in text_lines(path):
        text = line.partition(b"[")[2].partition(b"]")[0].decode("ascii", "replace")
        with suppress(ValueError):
            now_ms = int(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp() * 1000)
        yield Message(value=line, key=line.split(b" ", 1)[0], timestamp_ms=now_ms)


def order_messages(path: Path) -> Iterator[Message]:
    """Orders of a shop, one JSON object with all its lines each, keyed by customer, from a file with one line per item.
    Lines of one invoice that stand apart (one of 25,900 has some) are two messages. Times are taken as UTC."""
    order: dict[str, Any] = {}
    rows = csv.DictReader(line.decode() + "\n" for line in text_lines(path))
    for row in rows:
        if row["InvoiceNo"] != order.get("invoice"):
            if order:
                yield _order(order)
            customer = row["CustomerID"].removesuffix(".0")
            order = {"invoice": row["InvoiceNo"], "time": row["InvoiceDate"], "customer": customer}
            order |= {"country": row["Country"], "lines": []}
        line = {"item": row["StockCode"], "description": row["Description"]}
        order["lines"].append({**line, "quantity": int(row["Quantity"]), "price": float(row["UnitPrice"])})
    if order:
        yield _order(order)


def _order(order: dict[str, Any]) -> Message:
    time_ms = _milliseconds(order["time"])
    return Message(value=json.dumps(order).encode(), key=order["customer"].encode() or None, timestamp_ms=time_ms)


def network_messages(path: Path, kinds: Sequence[str]) -> Iterator[Message]:
    """Zeek's events of these kinds (`rdp`, `ntlm`, ...), keyed by who began, at the time when they were written."""
    wanted = tuple(b'{"_path":"%s",' % kind.encode() for kind in kinds)
    for line in text_lines(path):
        if line.startswith(wanted):
            event = json.loads(line)
            if not event["_write_ts"].startswith("1970"):
                key = event.get("id.orig_h", "").encode()
                yield Message(value=line, key=key, timestamp_ms=_milliseconds(event["_write_ts"]))


def status_messages(path: Path) -> Iterator[Message]:
    """Snapshots of nginx's counters, keyed by server."""
    for line in text_lines(path):
        status = json.loads(line)
        yield Message(value=line, key=status["address"].encode(), timestamp_ms=status["timestamp"])


def series_messages(path: Path) -> Iterator[Message]:
    """Yield the values of all series of NAB as JSON objects with `series` and `value`, keyed by series."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".csv"):
                name = member.name.removeprefix("./").removeprefix("data/")
                for row in csv.DictReader(io.TextIOWrapper(_opened(archive, member.name), "utf-8")):
                    value = b'{"series": "%s", "value": %s}' % (name.encode(), row["value"].encode())
                    yield Message(value=value, key=name.encode(), timestamp_ms=_milliseconds(row["timestamp"]))


def anomaly_windows(path: Path) -> dict[str, list[tuple[datetime, datetime]]]:
    """Return the labelled windows of time for each real series of NAB, without time zone (UTC)."""
    with tarfile.open(path) as archive:
        name = next(each for each in archive.getnames() if each.endswith("labels/combined_windows.json"))
        found = json.load(_opened(archive, name))
    return {
        series: [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in windows]
        for series, windows in found.items()
        if series.startswith("real")
    }


def _opened(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)
    if file is None:
        raise ConfigError(f"{name} in {archive.name!r} is not a file")
    return file


def _milliseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
