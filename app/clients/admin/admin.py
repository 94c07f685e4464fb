"""`Admin`, the client for operators: topics, configurations, groups, transactions, security and the
cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ..shared.connect import open_shell
from ..shared.process import check_process_in_methods
from ..shared.settings import CommonSettings, read_settings
from .acls import AclAdmin
from .asker import AdminRequests
from .cluster import ClusterAdmin
from .configs import ConfigAdmin
from .groups import GroupAdmin
from .quotas import QuotaAdmin
from .topics import TopicAdmin
from .transactions import TransactionAdmin
from .users import UserAdmin

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
PartT = TypeVar("PartT")


def _of(
    part: Callable[[Admin], PartT], call: Callable[Concatenate[PartT, P], ResultT]
) -> Callable[Concatenate[Admin, P], ResultT]:
    """Return a method of a part as a method of `Admin`, with the same signature and documentation."""

    @wraps(call)
    def of_admin(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return call(part(self), *args, **kwargs)

    of_admin.__qualname__ = f"Admin.{call.__name__}"
    return of_admin


def _topics(admin: Admin) -> TopicAdmin:
    return admin._topics


def _configs(admin: Admin) -> ConfigAdmin:
    return admin._configs


def _groups(admin: Admin) -> GroupAdmin:
    return admin._groups


def _transactions(admin: Admin) -> TransactionAdmin:
    return admin._transactions


def _cluster(admin: Admin) -> ClusterAdmin:
    return admin._cluster


def _acls(admin: Admin) -> AclAdmin:
    return admin._acls


def _users(admin: Admin) -> UserAdmin:
    return admin._users


def _quotas(admin: Admin) -> QuotaAdmin:
    return admin._quotas


@check_process_in_methods("_shell")
class Admin:
    """The admin client. Every call waits for its answer, up to `default.api.timeout.ms`; callable from any thread.

    with Admin("localhost:9092") as admin:
        admin.create_topic("views", partitions=3, configs={"retention.ms": "86400000"})

    A call about several things raises the first error only after all requests; the other changes take effect.
    """

    def __init__(self, bootstrap: object, *, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """`bootstrap`: "host:port,host:port" or a running `Broker`. Raises `ConfigError`, `TransportError`."""
        self.settings = read_settings(CommonSettings, config, settings)
        self._shell = open_shell(bootstrap, self.settings)
        asker = AdminRequests(self._shell, self.settings)
        self._topics = TopicAdmin(asker)
        self._configs = ConfigAdmin(asker)
        self._groups = GroupAdmin(asker, self._topics)
        self._transactions = TransactionAdmin(asker, self._topics)
        self._cluster = ClusterAdmin(asker)
        self._acls = AclAdmin(asker)
        self._users = UserAdmin(asker)
        self._quotas = QuotaAdmin(asker)

    create_topic = _of(_topics, TopicAdmin.create_topic)
    create_topics = _of(_topics, TopicAdmin.create_topics)
    delete_topics = _of(_topics, TopicAdmin.delete_topics)
    create_partitions = _of(_topics, TopicAdmin.create_partitions)
    list_topics = _of(_topics, TopicAdmin.list_topics)
    describe_topics = _of(_topics, TopicAdmin.describe_topics)
    delete_records = _of(_topics, TopicAdmin.delete_records)
    list_offsets = _of(_topics, TopicAdmin.list_offsets)

    describe_configs = _of(_configs, ConfigAdmin.describe_configs)
    describe_topic_configs = _of(_configs, ConfigAdmin.describe_topic_configs)
    topic_overrides = _of(_configs, ConfigAdmin.topic_overrides)
    alter_configs = _of(_configs, ConfigAdmin.alter_configs)
    replace_configs = _of(_configs, ConfigAdmin.replace_configs)
    alter_topic_configs = _of(_configs, ConfigAdmin.alter_topic_configs)

    list_groups = _of(_groups, GroupAdmin.list_groups)
    coordinator = _of(_groups, GroupAdmin.coordinator)
    describe_groups = _of(_groups, GroupAdmin.describe_groups)
    delete_groups = _of(_groups, GroupAdmin.delete_groups)
    group_offsets = _of(_groups, GroupAdmin.group_offsets)
    group_lag = _of(_groups, GroupAdmin.group_lag)
    alter_group_offsets = _of(_groups, GroupAdmin.alter_group_offsets)
    reset_group_offsets = _of(_groups, GroupAdmin.reset_group_offsets)
    delete_group_offsets = _of(_groups, GroupAdmin.delete_group_offsets)

    list_transactions = _of(_transactions, TransactionAdmin.list_transactions)
    transaction_coordinator = _of(_transactions, TransactionAdmin.transaction_coordinator)
    describe_transactions = _of(_transactions, TransactionAdmin.describe_transactions)
    describe_producers = _of(_transactions, TransactionAdmin.describe_producers)
    find_hanging_transactions = _of(_transactions, TransactionAdmin.find_hanging_transactions)
    abort_transaction = _of(_transactions, TransactionAdmin.abort_transaction)

    describe_cluster = _of(_cluster, ClusterAdmin.describe_cluster)
    describe_log_dirs = _of(_cluster, ClusterAdmin.describe_log_dirs)
    elect_leaders = _of(_cluster, ClusterAdmin.elect_leaders)
    reassign_partitions = _of(_cluster, ClusterAdmin.reassign_partitions)
    list_reassignments = _of(_cluster, ClusterAdmin.list_reassignments)

    describe_acls = _of(_acls, AclAdmin.describe_acls)
    create_acls = _of(_acls, AclAdmin.create_acls)
    delete_acls = _of(_acls, AclAdmin.delete_acls)

    describe_user_scram_credentials = _of(_users, UserAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _of(_users, UserAdmin.alter_user_scram_credentials)
    create_delegation_token = _of(_users, UserAdmin.create_delegation_token)
    renew_delegation_token = _of(_users, UserAdmin.renew_delegation_token)
    expire_delegation_token = _of(_users, UserAdmin.expire_delegation_token)
    describe_delegation_token = _of(_users, UserAdmin.describe_delegation_token)

    describe_client_quotas = _of(_quotas, QuotaAdmin.describe_client_quotas)
    alter_client_quotas = _of(_quotas, QuotaAdmin.alter_client_quotas)

    def close(self) -> None:
        """Close the connections. Twice is harmless."""
        self._shell.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shell.is_foreign:
            self.close()
