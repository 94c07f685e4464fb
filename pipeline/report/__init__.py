"""From a loaded table to one HTML page."""

from .page import ReportResult, report

__all__ = ["ReportResult", "report"]
