"""What the log says of a group: when a rebalance begins and why, and what comes out of it."""

from ....ports.report import Line, counted, info
from .group import Group
from .states import GroupState

MEMBERS_MAX = 10
"""So many members are named."""


def rebalance(group: Group, before: int) -> Line | None:
    """After a change of state or generation; `before` is the generation that was told last. None: nothing to tell."""
    begins = group.state is GroupState.PREPARING_REBALANCE
    if group.generation == before and not begins:
        return None
    causes = group.causes.take()
    why = f"; {', '.join(causes)}" if causes else ""
    names = [member.name for member in group.roster]
    text = f"group {group.group_id}: "
    if begins:
        text += f"rebalance after generation {group.generation} begins{why}"
    elif names:
        more = f" and {len(names) - MEMBERS_MAX} more" if len(names) > MEMBERS_MAX else ""
        shown = ", ".join(names[:MEMBERS_MAX]) + more
        text += f"generation {group.generation} ({group.protocol}) with {counted(len(names), 'member')}: {shown}{why}"
    else:
        text += f"generation {group.generation} has no members{why}"
    return info(
        text,
        group=group.group_id,
        generation=group.generation,
        state=group.state.value,
        members=names[:MEMBERS_MAX],
        member_count=len(names),
        causes=causes,
    )
