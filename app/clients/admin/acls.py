"""`Admin`: access control lists."""

from __future__ import annotations

from collections.abc import Iterable

from ....core.client.calls import Target
from ....ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    CreateAcls,
    CreateAclsResult,
    DeleteAcls,
    DeleteAclsResult,
    DescribeAcls,
    DescribeAclsResult,
)
from .asker import AdminRequests, check


class AclAdmin:
    """Describes, creates and deletes ACLs."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_acls(self, selected: AclBindingFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that the filter selects; None: all.

        Raises `ApiError` (SECURITY_DISABLED where the brokers have no authorizer, ...).
        """
        request = DescribeAcls(filter=selected or AclBindingFilter())
        result: DescribeAclsResult = self._asker.shell.ask(request)
        check(result.error, result.error_message, "the ACLs")
        return list(result.acls)

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Add ACLs; one that exists already is a success. Raises `ApiError`."""
        wanted = list(acls)
        result: CreateAclsResult = self._asker.shell.ask(CreateAcls(acls=wanted), Target.CONTROLLER)
        for acl, outcome in zip(wanted, result.results, strict=True):
            check(outcome.error, outcome.error_message, str(acl))

    def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Delete the ACLs that one of the filters selects, and return them. Raises `ApiError`."""
        wanted = list(filters)
        result: DeleteAclsResult = self._asker.shell.ask(DeleteAcls(filters=wanted), Target.CONTROLLER)
        for selected, outcome in zip(wanted, result.results, strict=True):
            check(outcome.error, outcome.error_message, str(selected))
        return list(dict.fromkeys(acl for outcome in result.results for acl in outcome.acls))
