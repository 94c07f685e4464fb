"""The authorizer, which checks every request before its handler."""

from collections.abc import Callable
from typing import Any

from ....ports.broker_api.envelope import Caller, Request
from ....ports.errors import ApiError

RefuseRequest = Callable[[Request[Any], Caller], ApiError | None]
"""Returns None to allow a request; an error is its answer, in the form that its result has for errors.

Called on the owner thread, once for each request, the broker's own (`Origin.BROKER`) included: it must be quick.
"""


def everyone(request: Request[Any], caller: Caller) -> None:
    """Allow every request."""
