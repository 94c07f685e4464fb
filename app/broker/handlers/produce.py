"""Produce: append records, and answer when acks is satisfied (facts B2, C6, D8)."""

from collections.abc import Sequence

from ....core.log.append_origin import AppendOrigin
from ....core.replica.leader.verified_appends import VerifiedAppends
from ....ports.broker_api.envelope import Caller, Origin, Reply
from ....ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState
from .leader_hints import Leaders

_ACKS = frozenset((-1, 0, 1))
_BROKER = Origin.BROKER
_CLIENT = AppendOrigin.CLIENT


class ProduceService:
    """Passes produce requests to the replicas."""

    def __init__(self, state: BrokerState, verified_appends: VerifiedAppends) -> None:
        self._append = state.replicas.append
        self._append_verified = verified_appends.append
        self._leaders = Leaders(state)

    def handle(self, request: Produce, caller: Caller, reply: Reply[ProduceResult]) -> None:
        refused = _refusal(request)
        if refused is not None:
            code, text = refused
            entries = request.partitions
            failed = [ProduceResultPartition(e.topic, e.partition, code, error_message=text) for e in entries]
            reply(ProduceResult(partitions=failed))
            return

        def done(results: Sequence[ProduceResultPartition] | ApiError) -> None:
            if isinstance(results, ApiError):
                reply(results)
                return
            partitions, nodes = self._leaders.add_leaders(results, caller)
            reply(ProduceResult(partitions=partitions, nodes=nodes))

        timeout_ms = request.timeout_ms if request.timeout_ms > 0 else 0
        if request.transactional_id is not None:
            self._append_verified(
                request.partitions,
                done,
                transactional_id=request.transactional_id,
                acks=request.acks,
                timeout_ms=timeout_ms,
                allows_zstd=request.allows_zstd,
                owner=caller.connection or None,
                operation=request.supported_operation,
            )
            return
        self._append(
            request.partitions,
            done,
            acks=request.acks,
            timeout_ms=timeout_ms,
            allows_zstd=request.allows_zstd,
            origin=AppendOrigin.BROKER if caller.origin is _BROKER else _CLIENT,
            owner=caller.connection or None,
        )


def _refusal(request: Produce) -> tuple[ErrorCode, str] | None:
    """Return the error of a request as a whole, or None."""
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use 0, 1 or -1 (all)"
    return None
