"""DescribeClientQuotas: this broker has no client quotas."""

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.quotas import DescribeClientQuotas, DescribeClientQuotasResult


class QuotaService:
    """Returns no quotas."""

    def describe(
        self, _request: DescribeClientQuotas, _caller: Caller, reply: Reply[DescribeClientQuotasResult]
    ) -> None:
        reply(DescribeClientQuotasResult(entries=()))
