"""Security: crawlers and scanners in a web log, brute force in a network's authentication events, limits per address.

Each alert is a window in which a source was above a limit; a source is reported once an hour for each rule, on a topic.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.pipeline.report.panels import BarList, Cards, Heading, Panel, SideBySide, TablePanel
from barnabas.pipeline.streams import deduplicated, json_fields, over_limit, rate_limited, top_k

from .data import ACCESS_LOG, NETWORK, access_messages, network_messages
from .stage import Stage, Use
from .web import requests

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS = ("rdp", "ntlm", "ssh", "ftp")
_FIELDS = "_path STRING, `id.orig_h` STRING, `id.resp_h` STRING, success BOOLEAN, auth_success BOOLEAN, reply_code INT"
REQUESTS_PER_HOUR = 60
NOT_FOUND_PER_HOUR = 5
LOGINS_PER_MINUTE = 20
FAILURES_PER_MINUTE = 5


def logins(messages: "DataFrame") -> "DataFrame":
    """Select Zeek's events of authentication: `timestamp`, `service`, `source`, `target`, `failed`: refused, or not
    known to have succeeded where the protocol shows it (an RDP session is encrypted, so it does not).
    """
    from pyspark.sql import functions as f

    found = json_fields(messages, _FIELDS, "timestamp")
    failed = (
        f.when(f.col("_path") == "ntlm", ~f.coalesce("success", f.lit(False)))
        .when(f.col("_path") == "ssh", ~f.coalesce("auth_success", f.lit(False)))
        .when(f.col("_path") == "ftp", f.col("reply_code") >= 400)
    )
    return found.select(
        "timestamp",
        f.col("_path").alias("service"),
        f.col("`id.orig_h`").alias("source"),
        f.col("`id.resp_h`").alias("target"),
        f.coalesce(failed, f.lit(False)).alias("failed"),
    )


def web_alerts(found: "DataFrame") -> "DataFrame":
    """Return the alerts of requests: sources with many in an hour, and with many for pages that do not exist."""
    named = found.withColumnRenamed("address", "source")
    return _alerts(named, "many requests", REQUESTS_PER_HOUR, "1 hour").union(
        _alerts(named.where("status = 404"), "looking for holes", NOT_FOUND_PER_HOUR, "1 hour")
    )


def login_alerts(found: "DataFrame") -> "DataFrame":
    """Return the alerts of logins: sources with many in a minute at one target, and with many that failed."""
    timed = found.withColumnRenamed("timestamp", "time")
    return _alerts(timed, "many logins", LOGINS_PER_MINUTE, "1 minute", "target", "service").union(
        _alerts(timed.where("failed"), "failed logins", FAILURES_PER_MINUTE, "1 minute", "target", "service")
    )


def _alerts(rows: "DataFrame", rule: str, limit: int, windowDuration: str, *by: str) -> "DataFrame":
    from pyspark.sql import functions as f

    above = over_limit(
        rows,
        "source",
        *by,
        limit=limit,
        windowDuration=windowDuration,
        timeColumn="time",
        delayThreshold=windowDuration,
    )
    what: Column = f.concat_ws(" ", *by) if by else f.lit("")
    return above.select(f.lit(rule).alias("rule"), "source", what.alias("what"), "window", "count")


def once_an_hour(alerts: "DataFrame") -> "DataFrame":
    """Return the first alert of each rule, source and what it was about in each hour; streams forget what is behind the
    watermark."""
    from pyspark.sql import functions as f

    window = f.struct(f.col("window.start").alias("start"), f.col("window.end").alias("end"))  # without event time
    hours = alerts.withColumn("hour", f.window("window", "1 hour")).withColumn("window", window)
    return deduplicated(hours, "rule", "source", "what", "hour").drop("hour")


def crawlers(found: "DataFrame") -> "DataFrame":
    """Find the addresses that are programs, by their user agent or by a request for robots.txt: `address`, `agent`,
    `count`, `honest` (the user agent says so).
    """
    from pyspark.sql import functions as f

    asked = f.max((f.col("path") == "/robots.txt").cast("int"))
    grouped = found.groupBy("address").agg(
        f.max("agent").alias("agent"),
        f.count("*").alias("count"),
        f.max("crawler").alias("honest"),
        asked.alias("asked"),
    )
    return grouped.where("honest OR asked = 1").drop("asked")


def _web(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    lines = stage.fill("access-log", access_messages(ACCESS_LOG.find(stage.data)))
    alerts_sent = stage.send(once_an_hour(web_alerts(requests(stage.stream("access-log")))), "web-alerts", "source")
    found = requests(stage.read("access-log")).persist()
    programs = crawlers(found).persist()
    counted = programs.agg(f.count("*"), f.sum("count"), f.count_if(~f.col("honest"))).first()
    agents = programs.groupBy("agent").agg(f.sum("count").alias("count")).transform(top_k, k=12).collect()
    limited = rate_limited(found, "address", limit=REQUESTS_PER_HOUR, windowDuration="1 hour", timeColumn="time")
    refused = limited.where("NOT allowed").agg(f.count("*"), f.count_distinct("address")).first()
    assert counted is not None
    assert refused is not None
    per_source = (
        web_alerts(found).groupBy("rule", "source").agg(f.count("*").alias("hours"), f.max("count").alias("most"))
    )
    worst = [
        [r.rule, r.source, r.hours, r.most] for r in per_source.orderBy(f.desc("most"), "source").limit(12).collect()
    ]
    share = f"{100 * counted[1] / lines:.0f} %"
    figures = [
        (f"{counted[0]:,}", "crawlers"),
        (share, "of the requests are theirs"),
        (f"{counted[2]:,}", "asked for robots.txt, but do not say what they are"),
        (f"{refused[0]:,}", f"requests above {REQUESTS_PER_HOUR} an hour, of {refused[1]} addresses"),
    ]
    bars = BarList("Crawlers, by requests", [(row.agent or "(no agent)", row["count"]) for row in agents])
    limits = TablePanel("Above a limit", ["rule", "source", "hours", "most an hour"], worst)
    return [Heading("A web server", f"{lines:,} requests"), Cards(figures), SideBySide([bars, limits])], [
        f"{counted[0]} crawlers make {share} of {lines:,} requests; {counted[2]} asked for robots.txt without saying "
        "what they are",
        f"a limit of {REQUESTS_PER_HOUR} requests an hour would refuse {refused[0]} of {refused[1]} addresses; "
        f"{alerts_sent} alerts in {stage.topic('web-alerts')}",
    ]


def _network(stage: Stage) -> tuple[list[Panel], list[str]]:
    from pyspark.sql import functions as f

    events = stage.fill("logins", network_messages(NETWORK.find(stage.data), KINDS))
    alerts_sent = stage.send(once_an_hour(login_alerts(logins(stage.stream("logins")))), "login-alerts", "source")
    attempts = logins(stage.read("logins")).persist()
    sums = [f.count("*").alias("minutes"), f.sum("count").alias("logins"), f.max("count").alias("most")]
    attacks = login_alerts(attempts).groupBy("rule", "source", "what").agg(*sums)
    worst = attacks.orderBy(f.desc("logins"), "what").limit(20).collect()
    counted = attempts.groupBy("source").agg(f.count("*").alias("count"), f.count_distinct("target").alias("targets"))
    sources = counted.transform(top_k, k=8).collect()
    note = (
        f"many logins: more than {LOGINS_PER_MINUTE} a minute at one target. failed logins: more than "
        f"{FAILURES_PER_MINUTE}. RDP is encrypted, so failed logins are not visible."
    )
    rows = [[r.rule, r.source, r.what, r.minutes, r.logins, r.most] for r in worst]
    return [
        Heading("A network under attack", f"{events:,} logins in twenty minutes of a competition"),
        TablePanel("Brute force", ["rule", "source", "at", "minutes", "logins", "most a minute"], rows, note=note),
        BarList("Logins by source", [(f"{r.source} at {r.targets} targets", r["count"]) for r in sources]),
    ], [
        f"brute force: {sources[0].source} made {sources[0]['count']:,} of {events:,} logins at {sources[0].targets} "
        f"targets; worst {worst[0].what}: {worst[0].logins} logins, up to {worst[0].most} a minute; "
        f"{alerts_sent} alerts in {stage.topic('login-alerts')}"
    ]


def play(stage: Stage) -> Sequence[str]:
    web, web_lines = _web(stage)
    network, network_lines = _network(stage)
    stage.show("Security", "crawlers, scanners and brute force", [*web, *network])
    return [*web_lines, *network_lines]


USE = Use(
    name="security",
    title="security: crawlers, scanners, brute force, rate limits",
    files=[ACCESS_LOG, NETWORK],
    play=play,
)
