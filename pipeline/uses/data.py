"""The real data that the examples play: where each file comes from, and its records as messages with their own time."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

from ... import Message
from ...ports.errors import ConfigError


@frozen
class RealData:
    """A file that an example needs, by the name under which it is looked for, and where it can be had."""

    name: str
    origin: str

    def find(self, folder: Path) -> Path:
        """The file, packed or not. Raises `ConfigError` that says where it comes from."""
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


def text_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, unpacked if it is packed, without their ends."""
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
    """Orders of a shop, one JSON object with all its lines each, keyed by customer: the lines of a file with one line
    per item, of which those of one invoice stand together. Times are taken as UTC."""
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


def _milliseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
