"""Finds plugins and asks them for what a name stands for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from ..ports.errors import ConfigError
from .specs import PROJECT, Specs

if TYPE_CHECKING:
    from ..core.classic.rebalancer import Rebalancer
    from ..core.client.group.assignor import Assignor
    from ..core.client.message_counter import MessageCounter
    from ..core.client.producer.handlers import CallbackHandler, EventHandler
    from ..core.client.producer.partitioner import Partitioner
    from ..core.client.serde import Decoder, Encoder
    from ..core.log.retention import Committed, DeletionPolicy
    from ..core.message.codec import Codecs
    from ..core.replica.leader.replica_selector import ReplicaSelector
    from ..core.security.sasl.oauthbearer import TokenValidator
    from ..core.security.sasl.plain import Authenticator
    from ..core.security.sasl.server_authenticator import PrincipalBuilder
    from ..core.security.standard_authorizer import Authorizer
    from ..ports.coordination import CoordinationBackend
    from ..ports.remote_storage import RemoteStorageFactory
    from ..ports.types import TopicPartition
    from .entry_points import EntryPoint


_MEMBERS: Mapping[str, Sequence[str]] = {
    "codec": ("id", "name", "compress", "decompress"),
    "encoder": ("encode",),
    "decoder": ("decode",),
    "message_counter": ("start", "reports", "unprobed", "probed"),
    "deletion_policy": ("deletable",),
    "rebalance_strategy": ("name", "cooperative", "user_data", "assign"),
    "rebalancer": ("assign",),
    "replica_selector": ("select",),
    "authenticator": ("authenticate",),
    "token_validator": ("validate",),
    "authorizer": ("authorize",),
    "principal_builder": ("build",),
    "coordination": ("open", "check_url", "shared"),
    "remote_storage": ("__call__",),
}
"""The attributes that an object of each kind must have; kinds with a base class are checked by type."""


class PluginHost:
    """The plugins of one composition: those given, those installed (entry points of group `barnabas`), the built-in.

    What is registered here is asked when something is composed. Raises `ConfigError` for a plugin that cannot be
    loaded, that has a hook which does not exist, or that raises when asked; the text names the plugin.
    """

    def __init__(
        self, plugins: Sequence[object] = (), *, load_entry_points: bool = True, blocked: Sequence[str] = ()
    ) -> None:
        """`plugins`: modules, objects with hooks, or dotted names of modules; `blocked`: names never to be loaded."""
        given = [plugins] if isinstance(plugins, str) else plugins
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(Specs)
        self._register_builtin()
        for name in blocked:
            self._manager.set_blocked(name)
        if load_entry_points:
            self._load_entry_points()
        for plugin in given:
            self._register(_loaded(plugin) if isinstance(plugin, str) else plugin)
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise ConfigError(f"plugin {self._name_of(error.plugin)}: {_one_line(error)}") from error

    @property
    def names(self) -> list[str]:
        """The names of the registered plugins, the built-in ones included."""
        return [name for name, plugin in self._manager.list_name_plugin() if plugin is not None]

    def codecs(self) -> Codecs:
        """Return every compression codec; a plugin's takes the place of a built-in one with the same id."""
        from ..core.message.codec import Codecs

        found = self._ask("codecs")
        for group in found:
            if not isinstance(group, Sequence):
                raise ConfigError(f"barnabas_codecs gave {type(group).__name__}, not a list of codecs")
            for codec in group:
                _check("codec", getattr(codec, "name", ""), codec)
        by_id = {codec.id: codec for group in reversed(found) for codec in group}
        return Codecs(list(by_id.values()))

    def encoder(self, name: str) -> Encoder:
        """Return the encoder of this name. Raises `ConfigError` for an unknown one, with the known ones."""
        encoder: Encoder = self._require("encoder", name)
        return encoder

    def decoder(self, name: str) -> Decoder:
        """Return the decoder of this name. Raises `ConfigError` for an unknown one."""
        decoder: Decoder = self._require("decoder", name)
        return decoder

    def partitioner(self, name: str) -> Partitioner:
        """Return the partitioner of this name. Raises `ConfigError` for an unknown one."""
        partitioner: Partitioner = self._require("partitioner", name)
        return partitioner

    def event_handler(self, name: str, config: Mapping[str, object] | None = None) -> EventHandler:
        """Return the event handler of this name, made with `config`. Raises `ConfigError` for an unknown one."""
        handler: EventHandler = self._require("event_handler", name, config=config or {})
        return handler

    def callback_handler(self, name: str, config: Mapping[str, object] | None = None) -> CallbackHandler:
        """Return the callback handler of this name, made with `config`. Raises `ConfigError` for an unknown one."""
        handler: CallbackHandler = self._require("callback_handler", name, config=config or {})
        return handler

    def message_counter(self, name: str, config: Mapping[str, object] | None = None) -> MessageCounter:
        """Return the message counter of this name, made with `config`. Raises `ConfigError` for an unknown one."""
        counter: MessageCounter = self._require("message_counter", name, config=config or {})
        return counter

    def deletion_policy(
        self, setting: str, partition: TopicPartition | None = None, committed: Committed | None = None
    ) -> DeletionPolicy:
        """`setting`: as configured, NAME or NAME:PARAMETERS; `committed`: looks up offsets of groups.

        Raises `ConfigError` for parameters, too.
        """
        from ..core.log.retention import DeletionContext, unknown_committed

        name, _, parameters = setting.partition(":")
        context = DeletionContext(parameters=parameters, partition=partition, committed=committed or unknown_committed)
        policy: DeletionPolicy = self._require("deletion_policy", name, context=context)
        return policy

    def rebalance_strategy(self, name: str) -> Assignor:
        """Return the assignor of consumer groups of this name. Raises `ConfigError` for an unknown one."""
        strategy: Assignor = self._require("rebalance_strategy", name)
        return strategy

    def rebalancer(self, name: str) -> Rebalancer:
        """Return the rebalancer of the classic generation of this name. Raises `ConfigError` for an unknown one."""
        rebalancer: Rebalancer = self._require("rebalancer", name)
        return rebalancer

    def replica_selector(self, name: str) -> ReplicaSelector:
        """Return the replica selector of this name. Raises `ConfigError` for an unknown one."""
        selector: ReplicaSelector = self._require("replica_selector", name)
        return selector

    def authenticator(self, name: str) -> Authenticator:
        """Return the password check of SASL/PLAIN of this name. Raises `ConfigError` for an unknown one."""
        authenticator: Authenticator = self._require("authenticator", name)
        return authenticator

    def token_validator(self, name: str) -> TokenValidator:
        """Return the token check of SASL/OAUTHBEARER of this name. Raises `ConfigError` for an unknown one."""
        validator: TokenValidator = self._require("token_validator", name)
        return validator

    def authorizer(self, name: str) -> Authorizer:
        """Return the authorizer of this name. Raises `ConfigError` for an unknown one."""
        authorizer: Authorizer = self._require("authorizer", name)
        return authorizer

    def principal_builder(self, name: str) -> PrincipalBuilder:
        """Return the principal builder of this name. Raises `ConfigError` for an unknown one."""
        builder: PrincipalBuilder = self._require("principal_builder", name)
        return builder

    def coordination(self, scheme: str, built_in: Mapping[str, CoordinationBackend]) -> CoordinationBackend:
        """Return the back end of a URL scheme. Plug-ins are asked before the table `built_in`."""
        backend: CoordinationBackend | None = self._ask("coordination", scheme=scheme) or built_in.get(scheme)
        if backend is None:
            known = ", ".join(sorted({*self.known("coordination"), *built_in}))
            raise ConfigError(f"unknown coordination scheme {scheme!r}; known: {known}")
        _check("coordination", scheme, backend)
        return backend

    def remote_storage(self, scheme: str, built_in: Mapping[str, RemoteStorageFactory]) -> RemoteStorageFactory:
        """Return what opens the remote storage of a URL scheme. Plug-ins are asked before the table `built_in`."""
        factory: RemoteStorageFactory | None = self._ask("remote_storage", scheme=scheme) or built_in.get(scheme)
        if factory is None:
            known = ", ".join(sorted({*self.known("remote_storage"), *built_in}))
            text = f"unknown remote storage {scheme!r}; known: {known}"
            raise ConfigError(f"{text}; a folder is file://{scheme}" if scheme.startswith("/") else text)
        _check("remote_storage", scheme, factory)
        return factory

    def known(self, kind: str) -> list[str]:
        """Return the names that plugins say they answer to, sorted."""
        return sorted({name for names in self._ask("names", kind=kind) for name in names})

    def _require(self, kind: str, name: str, **arguments: Any) -> Any:
        made = self._ask(kind, name=name, **arguments)
        if made is None:
            known = ", ".join(self.known(kind)) or "none"
            raise ConfigError(f"unknown {kind.replace('_', ' ')} {name!r}; known: {known}")
        _check(kind, name, made)
        return made

    def _ask(self, hook: str, **arguments: Any) -> Any:
        caller = getattr(self._manager.hook, f"barnabas_{hook}")
        try:
            return caller(**arguments)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"plugin {self._culprit(caller, error)}: barnabas_{hook} failed: {error!r}") from error

    def _culprit(self, caller: pluggy.HookCaller, error: BaseException) -> str:
        """Return the name of the plugin whose function stands in the traceback."""
        codes = {getattr(i.function, "__code__", None): i.plugin_name for i in caller.get_hookimpls()}
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return codes[trace.tb_frame.f_code]
            trace = trace.tb_next
        return "(unknown)"

    def _register_builtin(self) -> None:
        from .builtin import BuiltIn

        self._manager.register(BuiltIn(), name="builtin")

    def _register(self, plugin: object, name: str | None = None) -> None:
        try:
            self._manager.register(plugin, name=name or _name_for(plugin))
        except (ValueError, pluggy.PluginValidationError) as error:
            raise ConfigError(f"plugin {name or _name_for(plugin)}: {_one_line(error)}") from error
        if not self._manager.get_hookcallers(plugin):
            raise ConfigError(f"plugin {name or _name_for(plugin)}: {plugin!r:.80} has no hooks, see docs/plugins.md")

    def _load_entry_points(self) -> None:
        for entry in _installed(tuple((path, _changed_ns(path)) for path in sys.path)):
            if self._manager.is_blocked(entry.name):
                continue
            try:
                plugin = entry.load()
            except Exception as error:
                raise ConfigError(
                    f"plugin {entry.name}: cannot be loaded from {entry.value}: {error!r}; "
                    "add it to plugins.blocked to start without it"
                ) from error
            self._register(plugin, entry.name)

    def _name_of(self, plugin: object) -> str:
        return self._manager.get_name(plugin) or _name_for(plugin)


def _changed_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=4)
def _installed(_paths: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of installed plugins. A changed directory of `sys.path` is read again."""
    from .entry_points import entry_points

    return entry_points(PROJECT)


def _check(kind: str, name: str, made: object) -> None:
    """Raises `ConfigError` for what is not of that kind; those with a base class are looked at by their clients."""
    what = f"{kind.replace('_', ' ')} {name!r}"
    if isinstance(made, type):
        raise ConfigError(f"{what}: {made.__name__} is a class; the hook is to give an object: {made.__name__}(...)")
    wanted = _MEMBERS.get(kind, ())
    missing = [each for each in wanted if isinstance(made, str) or not hasattr(made, each)]  # a text has an `encode`
    if missing:
        raise ConfigError(f"{what}: {made!r:.80} has no {missing[0]}, see docs/plugins.md")


def _loaded(module: str) -> object:
    try:
        return import_module(module)
    except Exception as error:
        raise ConfigError(f"plugin {module}: cannot be imported: {error!r}") from error


def _name_for(plugin: object) -> str:
    return getattr(plugin, "__name__", None) or type(plugin).__name__


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
