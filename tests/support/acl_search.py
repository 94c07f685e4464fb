"""Every interleaving of small scopes over the path of an ACL from the coordination tree to the decisions of one broker.

The code that runs is the broker's: `MetadataListener`, `ClusterRegistry`, the queue of changes, `EntityStore`,
`AclDecider`. Around it are a tree, and a session with it that may read what was true a moment ago (its server lags),
may lose its connection and get another server that lags more or less, and whose calls may fail, done or not.
Others grant, revoke and become controllers; so does this broker. Each follows the tree alone: one stands for all.

What is checked are promises:

- when nothing is left to do, the broker allows what the tree allows, and nothing else;
- a revocation that the broker itself has answered counts at once, as long as its session stands.

A state is the tree, what the session has seen, the image, and how far the broker's coroutines are. A search returns how
many it has found.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import CoroutineType, FunctionType, MethodType
from typing import Any

from attrs import define, field, frozen

from barnabas.app.broker.state.authorization import AclDecider
from barnabas.app.broker.state.changes import Changes, EntityStore
from barnabas.core.cluster import entity_store, layout
from barnabas.core.cluster.change_queue import ChangeQueue
from barnabas.core.cluster.layout import EntityKind
from barnabas.core.cluster.metadata_listener import MetadataListener
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import ReplicaId
from barnabas.core.security.acl import ResourcePattern, encode_acls
from barnabas.core.security.standard_authorizer import StandardAuthorizer
from barnabas.ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from barnabas.ports.broker_api.envelope import Caller, Principal
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    CreateNode,
    DeleteNode,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
)
from barnabas.ports.scheduler import Outcome

ALLOWED = AclBinding(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal="User:alice",
    host="*",
    operation=Operation.READ,
    permission=PermissionType.ALLOW,
)
NAME = str(ResourcePattern.of(ALLOWED))
ALICE = Caller(principal=Principal("User", "alice"))
Tree = Mapping[str, Node]


class BrokenPromise(AssertionError):
    """A history after which the broker decides otherwise than the tree says."""


@define(eq=False)
class _Service:
    """All trees so far, one after each commit, and the paths that each commit has changed."""

    trees: list[Tree] = field(factory=lambda: [{}])
    changed: list[Sequence[str]] = field(factory=lambda: [()])

    @property
    def now(self) -> int:
        return len(self.trees) - 1

    def commit(self, changes: Sequence[NodeChange]) -> None:
        tree = dict(self.trees[-1])
        for change in changes:
            node = tree.get(change.path)
            if isinstance(change, CreateNode):
                if node is not None:
                    raise NodeExists(change.path)
                tree[change.path] = Node(data=change.data, version=0)
                continue
            if node is None:
                raise NoNode(change.path)
            if change.version not in (None, node.version):
                raise BadVersion(change.path)
            if isinstance(change, DeleteNode):
                del tree[change.path]
            else:
                tree[change.path] = Node(data=change.data, version=node.version + 1)
        self.trees.append(tree)
        self.changed.append([change.path for change in changes])


class _Session:
    """The broker's session: it sees the tree as of `seen`, and never an earlier one before it gets another server."""

    blocking = True

    def __init__(self, service: _Service) -> None:
        self.service = service
        self.seen = 0
        self.on_change: Callable[[Collection[str] | None], None] | None = None

    @property
    def tree(self) -> Tree:
        return self.service.trees[self.seen]

    def see(self, now: int) -> None:
        """Apply commits at the server; the watch reports them before any read that shows them."""
        paths = [path for changed in self.service.changed[self.seen + 1 : now + 1] for path in changed]
        self.seen = now
        if paths and self.on_change is not None:
            self.on_change(paths)

    def connect_again(self, now: int) -> None:
        self.seen = now
        if self.on_change is not None:
            self.on_change(None)

    # --- the port

    def get(self, path: str) -> Node:
        if path not in self.tree:
            raise NoNode(path)
        return self.tree[path]

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return [self.tree.get(path) for path in paths]

    def children(self, path: str) -> list[str]:
        below = {each[len(path) + 1 :].partition("/")[0] for each in self.tree if each.startswith(f"{path}/")}
        if not below:
            raise NoNode(path)
        return sorted(below)

    def commit(self, changes: Sequence[NodeChange]) -> None:
        self.service.commit(changes)
        self.see(self.service.now)

    def heartbeat(self) -> float:
        self.see(self.service.now)
        return 1e9

    def watch_below(self, _path: str, changed: Callable[[Collection[str] | None], None]) -> Callable[[], None]:
        self.on_change = changed
        return lambda: None


@define(eq=False)
class _Call:
    work: Callable[[], Any]
    done: Callable[[Outcome[Any]], None]
    outcome: Outcome[Any] | None = None


class _Scheduler:
    """The owner's callbacks, the timers, and the calls that workers have: one of each queue at most."""

    def __init__(self) -> None:
        self.ready: deque[Callable[[], None]] = deque()
        self.timers: list[Callable[[], None]] = []
        self.works: list[_Call] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def call_later(self, _delay_ms: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def offload(self, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        self.works.append(_Call(work, done))
        assert len(self.works) <= 2


@frozen
class Scope:
    """The limits of each of the optional actions in a history."""

    most: Mapping[str, int]
    granted: bool = True
    """The ACL exists when the broker starts."""


class History:
    """One broker, and the tree that others change."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.used: dict[str, int] = {}
        self.service = _Service()
        if scope.granted:
            self._change_elsewhere(_granted)
        self.session = _Session(self.service)
        self.session.seen = self.service.now
        self.scheduler = _Scheduler()
        coordination: Coordination = self.session  # type: ignore[assignment]  # the verbs that this path uses
        self.registry = ClusterRegistry(coordination, lambda _: None)
        if scope.granted:
            value = encode_acls([ALLOWED])
            self.registry._apply_entity(EntityKind.ACLS, NAME, entity_store.StoredEntity(value=value))
        self.changes = Changes(self.scheduler, coordination, lambda _: None)  # type: ignore[arg-type]
        queue = ChangeQueue(self.scheduler, coordination)  # type: ignore[arg-type]
        self.entities = EntityStore(self.registry, self.changes, queue)
        self.decider = AclDecider(StandardAuthorizer(), self.registry, lambda _: None)
        self.revoked_here = False
        """A revocation was answered by this broker, and nothing has happened since that may undo it."""
        self.listener = MetadataListener(
            self.registry,
            self.scheduler,  # type: ignore[arg-type]
            submit_leaders=lambda what, make, done: self.changes.submit(what, make, done, queue),
            submit_topics=lambda *_: None,  # there are none
            apply_topics=lambda _: _nothing(),
        )
        self.listener._topics_due = True
        self.listener.start_watching()
        while self.work_on():
            pass

    def _change_elsewhere(self, change: entity_store.ChangeEntity) -> None:
        other = _Session(self.service)
        other.seen = self.service.now
        entity_store.change_entities(other, EntityKind.ACLS, {NAME: change}, False)  # type: ignore[arg-type]

    @property
    def allows(self) -> bool:
        return self.decider.decide(ALICE, Operation.READ, ResourceType.TOPIC, "t").is_allowed

    @property
    def is_granted(self) -> bool:
        return layout.entity_path(EntityKind.ACLS, NAME) in self.service.trees[-1]

    def check(self) -> None:
        allows = self.allows  # it is asked after each step, so that what it caches is as old as it can be
        if self.revoked_here and allows:
            raise BrokenPromise("the broker allows what it has answered to be revoked")
        scheduler = self.scheduler
        is_calm = not (scheduler.ready or scheduler.timers or scheduler.works) and self.session.seen == self.service.now
        if is_calm and allows != self.is_granted:
            raise BrokenPromise("allowed, though it was revoked" if allows else "denied, though it is granted")

    # --- actions of the broker, which happen without end

    def run(self) -> bool:
        """Let a worker make its call."""
        return self._run(Outcome.of)

    def run_second(self) -> bool:
        """Let the worker of the other queue make its call."""
        return self._run(Outcome.of, 1)

    def end(self) -> bool:
        """Let a worker complete its call, which the owner learns later."""
        return self._end(0)

    def end_second(self) -> bool:
        """Let the worker of the other queue complete first, although it may have begun later."""
        return self._end(1)

    def _end(self, number: int) -> bool:
        outcome = self.scheduler.works[number].outcome if number < len(self.scheduler.works) else None
        if outcome is None:
            return False
        self.scheduler.ready.append(partial(self.scheduler.works.pop(number).done, outcome))
        return True

    def turn(self) -> bool:
        """Let the owner do its next task."""
        if not self.scheduler.ready:
            return False
        self.scheduler.ready.popleft()()
        return True

    def time(self) -> bool:
        """Run a due timer."""
        if not self.scheduler.timers:
            return False
        self.scheduler.timers.pop(0)()
        return True

    def catch_up(self) -> bool:
        """Let the session's server apply one more commit."""
        if self.session.seen == self.service.now:
            return False
        self.session.see(self.session.seen + 1)
        return True

    def work_on(self) -> bool:
        return self.run() or self.end() or self.turn() or self.time() or self.catch_up()

    def _run(self, outcome_of: Callable[[Callable[[], Any]], Outcome[Any]], number: int = 0) -> bool:
        if number >= len(self.scheduler.works) or self.scheduler.works[number].outcome is not None:
            return False
        call = self.scheduler.works[number]
        call.outcome = outcome_of(call.work)
        return True

    # --- actions that are counted

    def fail(self) -> bool:
        return self._run(lambda _: Outcome(error=CoordinationError("no answer")))

    def lose_answer(self) -> bool:
        def lost(work: Callable[[], Any]) -> Outcome[Any]:
            before = self.service.now
            Outcome.of(work)
            assert self.service.now >= before
            return Outcome(error=CoordinationError("no answer"))

        return self._run(lost)

    def connect_to_earlier(self) -> bool:
        if self.session.seen == 0:
            return False
        self.revoked_here = False
        self.session.connect_again(self.session.seen - 1)
        return True

    def connect_to_later(self) -> bool:
        if self.session.seen == self.service.now:
            return False
        self.revoked_here = False
        self.session.connect_again(self.service.now)
        return True

    def grant(self) -> bool:
        return self._elsewhere(_granted)

    def revoke(self) -> bool:
        return self._elsewhere(_revoked)

    def _elsewhere(self, change: entity_store.ChangeEntity) -> bool:
        before = self.service.now
        self._change_elsewhere(change)
        self.revoked_here = self.revoked_here and change is _revoked
        return self.service.now > before

    def grant_here(self) -> bool:
        self.revoked_here = False
        return self._here(_granted, lambda _: None)

    def revoke_here(self) -> bool:
        before = self.service.now

        def answered(error: Any) -> None:
            only_this = self.used.get("grant", 0) + self.used.get("grant_here", 0) == 0
            self.revoked_here = error is None and only_this and self.service.now >= before

        return self._here(_revoked, answered)

    def _here(self, change: entity_store.ChangeEntity, reply: Callable[[Any], None]) -> bool:
        self.entities.submit("changing ACLs", lambda: self.entities.put(EntityKind.ACLS, NAME, change), reply)
        return True

    def elect(self) -> bool:
        """Another broker becomes the controller."""
        number = self.used.get("elect", 0)
        old = self.service.trees[-1].get(layout.CONTROLLER)
        data = layout.encode_controller(ReplicaId(number + 2, number))
        changes: list[NodeChange] = [] if old is None else [DeleteNode(layout.CONTROLLER)]
        for change in [*changes, CreateNode(layout.CONTROLLER, data)]:
            self.service.commit([change])
        return True

    # --- the search

    def fingerprint(self) -> object:
        seen = min(self.session.seen, self.service.now)
        later = tuple(
            tuple((path, node.version, node.data) for path, node in sorted(tree.items()))
            for tree in self.service.trees[max(0, seen - 1) :]
        )
        return (
            later,
            seen > 0,
            tuple(sorted(self.used.items())),
            self.allows,
            self.revoked_here,
            _text(self.registry.image.entities(EntityKind.ACLS).get(NAME)),
            _text(self.registry.image.controller),
            _text(self.listener._leaders.__dict__),
            self.listener._leaders_due,
            _text(list(self.changes._unknown_outcomes)),
            tuple(map(_text, self.scheduler.ready)),
            tuple(map(_text, self.scheduler.timers)),
            tuple((_text(call.work), _text(call.outcome)) for call in self.scheduler.works),
            tuple((_text(each.change), each.outage is None) for each in self.entities._queue._waiting),
            tuple((_text(each.change), each.outage is None) for each in self.changes._queue._waiting),
        )


def _text(value: object, depth: int = 6) -> str:
    """Describe a value, a call that is due or a coroutine, the same way in each replay."""
    if depth == 0:
        return type(value).__name__
    below = partial(_text, depth=depth - 1)
    if isinstance(value, partial):
        return f"{below(value.func)}({', '.join(map(below, value.args))})"
    if isinstance(value, MethodType):
        return f"{value.__func__.__qualname__}"
    if isinstance(value, FunctionType):
        cells = [below(cell.cell_contents) for cell in value.__closure__ or ()]
        return f"{value.__qualname__}[{', '.join(cells)}]"
    if isinstance(value, CoroutineType):
        frame = value.cr_frame
        if frame is None:
            return "ended"
        names = {name: below(each) for name, each in frame.f_locals.items() if name != "self"}
        return f"{value.__qualname__}@{frame.f_lasti}{names}>{below(value.cr_await)}"
    if isinstance(value, dict):
        return str({below(key): below(each) for key, each in value.items()})
    if isinstance(value, list | tuple | set | frozenset | deque):
        return str([below(each) for each in value])
    if type(value).__name__ == "_ChangedNodes":
        return below(vars(value))
    if isinstance(value, Outcome):
        return f"{below(value.value)} or {value.error!r}"
    if value is None or isinstance(value, str | bytes | int | float | Node | EntityKind | ReplicaId):
        return repr(value)
    return type(value).__name__


def _granted(_: entity_store.Value | None) -> entity_store.Value:
    return encode_acls([ALLOWED])


def _revoked(_: entity_store.Value | None) -> None:
    return None


async def _nothing() -> None:
    """There are no topics."""


STEPS = ("run", "run_second", "end", "end_second", "turn", "time", "catch_up")


def search(scope: Scope) -> int:
    """Play every history of the scope; return the number of states. Raises `BrokenPromise` with the history."""
    actions = [*scope.most, *STEPS]
    found = {_play(scope, ()).fingerprint()}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        before = waiting.pop()
        for name in actions:
            if before.count(name) >= scope.most.get(name, 1_000):
                continue
            history = _play(scope, before)
            if not _act(history, name):
                continue
            try:
                history.check()
            except BrokenPromise as broken:
                raise BrokenPromise(f"{', '.join((*before, name))}: {broken}") from None
            mark = history.fingerprint()
            if mark not in found:
                found.add(mark)
                waiting.append((*before, name))
    return len(found)


def _act(history: History, name: str) -> bool:
    if not getattr(history, name)():
        return False
    if name in history.scope.most:
        history.used[name] = history.used.get(name, 0) + 1
    return True


def _play(scope: Scope, actions: Sequence[str]) -> History:
    history = History(scope)
    for name in actions:
        _act(history, name)
        _ = history.allows
    return history
