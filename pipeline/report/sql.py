"""The queries under the numbers and charts of a report: what `barnabas query --table DIR` runs to get them again."""

import re
from collections.abc import Mapping, Sequence

from attrs import frozen

_SIMPLE = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
        default deferrable desc describe distinct do else end except false fetch for foreign from grant group
        having in initially intersect into is lambda lateral leading limit not null offset on only or order pivot
        placing primary qualify references returning select show some summarize symmetric table then to trailing
        true union unique unpivot using variadic when where window with
        """,
    )
)
_BUCKETS = {60: "minute", 3600: "hour", 86_400: "day"}


def identifier(name: str) -> str:
    """Return a name as SQL takes it: in double quotes where it needs them."""
    simple = _SIMPLE.fullmatch(name) is not None and name not in _RESERVED
    return name if simple else '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL takes it."""
    return "'" + text.replace("'", "''") + "'"


def field_expression(path: str, taken: Sequence[str], whole: str = "json") -> str:
    """Return a field of values: a column, or a part of the column of the `whole` where its name is that of another
    column.
    """
    names = path.split(".")
    text = ".".join(map(identifier, names))
    return f"{whole}.{text}" if names[0].lower() in {*map(str.lower, taken), "json"} or len(names) > 1 else text


def event_expression(field: str, per_second: float) -> str:
    """Return the time in a field of text (`per_second` 0), or in a number with this many units per second."""
    if not per_second:
        return f"try_cast({field} as timestamptz)"
    return f"to_timestamp({field}::double / {per_second:.0f})" if per_second > 1 else f"to_timestamp({field}::double)"


def bucket_expression(moment: str, bucket_s: int) -> str:
    """Return the start of the bucket of time in which a moment is, aligned as charts are."""
    if bucket_s in _BUCKETS:
        return f"date_trunc('{_BUCKETS[bucket_s]}', {moment})"
    return f"to_timestamp(epoch_ms({moment}) // {bucket_s * 1000} * {bucket_s})"


@frozen(kw_only=True)
class RecordQueries:
    """The queries of the records of any topic. `source` is its name in a query, `size` the bytes of a value."""

    source: str
    size: str
    moment: str
    """The time of a row: that of the record, or an event time."""
    bucket_s: int
    partition: str
    """The columns that name a partition."""
    whole: str
    """The column with all fields of a value: `json`, or `value` where values are typed."""
    fields: Mapping[str, str]
    """Fields of values: their paths, and what they are in SQL."""

    def all(self) -> Mapping[str, str]:
        source, size = self.source, self.size
        counted = f"count(*) as rows, sum({size}) as bytes"
        per_bucket = f"select {bucket_expression(self.moment, self.bucket_s)} as start, {counted}\nfrom {source}"
        shares = "".join(f",\n  count({sql}) as {identifier(path)}" for path, sql in self.fields.items())
        return {
            "fields": f"select count({self.whole}) as objects{shares}\nfrom {source}" if shares else "",
            "totals": f"select {counted},\n  quantile_disc({size}, 0.5) as median, max({size}) as largest,\n"
            f"  count(distinct key) as keys, count(*) - count(value) as tombstones\nfrom {source}",
            "over time": f"{per_bucket}\nwhere {self.moment} is not null\ngroup by start order by start",
            "keys": f"select key, count(*) as rows\nfrom {source}\nwhere key is not null\n"
            "group by key order by rows desc, key limit 15",
            "partitions": f"select {self.partition}, count(*) as rows\nfrom {source}\ngroup by all order by all",
            "newest": f'select partition, "offset", timestamp, key, value\nfrom {source}\n'
            'order by timestamp desc, "offset" desc limit 5',
        }


def record_queries(
    source: str,
    *,
    text: bool,
    moment: str = "timestamp",
    bucket_s: int,
    classic: bool = False,
    whole: str = "json",
    fields: Mapping[str, str] | None = None,
) -> Mapping[str, str]:
    """Return the queries by what they are for. `text`: values are UTF-8, as `barnabas query` sees them then."""
    of_text, of_others = "strlen(value)", "strlen(to_json(value))" if whole == "value" else "octet_length(value)"
    return RecordQueries(
        source=source,
        size=of_text if text and whole == "json" else of_others,
        whole=whole,
        moment=moment,
        bucket_s=bucket_s,
        partition="broker, partition" if classic else "partition",
        fields=fields or {},
    ).all()


def metric_queries(source: str, metrics: Sequence[str]) -> Mapping[str, str]:
    """Return the queries of lines with `ts`, `metric` and `value`: "totals", and one by the name of each metric."""
    found = {
        "totals": f"select json.metric as metric, count(*) as lines, avg(json.value) as mean,\n"
        f"  min(json.value) as low, max(json.value) as high\nfrom {source}\ngroup by all order by all"
    }
    return found | {
        name: f"select json.ts as ts, json.value as value\nfrom {source}\n"
        f"where json.metric = {literal(name)}\norder by ts"
        for name in metrics
    }


# DuckDB's regular expressions know no possessive quantifiers, and need none: they never go back.
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LINE = rf"^(\S+) \S+ \S+ \[([^\]]+)\] {_QUOTED} (\d{{3}}) (\d+|-)(?: {_QUOTED} {_QUOTED}.*)?\s*$"


def access_queries(source: str, bucket: str, crawler: str, asset: str) -> Mapping[str, str]:
    """Return the queries of an access log. Each begins with the same reading of the lines."""
    requests = f"""with lines as (
  select regexp_extract(value, {literal(_LINE)},
    ['address', 'time', 'request', 'status', 'bytes', 'referrer', 'agent']) as l
  from {source}
), requests as (
  select l.address as address, try_strptime(l.time, '%d/%b/%Y:%H:%M:%S %z') as time,
    split_part(l.request, ' ', 1) as method, regexp_replace(split_part(l.request, ' ', 2), '[?#].*', '') as path,
    l.status::int as status, coalesce(try_cast(l.bytes as bigint), 0) as bytes,
    nullif(nullif(l.referrer, '-'), '') as referrer, nullif(nullif(l.agent, '-'), '') as agent
  from lines where l.time <> ''
), marked as (
  select *, coalesce(regexp_matches(agent, {literal(crawler)}), false)
    or address in (select address from requests where path = '/robots.txt') as crawler
  from requests where time is not null
), seen as (
  select *, method = 'GET' and (status between 200 and 299 or status = 304) and not crawler
    and not regexp_matches(path, {literal(asset)}) as view
  from marked
)
"""
    site = "coalesce(nullif(regexp_extract(referrer, '^[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]+)', 1), ''), referrer)"
    start = f"date_trunc('{bucket}', time)" if bucket in _BUCKETS.values() else "date_trunc('hour', time)"

    def top(name: str, condition: str) -> str:
        return (
            f"{requests}select {name} as name, count(*) as requests, sum(bytes) as bytes\n"
            f"from seen where {condition}\ngroup by name order by requests desc, name limit 15"
        )

    return {
        "totals": f"{requests}select (select count(*) from {source}) as lines, count(*) as parsed,\n"
        "  count(*) filter (view) as views, count(distinct address) as addresses, sum(bytes) as bytes,\n"
        "  count(*) filter (crawler) as crawler_requests, count(*) filter (status >= 400) as failed\nfrom seen",
        "views": f"{requests}select {start} as start, count(*) filter (view) as views,\n"
        "  count(*) filter (crawler) as crawlers\nfrom seen group by start order by start",
        "traffic": f"{requests}select {start} as start, sum(bytes) as bytes\nfrom seen group by start order by start",
        "statuses": f"{requests}select status // 100 || 'xx' as class, count(*) as requests\n"
        "from seen group by class order by class",
        "page": top("path", "view"),
        "referrer": top(site, "referrer is not null"),
        "crawler": top("coalesce(agent, 'no agent, ' || address)", "crawler"),
        "failed": top("status || ' ' || path", "status >= 400"),
    }
