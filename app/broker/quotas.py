"""DescribeClientQuotas: there are none."""

from ...ports.broker_api import Caller, DescribeClientQuotas, DescribeClientQuotasResult, Reply


class QuotaService:
    """Knows no limits."""

    def describe(
        self, _request: DescribeClientQuotas, _caller: Caller, reply: Reply[DescribeClientQuotasResult]
    ) -> None:
        reply(DescribeClientQuotasResult(entries=()))
