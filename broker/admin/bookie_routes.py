"""Bookies: their list, their racks and groups, and the groups of bookies that a namespace uses for its ledgers.

A broker of a cluster reads and writes the nodes of Apache Pulsar. A single broker has no bookies: it stores the values
that tools set with the cluster and the namespace, and shows them.
"""

from collections.abc import Callable

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import done, json_response
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, RouteTable
from magnetar.broker.auth.table import SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import RestError
from magnetar.broker.policies.records import shown
from magnetar.broker.policies.values import BookieAffinity
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
RACKS = ADMIN + "/bookies/racks-info"
AFFINITY = NAMESPACE + "/persistence/bookieAffinity"

Groups = dict[str, dict[str, dict[str, str]]]


class BookieInfo(msgspec.Struct):
    """Rack and host name of a bookie."""

    rack: str | None = None
    hostname: str | None = None

    def given(self) -> dict[str, str]:
        """The fields that the request gave."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


@routes.get(ADMIN + "/bookies/all", SUPER)
async def bookies(call: Call) -> Response:
    """Show every bookie that has ever registered in the cluster."""
    known = [] if call.api.bookies is None else await call.api.bookies.known()
    return json_response({"bookies": [{"bookieId": bookie} for bookie in known]})


# --- racks ------------------------------------------------------------------------------------------------------


async def _racks(call: Call) -> Groups:
    if call.api.bookies is not None:
        return await call.api.bookies.racks()
    own = call.namespaces.clusters.get(call.api.settings.cluster_name)
    return (own.bookie_racks if own else None) or {}


async def _change_racks(call: Call, change: Callable[[Groups], Groups]) -> Response:
    if call.api.bookies is not None:
        await call.api.bookies.change_racks(change)
    else:
        await call.namespaces.clusters.update(
            call.api.settings.cluster_name,
            lambda old: msgspec.structs.replace(old, bookie_racks=change(old.bookie_racks or {})),
        )
    return done()


async def _info(call: Call) -> dict[str, str]:
    bookie = call.param("bookie")
    for members in (await _racks(call)).values():
        if bookie in members:
            return members[bookie]
    raise rest_refusals.BOOKIE_RACK_UNKNOWN.error(bookie=bookie)


@routes.get(RACKS, SUPER)
async def racks(call: Call) -> Response:
    return json_response(await _racks(call))


@routes.get(RACKS + "/{bookie}", SUPER)
async def rack(call: Call) -> Response:
    return json_response(await _info(call))


@routes.post(RACKS + "/{bookie}", SUPER)
async def set_rack(call: Call) -> Response:
    """Set the rack of a bookie in the group ?group=; a bookie is in a single group, whose name may be empty."""
    info = await call.body(BookieInfo)
    group, bookie = call.query("group"), call.param("bookie")
    if "group" not in call.request.query_params:
        raise rest_refusals.BOOKIE_GROUP_MISSING.error()
    if info is None:
        raise RestError(500, "the place of the bookie is required")
    _check_rack(call, info.rack or "")

    def change(groups: Groups) -> Groups:
        others = _without(groups, bookie)
        return others | {group: others.get(group, {}) | {bookie: info.given()}}

    return await _change_racks(call, change)


@routes.delete(RACKS + "/{bookie}", SUPER)
async def remove_rack(call: Call) -> Response:
    await _info(call)
    return await _change_racks(call, lambda groups: _without(groups, call.param("bookie")))


def _check_rack(call: Call, rack: str) -> None:
    """Raise 412 for a rack below a number of regions that the placement of bookies does not expect."""
    settings = call.api.settings
    regions = 1 if settings.bookkeeper_client_regionaware_policy_enabled else 0
    if settings.bookkeeper_client_rackaware_policy_enabled and rack.strip("/").count("/") != regions:
        raise rest_refusals.BOOKIE_RACK_INVALID.error()


def _without(groups: Groups, bookie: str) -> Groups:
    """Return all groups without that bookie; a group that had no other bookie is gone."""
    others = {name: {k: v for k, v in members.items() if k != bookie} for name, members in groups.items()}
    return {name: members for name, members in others.items() if members or bookie not in groups[name]}


# --- groups of a namespace --------------------------------------------------------------------------------------


@routes.get(AFFINITY, SUPER)
async def bookie_affinity(call: Call) -> Response:
    """Show the groups; an empty body for local policies without groups, 404 for a namespace without local policies."""
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    if call.api.bookies is not None:
        used, groups = await call.api.bookies.affinity(call.namespace)
    else:
        used, groups = _kept_affinity(call)
    if groups is not None:
        return json_response(shown(groups))
    if not used:
        raise rest_refusals.LOCAL_POLICIES_MISSING.error()
    return done(200)


def _kept_affinity(call: Call) -> tuple[bool, BookieAffinity | None]:
    policies = call.namespaces.policies(call.namespace)
    if policies is None:
        return False, None
    names = (TopicName.parse(name) for name in call.topics.names(call.namespace, "persistent"))
    used = call.namespace in call.namespaces.in_use or any(not name.is_partition for name in names)
    return used or policies.anti_affinity_group is not None, policies.bookie_affinity


@routes.post(AFFINITY, SUPER)
async def set_bookie_affinity(call: Call) -> Response:
    groups = await call.body(BookieAffinity)
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    call.namespaces.in_use.add(call.namespace)
    return await _store_affinity(call, groups)


@routes.delete(AFFINITY, SUPER)
async def remove_bookie_affinity(call: Call) -> Response:
    call.local_policies(rest_refusals.NAMESPACE_UNKNOWN.error())
    call.namespaces.in_use.add(call.namespace)
    return await _store_affinity(call, None)


async def _store_affinity(call: Call, groups: BookieAffinity | None) -> Response:
    if call.api.bookies is not None:
        await call.api.bookies.set_affinity(call.namespace, groups)
    else:
        await call.namespaces.update_namespace(
            call.namespace, lambda old: msgspec.structs.replace(old, bookie_affinity=groups)
        )
    return done()
