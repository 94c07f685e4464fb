"""All examples, in the order in which they are listed."""

from . import activity

USES = {use.name: use for use in (activity.USE,)}
