"""`Admin` is one flat face over its families of calls."""

import inspect

import pytest

from barnabas import Admin
from barnabas.app.clients.admin.admin import AclAdmin, ClusterAdmin, ConfigAdmin, TransactionAdmin
from barnabas.app.clients.admin.groups import GroupAdmin
from barnabas.app.clients.admin.quotas import QuotaAdmin
from barnabas.app.clients.admin.topics import TopicAdmin
from barnabas.app.clients.admin.users import UserAdmin

FAMILIES = (TopicAdmin, ConfigAdmin, GroupAdmin, TransactionAdmin, ClusterAdmin, AclAdmin, UserAdmin, QuotaAdmin)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_of_a_family_is_one_of_admin(family: type) -> None:
    """With the signature and the words that it has there; and no other family has one of that name."""
    calls = {name: call for name, call in vars(family).items() if not name.startswith("_")}
    assert calls
    for name, call in calls.items():
        of_admin = vars(Admin)[name]
        assert inspect.unwrap(of_admin) is call, name
        assert inspect.signature(of_admin) == inspect.signature(call)
        assert of_admin.__doc__
        assert of_admin.__qualname__ == f"Admin.{name}"
