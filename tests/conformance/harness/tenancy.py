"""A tenant with a namespace and a topic, and the grants of roles, for scenarios of the broker of auth.conf."""

from harness.steps import rest
from transcript import jwt


def grant(s, place, grants):
    """Grant actions to roles (role: actions) at a place: a REST path of a namespace or topic."""
    for role, actions in grants.items():
        s.http("POST", f"{place}/permissions/{role}", actions, quietly=True)


def world(s, admins=("boss",), **grants):
    """As super user: a tenant with its administrators, a namespace with grants (role=[actions]) and a topic, loaded;
    their names.
    """
    s.token = jwt("admin")
    namespace = s.tag + "/ns"
    topic = f"persistent://{namespace}/t"
    info = {"adminRoles": list(admins), "allowedClusters": ["standalone"]}
    s.http("PUT", f"/admin/v2/tenants/{s.tag}", info, quietly=True)
    s.http("PUT", f"/admin/v2/namespaces/{namespace}", {}, quietly=True)
    s.http("PUT", rest(topic), quietly=True)
    grant(s, f"/admin/v2/namespaces/{namespace}", grants)
    s.lookup(topic)
    return namespace, topic


def as_role(s, role, name=None, **fields):
    """A connection of the role; without credentials for an empty role."""
    return s.connect(name or role or "anonymous", token=role and jwt(role), **fields)
