"""DescribeClientQuotas: there are none."""

from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.quotas import DescribeClientQuotas, DescribeClientQuotasResult


class QuotaService:
    """Knows no limits."""

    def describe(
        self, _request: DescribeClientQuotas, _caller: Caller, reply: Reply[DescribeClientQuotasResult]
    ) -> None:
        reply(DescribeClientQuotasResult(entries=()))
