"""Facts of the real data sets, found by plain Python that shares nothing with the jobs under test."""

import csv
import gzip
import io
import json
import re
import tarfile
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r'^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d+) (\S+) "([^"]*)" "([^"]*)"')


class Request(NamedTuple):
    address: str
    time: datetime
    method: str
    path: str
    status: int
    referrer: str
    agent: str

    @property
    def hour(self) -> datetime:
        return self.time.replace(minute=0, second=0)


def read_requests(folder: Path) -> Iterator[Request]:
    """Yield the requests of the access log, in the order of the file; the path is without query and fragment."""
    with gzip.open(folder / "apache_access_10k.log.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if found := _LINE.match(line):
                address, time, method, target, status, _, referrer, agent = found.groups()
                moment = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC).replace(tzinfo=None)
                yield Request(address, moment, method, re.split("[?#]", target)[0], int(status), referrer, agent)


def read_order_lines(folder: Path) -> Iterator[dict[str, str]]:
    with gzip.open(folder / "online_retail.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def read_series(folder: Path, name: str) -> list[tuple[datetime, float]]:
    """Return a series of NAB, in the order of the file."""
    with tarfile.open(folder / "nab_real_metrics.tar.gz") as archive:
        file = archive.extractfile(f"./data/{name}")
        assert file is not None
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
        return [(datetime.fromisoformat(row["timestamp"]), float(row["value"])) for row in rows]


def read_network(folder: Path, kinds: Collection[str]) -> Iterator[dict[str, str]]:
    """Yield the events of these kinds that have a time."""
    with gzip.open(folder / "zeek_events.ndjson.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["_path"] in kinds and not event["_write_ts"].startswith("1970"):
                yield event
