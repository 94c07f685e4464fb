"""Who may ask the broker for what: the rule that every request meets before its handler does."""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.envelope import Caller, Request
from ....ports.errors import ApiError

Authorizer = Callable[[Request[Any], Caller], ApiError | None]
"""None lets a request pass; an error is its answer, in the form that its result has for errors.

Asked on the owner thread, once for each request, the broker's own (`Origin.BROKER`) included: it must be quick.
"""


def everyone(request: Request[Any], caller: Caller) -> None:
    """Lets everyone do everything."""
