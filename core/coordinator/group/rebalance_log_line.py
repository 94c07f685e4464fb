"""Log lines about a group: the begin of a rebalance with its causes, and the resulting generation."""

from ....ports.report import Line, counted, info
from .group import Group
from .states import GroupState

MEMBERS_MAX = 10
"""The most members that a line names."""


def rebalance(group: Group, before: int) -> Line | None:
    """Return the line after a change of state or generation, or None; `before` is the last generation reported."""
    begins = group.state is GroupState.PREPARING_REBALANCE
    if group.generation == before and not begins:
        return None
    causes = group.causes.take_texts()
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
