"""docs/alerts.yml, played by Prometheus' promtool: each rule fires when it should, alone, and is quiet otherwise."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = "docs/alerts.yml"
BROKER = '{job="barnabas", instance="b1"}'
OTHER = '{job="barnabas", instance="b2"}'
HOST = '{instance="b1", mountpoint="/var/lib/barnabas"}'
GROUP = '{job="barnabas", consumergroup="billing", topic="orders"}'
BUCKET = 'kafka_network_requestmetrics_totaltimems_bucket{job="barnabas", instance="b1", request="Produce", le="%s"}'
GB = 1_000_000_000

CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "BarnabasBrokerDown": ({f"up{BROKER}": "0x90", f"up{OTHER}": "1x90"}, {f"up{BROKER}": "1x85 0 1 1 1 1"}),
    "BarnabasNoController": (
        {f"kafka_controller_kafkacontroller_activecontrollercount{each}": "0x90" for each in (BROKER, OTHER)},
        {
            f"kafka_controller_kafkacontroller_activecontrollercount{BROKER}": "1x90",
            f"kafka_controller_kafkacontroller_activecontrollercount{OTHER}": "0x90",
        },
    ),
    "BarnabasOfflinePartitions": (
        {f"kafka_controller_kafkacontroller_offlinepartitionscount{BROKER}": "3x90"},
        {f"kafka_controller_kafkacontroller_offlinepartitionscount{BROKER}": "0x90"},
    ),
    "BarnabasUnderMinIsr": (
        {f"kafka_server_replicamanager_underminisrpartitioncount{OTHER}": "1x90"},
        {f"kafka_server_replicamanager_underminisrpartitioncount{OTHER}": "0x90"},
    ),
    "BarnabasUnderReplicatedPartitions": (
        {f"kafka_server_replicamanager_underreplicatedpartitions{OTHER}": "1x90"},
        {f"kafka_server_replicamanager_underreplicatedpartitions{OTHER}": "0x82 5x7"},
    ),
    "BarnabasBrokerRestarts": (
        {f"process_start_time_seconds{BROKER}": "1x40 2x20 3x20 4x10"},
        {f"process_start_time_seconds{BROKER}": "1x40 2x50"},
    ),
    "BarnabasOfflineReplicas": (
        {f"kafka_server_replicamanager_offlinereplicacount{BROKER}": "2x90"},
        {f"kafka_server_replicamanager_offlinereplicacount{BROKER}": "0x90"},
    ),
    "BarnabasDamagedSegments": (
        {f"kafka_log_logscrubber_failed_repairs{BROKER}": "0x60 1x30"},
        {f"kafka_log_logscrubber_failed_repairs{BROKER}": "1x90"},
    ),
    "BarnabasUncleanablePartitions": (
        {f"kafka_log_logcleanermanager_uncleanable_partitions_count{BROKER}": "1x90"},
        {f"kafka_log_logcleanermanager_uncleanable_partitions_count{BROKER}": "0x90"},
    ),
    "BarnabasSlowProduce": (
        {BUCKET % "100": "0x90", BUCKET % "1000": "0x90", BUCKET % "2500": "0+60x90", BUCKET % "+Inf": "0+60x90"},
        {BUCKET % "100": "0+60x90", BUCKET % "1000": "0+60x90", BUCKET % "+Inf": "0+60x90"},
    ),
    "BarnabasProcessorFull": (
        {f"process_cpu_seconds_total{BROKER}": "0+59x90"},
        {f"process_cpu_seconds_total{BROKER}": "0+30x90"},
    ),
    "BarnabasFileDescriptors": (
        {f"process_open_fds{BROKER}": "90x90", f"process_max_fds{BROKER}": "100x90"},
        {f"process_open_fds{BROKER}": "70x90", f"process_max_fds{BROKER}": "100x90"},
    ),
    "BarnabasFailedLogins": (
        {f"kafka_server_socketservermetrics_failed_authentication_total{BROKER}": "0+120x90"},
        {f"kafka_server_socketservermetrics_failed_authentication_total{BROKER}": "0+12x90"},
    ),
    "BarnabasGroupFallsBehind": (
        {f"kafka_consumergroup_lag_sum{GROUP}": "20000+100x90"},
        {f"kafka_consumergroup_lag_sum{GROUP}": "90000-500x90"},
    ),
    "BarnabasThrottledClients": (
        {'kafka_server_produce_throttle_time{job="barnabas", instance="b1", user="u", client_id=""}': "40x90"},
        {'kafka_server_produce_throttle_time{job="barnabas", instance="b1", user="u", client_id=""}': "0x90"},
    ),
    "BarnabasDiskFillsUp": (
        {
            f"node_filesystem_avail_bytes{HOST}": f"{50 * GB}-{GB // 10}x90",
            f"node_filesystem_size_bytes{HOST}": f"{100 * GB}x90",
        },
        {f"node_filesystem_avail_bytes{HOST}": f"{50 * GB}x90", f"node_filesystem_size_bytes{HOST}": f"{100 * GB}x90"},
    ),
}
"""Each rule → series with which it fires, and series with which it does not; a sample a minute, looked at after 90."""


@pytest.fixture(scope="module")
def rules(checkout: Path) -> dict[str, dict[str, Any]]:
    read = yaml.safe_load((checkout / RULES).read_text(encoding="utf-8"))
    return {rule["alert"]: rule for group in read["groups"] for rule in group["rules"]}


def promtool(*words: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not here: it is in Debian's package prometheus")
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def quiet() -> list[dict[str, str]]:
    """Return the series with which no alert fires, as few sets as can be: a set has each series once."""
    sets: list[dict[str, str]] = []
    for _, series in CASES.values():
        free = next((each for each in sets if not each.keys() & series.keys()), None)
        if free is None:
            sets.append(dict(series))
        else:
            free.update(series)
    return sets


def test_every_alert_has_a_case_and_says_what_to_do(rules: dict[str, dict[str, Any]]) -> None:
    assert rules.keys() == CASES.keys()
    for rule in rules.values():
        assert rule["annotations"].keys() == {"summary", "what_to_do"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_rules_are_well_formed_for_prometheus(checkout: Path) -> None:
    promtool("check", "rules", checkout / RULES)


@pytest.mark.slow
def test_each_alert_fires_alone_on_its_fault_and_is_quiet_without_it(checkout: Path, tmp_path: Path) -> None:
    asked = 'count by (alertname) (ALERTS{alertstate="firing"})'
    tests = []
    for series, firing in [*((fault, [name]) for name, (fault, _) in CASES.items()), *((each, []) for each in quiet())]:
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": each, "values": values} for each, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": asked,
                        "eval_time": "90m",
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing],
                    }
                ],
            }
        )
    played = tmp_path / "alerts_test.yml"
    played.write_text(json.dumps({"rule_files": [str(checkout / RULES)], "tests": tests}))
    promtool("test", "rules", played)


def test_alert_names_the_group_its_topic_and_its_lag(
    checkout: Path, tmp_path: Path, rules: dict[str, dict[str, Any]]
) -> None:
    name = "BarnabasGroupFallsBehind"
    rule = rules[name]
    labels = {"severity": "warning", "job": "barnabas", "consumergroup": "billing", "topic": "orders"}
    annotations = {
        "summary": "Group billing lags by 29000 messages of orders, and falls further behind",
        "what_to_do": "barnabas groups describe billing shows members and lag by partition.",
    }
    assert rule["annotations"].keys() == annotations.keys()
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in CASES[name][0].items()],
        "alert_rule_test": [
            {
                "eval_time": "90m",
                "alertname": name,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": annotations}],
            }
        ],
    }
    played = tmp_path / "alerts_test.yml"
    played.write_text(json.dumps({"rule_files": [str(checkout / RULES)], "tests": [test]}))
    promtool("test", "rules", played)


def test_commands_and_pages_that_alerts_name_exist(checkout: Path, rules: dict[str, dict[str, Any]]) -> None:
    observed = " ".join(rule["annotations"]["what_to_do"] for rule in rules.values())
    assert all((checkout / page).is_file() for page in re.findall(r"docs/\S+\.md", observed))
