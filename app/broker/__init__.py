"""The broker's use cases: one file per family of requests, one table that leads to them."""

from .service import BrokerService

__all__ = ["BrokerService"]
