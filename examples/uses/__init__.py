"""The uses of a log that the paper names, as examples on real data: `barnabas examples`, docs/uses.md."""

from . import activity, ads, monitoring, newsfeed, recommendations, search, security
from .stage import play

USES = {
    module.USE.name: module.USE for module in (activity, recommendations, search, newsfeed, security, monitoring, ads)
}
"""All examples, in the order in which they are listed."""

__all__ = ["USES", "play"]
