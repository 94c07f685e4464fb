"""Random groups for the assignors of coordinators, as lines for Kafka's own classes (`AssignOracle.java`) too."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

from support.server_assignors import Group, Named

ASSIGNORS = ("uniform", "range", "simple")
_TOPICS = "tuvwxyz"


class Case:
    """A group whose members have a part of a former target, with one assignor."""

    def __init__(self, assignor: str, topics: Mapping[str, int], members: Mapping[str, Sequence[str]]) -> None:
        self.assignor = assignor
        self.topics = topics
        self.members = members
        self.instances: dict[str, str] = {}
        self.owned: dict[str, dict[str, set[int]]] = {member: {} for member in members}

    @property
    def group(self) -> Group:
        members = {member: " ".join(names) for member, names in self.members.items()}
        return Group(self.topics, members, owned=self.owned, instances=self.instances)

    @property
    def is_equal(self) -> bool:
        """True if all members subscribe to equal topics."""
        return len({frozenset(names) for names in self.members.values()}) == 1

    def unmoved(self, answer: Named) -> int:
        """Return how many partitions stay with members that subscribe to them."""
        return sum(
            len(numbers & answer[member].get(name, set()))
            for member, owned in self.owned.items()
            for name, numbers in owned.items()
            if name in self.members[member]
        )

    def lines(self) -> Iterator[str]:
        yield f"use {self.assignor}"
        for name, count in self.topics.items():
            yield f"topic {name} {count}"
        for member, names in self.members.items():
            yield f"member {member} {self.instances.get(member, '-')} {','.join(names)} {_text(self.owned[member])}"
        yield "run"
        yield "reset"


def _text(owned: Mapping[str, Iterable[int]]) -> str:
    parts = (f"{name}:{','.join(map(str, sorted(numbers)))}" for name, numbers in sorted(owned.items()) if numbers)
    return ";".join(parts) or "-"


def parsed(lines: Iterable[str]) -> Iterator[Named]:
    """Return the answers in the output of the oracle."""
    answer: dict[str, dict[str, set[int]]] = {}
    for line in lines:
        if line == ".":
            yield answer
            answer = {}
        else:
            member, text = line.split(" ")
            answer[member] = {
                name: set(map(int, numbers.split(",")))
                for name, numbers in (part.split(":") for part in text.split(";") if text != "-")
            }


def random_cases(seed: int, count: int) -> Iterator[Case]:
    rng = random.Random(seed)
    for _ in range(count):
        yield _random_case(rng)


def _random_case(rng: random.Random) -> Case:
    assignor = rng.choice(("uniform", "uniform", *ASSIGNORS))
    names = _TOPICS[: rng.choice((1, 1, 2, 3, 5, 7))]
    most = rng.choice((2, 5, 12, 30))
    topics = {name: rng.randint(1, most) for name in names}
    ids = [f"m{number}" for number in range(rng.choice((1, 2, 3, 4, 6, 10, 25)))]
    rng.shuffle(ids)
    kinds = [sorted(rng.sample(names, rng.randint(1, len(names)))) for _ in range(rng.choice((1, 1, 2, 3, len(ids))))]
    case = Case(assignor, topics, {member: rng.choice(kinds) for member in ids})
    case.instances = {member: f"i{rng.randint(0, 99)}-{member}" for member in ids if rng.random() < 0.2}
    share = rng.choice((0, 0.5, 0.9, 1, 1))
    shares = [rng.choice((0, 1, 1, 1, 3)) for _ in ids]
    for name, numbers in topics.items():
        for number in range(numbers):
            if rng.random() < share and any(shares):
                owner = rng.choices(ids, shares)[0]
                # Now and then the member does not subscribe to it any longer.
                if name in case.members[owner] or rng.random() < 0.2:
                    case.owned[owner].setdefault(name, set()).add(number)
    return case
