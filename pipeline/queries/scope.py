"""The scope of a query: the data that it may read, and its memory."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from ...schemas.access import RegistryAccess
from .bounds import Window

QUERY_PACKAGES = ("duckdb", "numpy", "pyarrow")


def no_progress(_done: int, _total: int, _what: str) -> None:
    return None


def no_report(_text: str) -> None:
    return None


@frozen(kw_only=True)
class Scope:
    """The data that a query may read, and its settings.

    bootstrap: a broker of the cluster whose topics it may name; "" for none.
    tables:    folders that `load` has filled, by the names of schemas: a topic in it is NAME.TOPIC.
    client:    settings of the client by their dotted names.
    registry:  the URL of a schema registry: values of topics that it has schemas of are decoded.
    bucket:    the URL of the cluster's remote storage: what brokers have only there is read from there; "" for none.
    memory:    what DuckDB may hold ("2GB") before it writes to disk; "": 80 % of this machine's memory.
    """

    bootstrap: str = ""
    tables: Mapping[str, Path] = field(factory=dict)
    window: Window = field(factory=Window)
    client: Mapping[str, str] = field(factory=dict)
    registry: RegistryAccess | str = ""
    bucket: str = ""
    memory: str = ""
    progress: Callable[[int, int, str], object] = no_progress
    """Called with the number of messages read, the number of all, and the topic."""
    report: Callable[[str], object] = no_report
    """Called with a line of the plan: what comes from the bucket."""
