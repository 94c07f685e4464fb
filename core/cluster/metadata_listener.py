"""The listener for changes of the coordination tree: one watch names the changed nodes, which are read again."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import Any

from ...ports.broker_api.envelope import Reply
from ...ports.coordination import Cancel
from ...ports.errors import BarnabasError, ClosedError
from ...ports.scheduler import Scheduler
from . import layout
from .brokers import children
from .change_queue import elsewhere
from .registry import ClusterRegistry

Refresh = Callable[[], Coroutine[Any, Any, None]]
SubmitRefresh = Callable[[str, Refresh, Reply[None]], None]
"""Run a reading when the changes before it are done; the words name it in reports."""

ROOT = "/barnabas"
_DELETED = f"{layout.DELETED}/"
_ENTITY_KINDS = {layout.entity_folder(kind): kind for kind in layout.EntityKind}
RETRY_MS = 1000.0


class _ChangedNodes:
    """The nodes to read again."""

    def __init__(self) -> None:
        self.everything = False
        self.topics: dict[str, None] = {}
        self.states: dict[tuple[bytes, int], None] = {}
        self.configs: dict[int | None, None] = {}
        self.entities: dict[tuple[layout.EntityKind, str], None] = {}
        self.brokers = self.controller = self.features = False

    def add_paths(self, paths: Iterable[str]) -> None:
        for path in paths:
            above, _, name = path.rpartition("/")
            if above in (layout.TOPICS, layout.TOPIC_CONFIGS):
                self.topics[name] = None
            elif above == layout.STATES:
                with suppress(ValueError):  # another program made it
                    self.states[layout.decode_states_name(name)] = None
            elif above == layout.BROKER_IDS:
                self.brokers = True
            elif path == layout.CONTROLLER:
                self.controller = True
            elif path == layout.FEATURES:
                self.features = True
            elif above in _ENTITY_KINDS:
                with suppress(ValueError):  # another program made it
                    self.entities[_ENTITY_KINDS[above], layout.decode_name(name)] = None
            elif above == layout.BROKER_CONFIGS and (name == layout.ALL_BROKERS or name.isdecimal()):
                self.configs[None if name == layout.ALL_BROKERS else int(name)] = None

    def note_all(self) -> None:
        self.everything = self.brokers = self.controller = self.features = True

    @property
    def concerns_leaders(self) -> bool:
        """True if brokers, the controller, states, features or entities have changed."""
        single = self.brokers or self.controller or self.features
        return self.everything or bool(self.states or self.entities) or single

    @property
    def concerns_topics(self) -> bool:
        """True if topics or configs have changed."""
        return self.everything or bool(self.topics or self.configs)


TOPICS_TOGETHER = 20
"""The most new topics that are made together; a change of this broker's own waits for these at most."""


class MetadataListener:
    """Keeps a registry up to date with the tree. Owner thread only.

    Live brokers, the controller, partition states, features and entities are read in one queue of changes
    (`submit_leaders`), topics and configs in the other (`submit_topics`), in which the creation of a topic may take
    long. `apply_topics` applies topics of the tree to this broker: one topic, or several that are new to it.
    """

    def __init__(
        self,
        registry: ClusterRegistry,
        scheduler: Scheduler,
        *,
        submit_leaders: SubmitRefresh,
        submit_topics: SubmitRefresh,
        apply_topics: Callable[[Sequence[str]], Coroutine[Any, Any, None]],
    ) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._submit_leaders = submit_leaders
        self._submit_topics = submit_topics
        self._apply_topics = apply_topics
        self._leaders, self._topics = _ChangedNodes(), _ChangedNodes()
        self._leaders_due = self._topics_due = False
        self._unapplied: dict[str, None] = {}
        """Topics whose `apply_topics` has failed: the image may be up to date, and the broker not yet."""
        self._cancel: Cancel | None = None
        self._closed = False

    def start_watching(self) -> None:
        """Watch from now on; the first reading, which follows the watch, finds earlier changes."""

        async def watching() -> None:
            if self._cancel is None:
                self._cancel = await elsewhere(partial(self._registry.coordination.watch_below, ROOT, self._on_watch))

        def done(result: BarnabasError | None) -> None:
            if self._closed:
                return
            if result is not None:
                self._scheduler.call_later(RETRY_MS, self.start_watching)
            else:
                self._topics.note_all()
                self._read()

        self._submit_leaders("following the coordination tree", watching, done)
        self._leaders.note_all()  # its queue has the watch before it, the other one has not
        self._read()

    def close(self) -> None:
        """Stop watching and reading."""
        self._closed = True
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _on_watch(self, paths: Collection[str] | None) -> None:
        """Pass changes on to the owner thread. A thread of the adapter calls this."""
        with suppress(ClosedError):  # the broker has gone
            self._scheduler.call_soon(lambda: self._note(paths))

    def _note(self, paths: Collection[str] | None) -> None:
        """Note changed nodes to read. Leadership of deleted topics ends at once, however busy the queues are."""
        self._registry.end_deleted(each.rpartition("/")[2] for each in paths or () if each.startswith(_DELETED))
        for changed_nodes in (self._leaders, self._topics):
            if paths is None:
                changed_nodes.note_all()
            else:
                changed_nodes.add_paths(paths)
        self._read()

    def _read(self) -> None:
        if self._closed:
            return
        if self._leaders.concerns_leaders and not self._leaders_due:
            self._leaders_due = True
            self._submit_leaders("following who leads", self._read_leaders, self._was_read)
        if self._topics.concerns_topics and not self._topics_due:
            self._topics_due = True
            self._submit_topics("following topics", self._read_topics, self._was_read)

    async def _read_leaders(self) -> None:
        changed_nodes, self._leaders = self._leaders, _ChangedNodes()
        self._leaders_due = False  # what changes from here on is read again
        try:
            if changed_nodes.brokers:
                await self._registry.reread_brokers()
            if changed_nodes.controller:
                await self._registry.reread_controller()
            if changed_nodes.features:
                await self._registry.reread_features()
            if changed_nodes.everything:
                await self._registry.reread_all_entities()
            elif changed_nodes.entities:
                await self._registry.reread_entities(changed_nodes.entities)
            if changed_nodes.everything:
                await self._registry.reread_deleted()
                await self._registry.reread_states(list(self._registry.image.topics))
            else:
                await self._registry.reread_states_nodes(changed_nodes.states)
        except BaseException:
            self._again(self._leaders, changed_nodes)
            raise

    async def _read_topics(self) -> None:
        changed_nodes, self._topics = self._topics, _ChangedNodes()
        self._topics_due = False
        try:
            if changed_nodes.everything:
                names = await elsewhere(partial(children, self._registry.coordination, layout.TOPICS))
                image = self._registry.image
                changed_nodes.topics.update(dict.fromkeys([*names, *image.topics, *image.deleting, *image.unreadable]))
                brokers = await elsewhere(partial(children, self._registry.coordination, layout.BROKER_CONFIGS))
                stored = [int(name) for name in brokers if name.isdecimal()]
                changed_nodes.configs.update(dict.fromkeys([None, *image.configs, *stored]))
            for broker_id in changed_nodes.configs:
                await self._registry.reread_configs(broker_id)
            changed = await self._registry.changed_topics(changed_nodes.topics)
            changed_nodes.topics = dict.fromkeys([*changed, *self._unapplied])
            while changed_nodes.topics:
                some = self._some_of(changed_nodes.topics)
                for name in some:
                    self._unapplied.pop(name, None)
                    self._unapplied[name] = None  # last: a topic whose `apply_topics` fails does not hold up the others
                await self._apply_topics(some)
                for name in some:
                    del changed_nodes.topics[name], self._unapplied[name]
        except BaseException:
            self._again(self._topics, changed_nodes)
            raise

    def _some_of(self, names: Iterable[str]) -> Sequence[str]:
        """Return the first name; if it is new, with the new ones that follow, whose logs are made together."""
        image = self._registry.image
        first, *others = islice(names, TOPICS_TOGETHER)

        def is_new(name: str) -> bool:
            known = name in image.topics or name in image.deleting or name in image.unreadable
            return not known and name not in self._unapplied

        return [first, *takewhile(is_new, others)] if is_new(first) else [first]

    @staticmethod
    def _again(now: _ChangedNodes, changed_nodes: _ChangedNodes) -> None:
        """Add the changes of a failed reading to those that came since, for the next reading."""
        now.everything = now.everything or changed_nodes.everything
        now.brokers, now.controller = now.brokers or changed_nodes.brokers, now.controller or changed_nodes.controller
        now.features = now.features or changed_nodes.features
        now.topics.update(changed_nodes.topics)
        now.states.update(changed_nodes.states)
        now.configs.update(changed_nodes.configs)
        now.entities.update(changed_nodes.entities)

    def _was_read(self, result: BarnabasError | None) -> None:
        if result is None:
            self._read()
        elif not self._closed:
            self._scheduler.call_later(RETRY_MS, self._read)
