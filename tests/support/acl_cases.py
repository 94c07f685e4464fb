"""Random cases for authorizers, as lines for Kafka's own class (`AclOracle.java`) and for ours."""

import random
from collections.abc import Iterator

from barnabas.core.security.acl import ResourcePattern, encode_acls
from barnabas.core.security.standard_authorizer import StandardAuthorizer
from barnabas.ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from barnabas.ports.broker_api.operations import Operation

NAMES = {
    "TOPIC": ["t", "t1", "ta", "pay", "payments", "hardcode", "x", "*"],
    "GROUP": ["g", "g1", "group"],
    "TRANSACTIONAL_ID": ["tx", "tx-1"],
    "CLUSTER": ["kafka-cluster"],
    "USER": ["User:a", "User:b"],
    "DELEGATION_TOKEN": ["id"],
}
PREFIXES = ["t", "ta", "p", "pay", "g", "tx", "*", "x", "hard", "User:", "kafka"]
PRINCIPALS = ["User:a", "User:b", "User:admin", "Group:a", "User:ANONYMOUS"]
HOSTS = ["10.0.0.1", "10.0.0.2"]
OPERATIONS = [each.name for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY, Operation.ALL)]


def random_cases(seed: int, count: int) -> Iterator[str]:
    """Lines of the oracle's protocol, with `count` questions among them."""
    rng = random.Random(seed)
    asked = 0
    while asked < count:
        supers = rng.choice(["-", "-", "User:admin", "User:admin;Group:a"])
        yield f"new {supers} {rng.choice(['true', 'false'])}"
        kinds = rng.sample(list(NAMES), rng.randint(1, 3))
        yield from dict.fromkeys(_acl(rng, rng.choice(kinds)) for _ in range(rng.randint(0, 14)))
        for _ in range(min(100, count - asked)):
            kind, principal, host = rng.choice(kinds), rng.choice(PRINCIPALS), rng.choice(HOSTS)
            operation = rng.choice(OPERATIONS)
            asked += 1
            if rng.random() < 0.15:
                yield f"any {principal} {host} {operation} {kind}"
            else:
                yield f"ask {principal} {host} {operation} {kind} {rng.choice(NAMES[kind])}"


def _acl(rng: random.Random, kind: str) -> str:
    pattern = rng.choice(["LITERAL", "PREFIXED"])
    name = rng.choice([*NAMES[kind], "*"] if pattern == "LITERAL" else PREFIXES)
    principal = rng.choice([*PRINCIPALS, "User:*"])
    host = rng.choice([*HOSTS, "*", "*"])
    operation = rng.choice([*OPERATIONS, "ALL", "READ", "WRITE", "DESCRIBE"])
    return f"acl {kind} {name} {pattern} {principal} {host} {operation} {rng.choice(['ALLOW', 'ALLOW', 'DENY'])}"


def answers(lines: Iterator[str]) -> Iterator[str]:
    """Return the answers of our authorizer to the questions in these lines."""
    authorizer = StandardAuthorizer()
    acls: dict[str, list[AclBinding]] = {}
    changed = False
    for line in lines:
        kind, *words = line.split()
        if kind == "new":
            supers = [] if words[0] == "-" else words[0].split(";")
            authorizer = StandardAuthorizer(supers, allow_everyone_if_no_acl_found=words[1] == "true")
            acls, changed = {}, True
        elif kind == "acl":
            acl = AclBinding(
                resource_type=ResourceType[words[0]],
                resource_name=words[1],
                pattern_type=PatternType[words[2]],
                principal=words[3],
                host=words[4],
                operation=Operation[words[5]],
                permission=PermissionType[words[6]],
            )
            acls.setdefault(str(ResourcePattern.of(acl)), []).append(acl)
            changed = True
        else:
            if changed:
                assert not authorizer.set_acls({name: encode_acls(each) for name, each in acls.items()})
                changed = False
            principal, host, operation, resource_type = words[0], words[1], Operation[words[2]], ResourceType[words[3]]
            if kind == "any":
                decision = authorizer.decide_by_resource_type(principal, host, operation, resource_type)
            else:
                decision = authorizer.decide(principal, host, operation, resource_type, words[4])
            yield "ALLOWED" if decision.is_allowed else "DENIED"
