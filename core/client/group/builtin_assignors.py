"""The assignors that Kafka's clients have, by their names."""

from ....ports.errors import ConfigError
from .assignor import Assignor, RangeAssignor, RoundRobinAssignor
from .sticky_assignor import CooperativeStickyAssignor, StickyAssignor

ASSIGNOR_NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


def builtin_assignor(name: str) -> Assignor:
    """The built-in assignor of that name. Raises `ConfigError` listing them for any other."""
    known: dict[str, type[Assignor]] = {
        "range": RangeAssignor,
        "roundrobin": RoundRobinAssignor,
        "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    if name not in known:
        raise ConfigError(f"unknown assignor {name!r}; known: {', '.join(ASSIGNOR_NAMES)}")
    return known[name]()
