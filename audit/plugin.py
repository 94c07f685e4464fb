"""What the audit adds to the clients, by the entry-point group `barnabas`. Loaded with every client: imports little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..plugins.specs import hookimpl

if TYPE_CHECKING:
    from ..core.client.message_counter import MessageCounter
    from ..core.client.producer.handlers import CallbackHandler

NAME = "audit"


@hookimpl
def barnabas_names(kind: str) -> Sequence[str]:
    return [NAME] if kind in ("callback_handler", "message_counter") else []


@hookimpl
def barnabas_callback_handler(name: str, config: Mapping[str, object]) -> CallbackHandler | None:
    if name != NAME:
        return None
    from .producing import ProducerAudit

    return ProducerAudit(config)


@hookimpl
def barnabas_message_counter(name: str, config: Mapping[str, object]) -> MessageCounter | None:
    if name != NAME:
        return None
    from .tier import TierCounter

    return TierCounter(config)
