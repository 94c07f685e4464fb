"""The faults of each seed: their kinds, rates and durations, and the operators' actions.

With all faults at once, most scenarios are alike, and one fault hides the effects of another (swarm testing,
Groce et al. 2012): so each seed has some of them only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from attrs import define, evolve
from simulation.cluster_actors import Operator
from simulation.knobs import names_of

from barnabas.ports.entropy import Entropy
from barnabas.simulation import Disasters
from barnabas.simulation.interference import POINTS

LOSSES = ("power_cut", "lose_disk", "lose_folder", "old_disk", "rot")
"""The faults that take what was acknowledged from a disk."""
MILD = (
    *("set_clock", "bad_network", "lose_answers", "slow_work", "lose_connections", "kill_program", "stale_reads"),
    "end_fetch_sessions",
)
KINDS = (*Disasters.KINDS, *Disasters.MORE_KINDS)
KINDS_MIN = 4
REPORTED = {
    "isr: a change retried": "changing in-sync replicas failed",
    "controller: resigned": "has resigned as the controller",
    "log: an interrupted cleaning completed": "an interrupted cleaning is completed",
    "log: a torn batch cut off": "truncated at its first corrupt batch",
    "transaction: a marker passed over": "the partitions were deleted",
}
"""Rare states that the brokers report: what a line of their logs contains."""
_OF_CLUSTERS = (
    *(f"fault: {kind}" for kind in KINDS),
    *(f"operator: {act}" for act in (*Operator.ACTS, *Operator.MORE_ACTS)),
    "drain: complete",
    "drain: removed",
    "election: a member of the ISR",
    "election: an eligible replica that is not in the ISR",
    "election: by claims",
    "election: by claims that differ",
    "election: uncleanly",
    "election: no replica can lead",
    "log: a leader begins above its high watermark",
    "log: a coordinator begins above its high watermark",
    "log: cut by a follower",
    "log: cut below the high watermark",
    "isr: a replica joins",
    "isr: a replica leaves",
    "isr: a member in doubt",
    "isr: an eligible replica outside",
    "claim: of a log that lost something",
    "tree: a read that was out of date",
    "tree: a single answer lost",
    "tree: a write by an old version",
    "tree: an answer lost with the connection",
    "group: asked for offsets of a topic made again",
    "isr: a change retried",
    "controller: resigned",
    "log: an interrupted cleaning completed",
    "log: a torn batch cut off",
    "log: a coordinator resigns above its high watermark",
    *(f"point: {point}: {act}" for point, acts in POINTS.items() for act in acts),
    *(f"knob: {name}" for name in names_of()),
    "rot: in a closed segment",
    "rot: in the active segment",
    "rot: met by a reader",
    "rot: found and repaired",
    "stray: renamed",
)
RARE_STATES: Mapping[str, Sequence[str]] = {
    "cluster": _OF_CLUSTERS,
    "transactions": ("transaction: a marker passed over", "fault: late markers", "fault: interfere"),
    "restore": ("fault: restored coordination",),
    "recreate": ("names: a topic deleted while its group reads",),
    "near": (
        "near: sent to a replica",
        "near: refused by a replica",
        "near: refused by a damaged replica",
        "near: read from the leader after a replica refused",
        "near: a batch that has rotten",
        "rot: in a closed segment",
        "rot: in the active segment",
        "rot: met by a reader",
        "rot: found and repaired",
    ),
    "security": (
        "acl: a request of the guest is allowed",
        "acl: a request of the guest is denied",
        "session: ended without another authentication",
    ),
    "partitions": ("election: by claims", "election: by claims that differ", "election: no replica can lead"),
}
"""By story: what some seed of a long run has to reach. What none does is not tested."""
T = TypeVar("T")


def reported_states(reports: Iterable[str]) -> Counter[str]:
    """Return how often the brokers have reported which rare state."""
    return Counter(state for line in reports for state, words in REPORTED.items() if words in line)


@define(frozen=True, kw_only=True)
class Swarm:
    """One seed's choice."""

    kinds: tuple[str, ...] = KINDS
    every: float = 0.5
    lasting: float = 2.5
    acts: tuple[str, ...] = Operator.ACTS

    @classmethod
    def of(cls, entropy: Entropy) -> "Swarm":
        """Return the choice of a seed. One of four has brokers drained and removed besides."""
        chosen = cls._without_drains(entropy)
        has_drains = entropy.below(4) == 0  # the last draw, so that it changes no other
        return evolve(chosen, acts=(*chosen.acts, *Operator.MORE_ACTS)) if has_drains else chosen

    @classmethod
    def _without_drains(cls, entropy: Entropy) -> "Swarm":
        """Return a swarm: one in four has all faults, and one in twelve mostly those of unclean elections."""
        if entropy.below(12) == 0:
            return cls(kinds=_some(MILD, entropy), every=1.5, acts=("orphan", "write"))
        if entropy.below(4) == 0:
            return cls().checked_promises(entropy)
        return cls(
            kinds=_some(KINDS, entropy),
            every=0.25 + entropy.fraction(),
            lasting=0.5 + 4.5 * entropy.fraction() ** 2,
            acts=_some(Operator.ACTS, entropy),
        ).checked_promises(entropy)

    def checked_promises(self, entropy: Entropy) -> "Swarm":
        """With min.insync.replicas=1 no loss of a disk is survived: a seed has the one or the other."""
        if "set_min_isr" not in self.acts or not set(LOSSES) & set(self.kinds):
            return self
        without = tuple(each for each in self.kinds if each not in LOSSES)
        others = tuple(each for each in self.acts if each != "set_min_isr")
        if entropy.below(2) and without:
            return Swarm(kinds=without, every=self.every, lasting=self.lasting, acts=self.acts)
        return Swarm(kinds=self.kinds, every=self.every, lasting=self.lasting, acts=others or Operator.ACTS[:1])


def _some(things: Sequence[T], entropy: Entropy) -> tuple[T, ...]:
    while True:
        chosen = tuple(each for each in things if entropy.below(2))
        if len(chosen) >= KINDS_MIN:
            return chosen
