"""Log lines in Python's logging: a logger for each package, one line each, no handlers of ours."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from support.log_lines import infos_of

from barnabas.app.cli.logging_setup import set_up
from barnabas.app.logs import log_report
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.errors import ConfigError
from barnabas.ports.report import Level, Line, debug, info, to_logger
from barnabas.testing.manual_broker import ManualBroker


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Takes what `set_up` shows; logging is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("barnabas", "barnabas.core", "barnabas.core.log", "elsewhere")
    levels = {name: logging.getLogger(name).level for name in names}
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def test_a_line_goes_to_the_logger_of_its_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "barnabas")
    log_report("plain")
    report = to_logger(log_report, "core.log")
    report("plain too")
    report(info("a start", topic="t"))
    to_logger(report, "core")(debug("inner loggers win"))
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        ("barnabas", "WARNING", "plain"),
        ("barnabas.core.log", "WARNING", "plain too"),
        ("barnabas.core.log", "INFO", "a start"),
        ("barnabas.core", "DEBUG", "inner loggers win"),
    ]


def test_no_line_of_a_client_begins_another(caplog: pytest.LogCaptureFixture) -> None:
    log_report("group a\nERROR all is lost\x1b[31m \u2028é%s")
    assert caplog.messages == ["group a\\nERROR all is lost\\x1b[31m \\u2028é%s"]


def test_a_library_installs_no_handlers() -> None:
    with_handlers = [
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if name.partition(".")[0] == "barnabas" and isinstance(logger, logging.Logger)
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers)
    ]
    assert with_handlers == []


def test_json_log_format_writes_one_object_per_line(stream: io.StringIO) -> None:
    set_up(["info"], "json", stream)
    log_report(Line("topic t was made", Level.INFO, "core.cluster", {"topic": "t", "message": "not this one"}))
    logging.getLogger("elsewhere").warning("a %s", "b")
    logging.getLogger("elsewhere").info("of no interest here")
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("barnabas").exception("failed")
    ours, theirs, failed = map(json.loads, stream.getvalue().splitlines())
    assert ours.pop("time").endswith("Z")
    assert ours == {"level": "INFO", "logger": "barnabas.core.cluster", "message": "topic t was made", "topic": "t"}
    assert (theirs["logger"], theirs["message"]) == ("elsewhere", "a b")
    assert "ValueError: no" in failed["exception"]


def test_log_levels_apply_per_logger_name(stream: io.StringIO) -> None:
    set_up(["warning", "barnabas.core.log=DEBUG", "elsewhere = error"], "text", stream)
    for logger in ("barnabas.core", "barnabas.core.log", "elsewhere"):
        for level in (logging.DEBUG, logging.WARNING):
            logging.getLogger(logger).log(level, "here")
    shown = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert shown == [
        "WARNING barnabas.core: here",
        "DEBUG barnabas.core.log: here",
        "WARNING barnabas.core.log: here",
    ]


@pytest.mark.parametrize("level", ["loud", "barnabas.core=", "=info", "barnabas.core=loud"])
def test_levels_that_are_none(level: str) -> None:
    with pytest.raises(ConfigError, match=r"logging\.level=.*expected one of debug, info"):
        set_up([level], "text")


def test_broker_logs_lifecycle_and_config_changes_at_info() -> None:
    broker = ManualBroker()
    broker.create("t")
    for resource, name in ((ResourceKind.TOPIC, "t"), (ResourceKind.BROKER, "")):
        where = ConfigResource(kind=resource, name=name)
        key = "retention.ms" if name else "log.retention.ms"
        change = ConfigAlteration(resource=where, name=key, value="777")
        outcomes = broker.ask(IncrementalAlterConfigs(resources=[where], alterations=[change])).resources
        assert not outcomes[0].error
    broker.stop()
    observed = infos_of(broker.lines)
    assert observed[0] == "broker 1 starts: logs in memory, coordination memory"
    assert observed[1].startswith("finalized levels of features: group.version from 0 to 1")
    assert observed[2].startswith("broker 1 of cluster ")
    assert observed[2].endswith("is ready at kafka://broker:9092 after 0 ms: 0 topics, 0 partitions here")
    assert observed[3:] == [
        "created topic t: 1 partition, replication factor 1",
        "configuration of topic t: retention.ms=777",
        "configuration of all brokers: log.retention.ms=777",
        "broker 1 stops",
        "broker 1 has stopped, in 0 ms",
    ]
    loggers = [line.logger for line in broker.lines if isinstance(line, Line)]
    assert set(loggers) == {"app.broker", "core.cluster"}
