"""All examples, in the order in which they are listed."""

from . import activity, ads, monitoring, newsfeed, recommendations, search, security

USES = {
    module.USE.name: module.USE for module in (activity, recommendations, search, newsfeed, security, monitoring, ads)
}
