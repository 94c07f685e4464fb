"""Producer ids: a broker takes blocks of them from the coordination tree, so that none is ever given out twice.

The rest of a block is never used after its broker has stopped.
"""

from functools import partial

from ...ports.coordination import BadVersion, Coordination, CoordinationError, NodeExists, NoNode
from . import layout
from .brokers import put
from .change_queue import elsewhere

BLOCK_SIZE = 1000
LAST_ID = 2**63 - 1
LEFT_OUT = 1_000_000
"""The number of ids left out after the largest one in a log, when the tree has lost its block: other producers may have
some of them."""


async def claim_block(coordination: Coordination, broker_id: int) -> range:
    """Take the next block of ids for this broker alone: a change for a `ChangeQueue`. Raises `CoordinationError`."""
    return await elsewhere(partial(take_block, coordination, broker_id))


def take_block(coordination: Coordination, broker_id: int) -> range:
    """Take the next block as `claim_block` does, on this thread. A block whose write has an unknown outcome is never
    used."""
    while True:
        try:
            node = coordination.get(layout.PRODUCER_IDS)
        except NoNode:
            block = range(BLOCK_SIZE)
            try:
                coordination.create(layout.PRODUCER_IDS, layout.encode_producer_ids(broker_id, block))
            except NodeExists:
                continue
            return block
        try:
            start = layout.decode_producer_ids(node.data).stop
        except ValueError as error:
            raise CoordinationError(f"{layout.PRODUCER_IDS} does not hold producer ids: {error}") from error
        if start > LAST_ID - BLOCK_SIZE:
            raise CoordinationError("all producer ids have been given out")
        block = range(start, start + BLOCK_SIZE)
        try:
            coordination.set(layout.PRODUCER_IDS, layout.encode_producer_ids(broker_id, block), version=node.version)
        except (BadVersion, NoNode):
            continue
        return block


def largest_given_out(coordination: Coordination) -> int | None:
    """Return the largest id in a block that was taken; None where none ever was. Raises `CoordinationError`."""
    try:
        return layout.decode_producer_ids(coordination.get(layout.PRODUCER_IDS).data).stop - 1
    except NoNode:
        return None
    except ValueError as error:
        raise CoordinationError(f"{layout.PRODUCER_IDS} does not hold producer ids: {error}") from error


def skip_to(coordination: Coordination, broker_id: int, first: int) -> None:
    """Give out ids from `first` on, which is larger than every id that was given out."""
    block = range(first - BLOCK_SIZE, first)
    put(coordination, layout.PRODUCER_IDS, layout.encode_producer_ids(broker_id, block))


def raise_above(coordination: Coordination, broker_id: int, largest: int) -> int | None:
    """Give out no id up to `largest`, which a log has, nor the next ones; returns the first id from now on.

    None: the tree has it as given out, or could not have given it out. Raises `CoordinationError`.
    """
    first = (largest // BLOCK_SIZE + 1) * BLOCK_SIZE + LEFT_OUT
    while first <= LAST_ID // 2:
        given_out = largest_given_out(coordination)
        if given_out is not None and given_out >= largest:
            return None
        data = layout.encode_producer_ids(broker_id, range(first - BLOCK_SIZE, first))
        try:
            if given_out is None:
                coordination.create(layout.PRODUCER_IDS, data)
                return first
            node = coordination.get(layout.PRODUCER_IDS)
            if layout.decode_producer_ids(node.data).stop - 1 == given_out:
                coordination.set(layout.PRODUCER_IDS, data, version=node.version)
                return first
        except (NodeExists, NoNode, BadVersion):
            continue
    return None
