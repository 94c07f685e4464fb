"""The keys of quotas, by Kafka's names."""

from ...ports.values import frozen
from .keys import int_key


@frozen(kw_only=True, slots=False)
class QuotaKeys:
    """A part of the table; see `BrokerConfig`."""

    quota_window_num: int = int_key("quota.window.num", 11, 1, doc="The number of samples of a client quota.")
    quota_window_size_seconds: int = int_key("quota.window.size.seconds", 1, 1, doc="The time of one sample.")
    controller_quota_window_num: int = int_key(
        "controller.quota.window.num", 11, 1, doc="The number of samples of a quota of controller mutations."
    )
    controller_quota_window_size_seconds: int = int_key(
        "controller.quota.window.size.seconds", 1, 1, doc="The time of one sample of controller mutations."
    )
