"""The broker service, which passes each request to the handler of its type."""

from collections.abc import Callable
from typing import Any

from ...core.coordinator.group.group_config import GroupConfigManager
from ...core.replica.leader.replica_selector import ReplicaSelector
from ...core.share.persister import Persister
from ...ports.broker_api.acls import CreateAcls, DeleteAcls, DescribeAcls, ResourceType
from ...ports.broker_api.classic import ClassicFetch, ClassicOffsets, ClassicProduce
from ...ports.broker_api.cluster import (
    DescribeCluster,
    DescribeConnections,
    DescribeLogDirs,
    DescribeQuorum,
    UnregisterBroker,
)
from ...ports.broker_api.configs import AlterConfigs, DescribeConfigs, IncrementalAlterConfigs, ListConfigResources
from ...ports.broker_api.envelope import Caller, Reply, Request, ResultT
from ...ports.broker_api.epochs import OffsetForLeaderEpoch
from ...ports.broker_api.features import DescribeFeatures, UpdateFeatures
from ...ports.broker_api.fetch import Fetch
from ...ports.broker_api.groups import FindCoordinator
from ...ports.broker_api.metadata import DescribeTopicPartitions, Metadata
from ...ports.broker_api.mirroring import MirrorRecords
from ...ports.broker_api.offsets import ListOffsets
from ...ports.broker_api.operations import Operation
from ...ports.broker_api.produce import Produce
from ...ports.broker_api.producers import DescribeProducers, InitProducerId
from ...ports.broker_api.quotas import AlterClientQuotas, DescribeClientQuotas
from ...ports.broker_api.replicas import AlterPartitionReassignments, ElectLeaders, ListPartitionReassignments
from ...ports.broker_api.scram import AlterUserScramCredentials, DescribeUserScramCredentials
from ...ports.broker_api.share_groups import ShareAcknowledge, ShareFetch
from ...ports.broker_api.share_partitions import DescribeSharePartitions
from ...ports.broker_api.telemetry import GetTelemetrySubscriptions, PushTelemetry
from ...ports.broker_api.tokens import (
    CreateDelegationToken,
    DescribeDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from ...ports.broker_api.topics import CreatePartitions, CreateTopics, DeleteRecords, DeleteTopics
from ...ports.broker_api.transactions import WriteTxnMarkers
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, broker_failed
from ...ports.transport import TransportError
from .handlers.classic import ClassicService
from .handlers.cluster import (
    ClusterService,
    ConnectionService,
    FeatureService,
    LogDirService,
    QuorumService,
    TelemetryService,
    UnregisterService,
)
from .handlers.configs import ConfigService, GroupConfigService, QuotaService
from .handlers.fetch import FetchService
from .handlers.groups import CoordinatorService, GroupService
from .handlers.internal_topic_creation import InternalReplicas, InternalTopics
from .handlers.log_offsets import EpochService, ListOffsetsService, RecordService
from .handlers.metadata import MetadataService
from .handlers.mirroring import MirrorService
from .handlers.produce import ProduceService
from .handlers.producer_id_manager import ProducerIds
from .handlers.replicas import ReplicaService
from .handlers.security import AclService, ScramService, TokenService
from .handlers.share_fetch import ShareFetchService
from .handlers.share_group_dlq_manager import ShareGroupDLQManager
from .handlers.share_groups import share_group_handlers
from .handlers.share_state import ShareCoordinatorService
from .handlers.topics import TopicService
from .handlers.transactions import MarkerService, ProducerService, TransactionService
from .state.authorization import Authorization
from .state.broker_state import BrokerState

Handler = Callable[[Any, Caller, Any], None]
"""(request, caller, reply); the types of request and reply belong together through the table below."""


class BrokerService:
    """Implements `BrokerApi`. Owner thread only."""

    def __init__(
        self,
        state: BrokerState,
        selector: ReplicaSelector | None = None,
        authorization: Authorization | None = None,
        persister: Persister | None = None,
        group_configs: GroupConfigManager | None = None,
    ) -> None:
        """Create it.

        `authorization` None: every caller may do everything. `persister` stores the states of share partitions; None:
        the share coordinators of the cluster do.
        """
        self._state = state
        self._authorization = authorization
        if authorization is not None:
            from .handlers.authorization import authorize  # what each request may touch: not needed without ACLs

            self._authorize = authorize
        self._is_closed = False
        self.requests = 0
        """The number of requests so far."""
        topics = self.topics = TopicService(state)
        configs_of_groups = GroupConfigService(state, group_configs)
        self.group_configs = configs_of_groups.manager
        configs = ConfigService(state, topics, configs_of_groups)
        classic = ClassicService(state)
        internal = InternalTopics(state, topics)
        producer_ids = ProducerIds(state)
        quotas = self.quotas = QuotaService(state)
        replicas = ReplicaService(state, topics)
        self.connections = ConnectionService(state)
        features = FeatureService(state)
        telemetry = TelemetryService(state)
        metadata = MetadataService(state, topics)
        self.transactions = TransactionService(state, internal, producer_ids, state.replicas.markers.write)
        verify = self.transactions.verifier.verify
        self.verified_appends = state.replicas.verified_appends(verify)
        self.share_coordinator = ShareCoordinatorService(state, internal)
        if persister is None:
            persister = self.share_coordinator.persister
        self.groups = GroupService(state, verify, self.group_configs, authorization, persister)
        scram = ScramService(state)
        self._tokens = TokenService(
            state,
            may_create=lambda caller, owner: (
                authorization is None
                or authorization.allows(caller, Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
            ),
        )
        producers = ProducerService(state, producer_ids, self.transactions.coordinator.init_producer_id)
        self._internal_replicas = InternalReplicas(state, topics)
        self._internal_replicas.start()
        sessions_max = state.settings.static.group_share_max_share_sessions
        shares = ShareFetchService(
            state,
            persister,
            self.group_configs,
            authorization,
            lambda: sessions_max,
            ShareGroupDLQManager(state, topics, self.group_configs).send,
        )
        acls = AclService(state, has_acls=authorization is not None and authorization.has_acls)
        self._handlers: dict[type[Request[Any]], Handler] = {
            Produce: ProduceService(state, self.verified_appends).handle,
            Fetch: FetchService(state, selector).handle,
            ListOffsets: ListOffsetsService(state).handle,
            Metadata: metadata.handle,
            DescribeTopicPartitions: metadata.describe,
            CreateTopics: topics.create,
            CreatePartitions: topics.grow,
            DeleteTopics: topics.delete,
            DeleteRecords: RecordService(state).delete,
            DescribeConfigs: configs.describe,
            ListConfigResources: configs.list_resources,
            IncrementalAlterConfigs: configs.alter,
            AlterConfigs: configs.replace,
            DescribeCluster: ClusterService(state).describe,
            DescribeLogDirs: LogDirService(state).describe,
            DescribeQuorum: QuorumService(state).describe,
            GetTelemetrySubscriptions: telemetry.subscriptions,
            PushTelemetry: telemetry.push,
            DescribeFeatures: features.describe,
            UpdateFeatures: features.update,
            UnregisterBroker: UnregisterService(state, topics).unregister,
            DescribeConnections: self.connections.describe,
            MirrorRecords: MirrorService(state).append,
            InitProducerId: producers.init,
            DescribeProducers: producers.describe,
            WriteTxnMarkers: MarkerService(state).write,
            ElectLeaders: replicas.elect,
            AlterPartitionReassignments: replicas.reassign,
            ListPartitionReassignments: replicas.list_moves,
            OffsetForLeaderEpoch: EpochService(state).find,
            DescribeClientQuotas: quotas.describe,
            AlterClientQuotas: quotas.alter,
            DescribeUserScramCredentials: scram.describe,
            AlterUserScramCredentials: scram.alter,
            CreateDelegationToken: self._tokens.create,
            RenewDelegationToken: self._tokens.renew,
            ExpireDelegationToken: self._tokens.expire,
            DescribeDelegationToken: self._tokens.describe,
            DescribeAcls: acls.describe,
            CreateAcls: acls.create,
            DeleteAcls: acls.delete,
            FindCoordinator: CoordinatorService(state, internal).find,
            ClassicProduce: classic.produce,
            ClassicFetch: classic.fetch,
            ClassicOffsets: classic.offsets,
            **self.groups.handlers,
            **self.transactions.handlers,
            **self.share_coordinator.handlers,
            ShareFetch: shares.fetch,
            ShareAcknowledge: shares.acknowledge,
            **share_group_handlers(state, self.groups.coordinator),
            DescribeSharePartitions: shares.describe,
        }
        self._counts = {
            kind: state.metrics.counter(
                "kafka_network_requestmetrics_requests_total", "Requests answered.", request=kind.__name__
            ).add
            for kind in self._handlers
        }

    def start(self) -> None:
        """Start the coordinators, after the topics of an earlier start are open."""
        self.groups.start()
        self.transactions.start()
        self.share_coordinator.start()
        self._tokens.start()

    def stop_coordinating(self) -> None:
        """Stop the coordinators, which answer waiting requests with NOT_COORDINATOR. Twice is harmless."""
        self.transactions.close()
        self.groups.close()
        self.share_coordinator.close()

    def close(self) -> None:
        """Refuse requests from now on: the logs are about to be closed."""
        self._is_closed = True
        self._tokens.close()
        self.stop_coordinating()

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        """Handle the request (see `BrokerApi`), if the authorizer allows it.

        An exception is reported and answered with UNKNOWN_SERVER_ERROR, in the error form of the request's result.
        """
        if self._is_closed:
            reply(TransportError("the broker is about to stop"))
            return
        count = self._counts.get(type(request))
        if count is None:
            reply(ApiError(ErrorCode.UNSUPPORTED_VERSION, f"this broker does not support {type(request).__name__}"))
            return
        answered = False
        # Waiting requests must not keep the records of a produce, which are in the connection's memory.
        retained_request = None if type(request) is Produce else request

        def once(result: Any) -> None:
            nonlocal answered
            answered = True
            if isinstance(result, ApiError) and retained_request is not None:
                result = retained_request.failed(result)
            reply(result)

        count()
        self.requests += 1
        try:
            handle = self._handlers[type(request)]
            if self._authorization is None:
                handle(request, caller, once)
            else:
                self._authorize(self._authorization, self._state, request, caller, handle, once)
        except Exception as error:  # noqa: BLE001  reported; one request must not stop the broker
            self._state.failed(f"{type(request).__name__} from {caller.host or 'inside'}", error)
            if not answered:
                reply(request.failed(broker_failed()))
