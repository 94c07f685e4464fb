"""Plug-ins of the audit for clients, in the entry-point group `barnabas`. Every client loads it: few imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..plugins.specs import hookimpl

if TYPE_CHECKING:
    from ..core.client.message_counter import MessageCounter
    from ..core.client.producer.handlers import CallbackHandler
    from ..core.client.serde import Decoder

NAME = "audit"


@hookimpl
def barnabas_names(kind: str) -> Sequence[str]:
    return [NAME] if kind in ("callback_handler", "decoder", "message_counter") else []


@hookimpl
def barnabas_callback_handler(name: str, config: Mapping[str, object]) -> CallbackHandler | None:
    if name != NAME:
        return None
    from .producing import ProducerAudit

    return ProducerAudit(config)


@hookimpl
def barnabas_decoder(name: str) -> Decoder | None:
    if name != NAME:
        return None
    from .envelope import AuditDecoder

    return AuditDecoder()


@hookimpl
def barnabas_message_counter(name: str, config: Mapping[str, object]) -> MessageCounter | None:
    if name != NAME:
        return None
    from .tier import TierCounter

    return TierCounter(config)
