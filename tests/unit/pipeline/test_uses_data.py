"""The data of the examples: what is there is found, what is not is named with its origin."""

import gzip
import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from support.real_data import read_order_lines
from uses import USES, ads
from uses.data import ACCESS_LOG, ORDERS, SERIES, access_messages, anomaly_windows, order_messages
from uses.monitoring import broker_messages
from uses.stage import own_broker

from barnabas import Producer
from barnabas.ports.errors import ConfigError


def test_a_file_is_found_packed_or_not_and_missed_with_its_origin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no apache_access_10k.log.gz in .*elastic/examples.*--data DIR"):
        ACCESS_LOG.find(tmp_path)
    plain = tmp_path / "apache_access_10k.log"
    plain.write_text("a line\n")
    assert ACCESS_LOG.find(tmp_path) == plain


def test_each_example_has_a_name_of_its_own_and_says_what_it_needs() -> None:
    assert len(USES) == 7
    for name, use in USES.items():
        assert use.name == name == name.lower()
        assert use.files


def test_lines_without_a_time_take_that_of_the_line_before(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1"\nwhat\n5.6.7.8 - - [no time] -\n')
    messages = list(access_messages(log))
    assert [message.key for message in messages] == [b"1.2.3.4", b"what", b"5.6.7.8"]
    assert {message.timestamp_ms for message in messages} == {1431857103000}


def test_click_after_the_log_is_later_than_any_that_could_be_joined(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1"\n5.6.7.8 - - [17/May/2015:09:05:03 +0000] -\n'
    )
    *messages, last = ads.and_a_later_click(access_messages(log))
    assert len(messages) == 2
    assert last.timestamp_ms == 1431857103000 + ads.LATER_MS
    assert last.value is not None
    assert last.value.startswith(b'- - - [17/May/2015:12:05:03 +0000] "GET /later HTTP/1.1" 200 ')


@pytest.mark.slow
@pytest.mark.data
def test_orders_hold_all_their_lines(data_dir: Path, tmp_path: Path) -> None:
    name = "online_retail.csv.gz"
    with gzip.open(data_dir / name) as lines, gzip.open(tmp_path / name, "wb", compresslevel=1) as few:
        few.writelines(islice(lines, 60_000))
    expected: Counter[str] = Counter()
    quantity = 0
    for row in read_order_lines(tmp_path):
        expected[row["InvoiceNo"]] += 1
        quantity += int(row["Quantity"])
    orders = [json.loads(message.value or b"") for message in order_messages(ORDERS.find(tmp_path))]
    found: Counter[str] = Counter()
    for order in orders:
        found[order["invoice"]] += len(order["lines"])
    assert found == expected
    assert sum(line["quantity"] for order in orders for line in order["lines"]) == quantity


@pytest.mark.data
def test_labelled_windows_are_those_of_real_series(data_dir: Path) -> None:
    windows = anomaly_windows(SERIES.find(data_dir))
    assert len(windows) == 47
    assert sum(map(len, windows.values())) == 110


def test_own_broker_of_run_publishes_its_metrics(tmp_path: Path) -> None:
    with own_broker(None, tmp_path / "log") as (address, metrics):
        assert metrics is not None
        with Producer(address) as producer:
            producer.send_many("topic", [b"a", b"b", b"c"])
        observed = {message.key: json.loads(message.value or b"") for message in broker_messages(metrics)}
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert observed[name.encode()] == {"metric": name, "value": 3.0}
    with own_broker("127.0.0.1:1", tmp_path) as given:
        assert given == ("127.0.0.1:1", None)
