"""The authorization of a broker, from its configuration: the rules, the audit log, and access to classic listeners."""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

from ....core.cluster.registry import ClusterRegistry
from ....core.security.acl import parse_principals
from ....core.security.standard_authorizer import StandardAuthorizer
from ....core.traffic.log_line_limit import LogLineLimit
from ....plugins.host import PluginHost
from ....ports.broker_api.classic import ClassicProduce
from ....ports.broker_api.envelope import BrokerApi, Caller, Origin, Reply, Request
from ....ports.errors import ConfigError
from ....ports.report import Level, Report, counted, info, to_logger
from ....ports.scheduler import Scheduler
from ....ports.transport import TransportError
from ...config import BrokerConfig, ListenAddress
from ...config.authorizer_keys import STANDARD_AUTHORIZERS
from ...logs import is_enabled_for
from ..state.authorization import AUDIT_LOGGER, AclDecider, Authorization, Decider, PluginDecider

_LINES_MAX = 100
"""The number of refusals in a row that are logged one by one; beyond it they are summarized every ten seconds."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def authorization_of(
    config: BrokerConfig,
    plugins: PluginHost,
    registry: ClusterRegistry,
    scheduler: Scheduler,
    report: Report,
    closing: Callable[[Callable[[], None]], object],
) -> Authorization | None:
    """Return the authorization of the broker; None: everyone may do everything. Raises `ConfigError`."""
    name = config.authorizer_class_name
    try:
        super_users = parse_principals(config.super_users)
    except ValueError as error:
        raise ConfigError(f"super.users: {error}") from error
    if not name:
        return None
    decider: Decider
    if name in STANDARD_AUTHORIZERS:
        everyone = config.allow_everyone_if_no_acl_found
        rules = StandardAuthorizer(super_users, allow_everyone_if_no_acl_found=everyone)
        decider = AclDecider(rules, registry, report)
    else:
        decider = PluginDecider(plugins.authorizer(name), super_users, report)
    audit = to_logger(report, AUDIT_LOGGER)
    limit = LogLineLimit(scheduler, audit, _more_refusals, lines=_LINES_MAX)
    closing(limit.close)
    return Authorization(decider, limit.report_line, audit if is_enabled_for(AUDIT_LOGGER, Level.DEBUG) else None)


def _more_refusals(count: int) -> str:
    return info(f"{counted(count, 'more request')} denied")


class ClassicAccess:
    """A broker as a classic listener shows it: to some addresses and principals only, or without producing."""

    def __init__(
        self, api: BrokerApi, networks: Sequence[_Network], subjects: frozenset[str], *, is_read_only: bool
    ) -> None:
        self._api = api
        self._networks = networks
        self._subjects = subjects
        self._is_read_only = is_read_only

    def submit(self, request: Request[Any], caller: Caller, reply: Reply[Any]) -> None:
        """Handle an allowed request; others close the connection, since the protocol has no error for it."""
        if caller.origin is not Origin.BROKER:
            refused = self._refused(caller)
            if refused is not None:
                reply(TransportError(refused))
                return
            if self._is_read_only and isinstance(request, ClassicProduce):
                from ..handlers.authorization import denied_classic_produce

                reply(denied_classic_produce(request, "this listener is read-only (classic.read.only)"))
                return
        self._api.submit(request, caller, reply)

    def _refused(self, caller: Caller) -> str | None:
        if self._networks and not self._is_allowed(caller.host):
            return f"the address {caller.host} is not in classic.allowed.addresses"
        if self._subjects and str(caller.principal) not in self._subjects:
            return f"{caller.principal} is not in classic.allowed.subjects"
        return None

    def _is_allowed(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def classic_access(config: BrokerConfig, listener: ListenAddress, api: BrokerApi) -> BrokerApi:
    """Return the broker as a classic listener shows it: `api` itself where nothing is restricted.

    Raises `ConfigError`.
    """
    addresses = config.for_listener(listener.name, "classic.allowed.addresses")
    subjects = config.for_listener(listener.name, "classic.allowed.subjects")
    is_read_only = config.for_listener(listener.name, "classic.read.only")
    assert isinstance(addresses, tuple)
    assert isinstance(subjects, tuple)
    if not (addresses or subjects or is_read_only):
        return api
    networks = []
    for text in addresses:
        try:
            networks.append(ipaddress.ip_network(text, strict=False))
        except ValueError as error:
            raise ConfigError(f"classic.allowed.addresses: {error}") from error
    return ClassicAccess(api, networks, frozenset(subjects), is_read_only=bool(is_read_only))
