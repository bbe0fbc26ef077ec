"""Bundles of namespaces, by their range of the hash: 0x00000000_0x40000000."""

import re
from itertools import pairwise
from typing import Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.bundle_path import bundle_of_path
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.cluster_lists import is_replicated, only_cluster
from magnetar.broker.admin.elsewhere import redirect_to, redirect_to_cluster, redirect_to_owner
from magnetar.broker.admin.listed_topics import listed_order
from magnetar.broker.admin.namespace_routes import (
    clear_subscriptions,
    in_bundle,
    unload_topics,
    unsubscribe_everywhere,
)
from magnetar.broker.admin.responses import done, json_response, precondition
from magnetar.broker.admin.routes import ADMIN, NAMESPACE, RouteTable
from magnetar.broker.auth.table import NAMESPACE_ADMIN, NAMESPACE_CONSUME, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import RestError
from magnetar.broker.ownership.ownership import AskBroker, BrokerAddresses, Here, LookupAnswer, ServedAt
from magnetar.broker.policies.records import Policies, bundle_finder, bundle_ranges, hash_of
from magnetar.broker.slices import sliced
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
_EQUAL_PARTS: Final = "range_equally_divide"
_EQUAL_COUNTS: Final = "topic_count_equally_divide"
_GIVEN_POSITIONS: Final = "specified_positions_divide"
_EQUAL_FLOWS: Final = "flow_or_qps_equally_divide"
_ALGORITHMS: Final = (_EQUAL_PARTS, _EQUAL_COUNTS, _GIVEN_POSITIONS, _EQUAL_FLOWS)
_NUMBER: Final = re.compile("0x[0-9a-f]{1,16}")
_TO_PART: Final = 2
_LARGEST, _HOT = "LARGEST", "HOT"


@routes.put(NAMESPACE + "/{bundle}/unload", SUPER)
async def unload_bundle(call: Call) -> Response:
    """Close the topics of the bundle. The next lookup assigns an owner: the broker that ?destinationBroker= names, else
    any broker.
    """
    destination, ownership = call.query("destinationBroker"), call.api.ownership
    if destination and destination not in (await ownership.brokers() or [call.api.urls.broker_id]):
        raise rest_refusals.DESTINATION_INACTIVE.error()
    if not _is_range(call.param("bundle")):
        raise rest_refusals.BUNDLE_TO_UNLOAD_INVALID.error(bundle=call.param("bundle"))
    if not call.namespaces.exists(call.namespace):
        raise rest_refusals.NAMESPACE_UNKNOWN.error()
    bundle = "_".join(_check_bundle(call))
    full = f"{call.namespace}/{bundle}"
    # A call that is authoritative comes from the leader, which has noted the destination.
    if destination and not call.flag("authoritative") and not await ownership.assign(full, destination):
        return await _to_leader(call)
    owner = await ownership.bundle_owner(full)
    if isinstance(owner, ServedAt) and destination:
        await call.peers.call("PUT", f"{ADMIN}/namespaces/{full}/unload")
        return done()
    if isinstance(owner, ServedAt):
        return redirect_to_owner(call, owner.owner)
    if not await ownership.release(full) and owner is not None:
        await unload_topics(call, call.namespace, bundle)
    if call.flag("settled"):  # a broker that deletes the namespace awaits topics whose creation is under way here
        await call.topics.settled(call.namespace)
    return done()


async def _to_leader(call: Call) -> Response:
    """The redirect to the leader, which assigns unowned bundles. Raises 503 when no other broker is the leader."""
    leader = await call.api.ownership.leader()
    if leader is None or leader[0] == call.api.urls.broker_id:
        raise RestError(503, "there is no leader now: repeat the request")
    secure = leader[1].startswith("https:")
    broker = BrokerAddresses(web_url_tls=leader[1]) if secure else BrokerAddresses(web_url=leader[1])
    return redirect_to(call, broker, authoritative=False)


async def _at_owner(call: Call, bundle: str) -> Response | None:
    """The redirect for a bundle that another broker serves or may assign; None when this broker serves the bundle."""
    found = await call.api.ownership.lookup_bundle(
        f"{call.namespace}/{bundle}", authoritative=call.flag("authoritative")
    )
    if isinstance(found, ServedAt):
        return redirect_to_owner(call, found.owner)
    if isinstance(found, AskBroker):
        return redirect_to(call, found.broker, authoritative=found.authoritative)
    return None


@routes.put(NAMESPACE + "/{bundle}/split", SUPER)
async def split_bundle(call: Call) -> Response:
    """Split the bundle at the place that the algorithm chooses. The path may name a bundle by its range, or as LARGEST
    (most topics) or HOT (most traffic).

    Its topics stay loaded; with ?unload=true the new bundles find new owners.
    """
    given = await call.body(list[int]) or []  # Apache Pulsar judges the body first, and then the algorithm
    algorithm = call.query("splitAlgorithmName").strip()
    algorithm = algorithm or call.api.settings.default_namespace_bundle_split_algorithm
    if algorithm not in _ALGORITHMS:
        raise precondition(
            f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(_ALGORITHMS)}]"
        )
    if algorithm == _GIVEN_POSITIONS and not given:
        raise rest_refusals.SPLIT_BOUNDARIES_MISSING.error(algorithm=algorithm)
    low, high = await _chosen_bundle(call)
    if (elsewhere := await _at_owner(call, f"{low}_{high}")) is not None:
        return elsewhere
    if algorithm == _EQUAL_FLOWS:  # in Apache Pulsar, only its load manager has the figures of flows
        raise RestError(500, "only the load manager splits by flows")
    hashes = await _hashes_in(call, f"{low}_{high}")
    cuts = _inside(_cuts(algorithm, int(low, 16), int(high, 16), hashes, given), low, high)
    if not cuts:
        return done()
    full = f"{call.namespace}/{low}_{high}"
    if call.api.peers is not None and not await call.api.ownership.split(full, cuts):
        raise rest_refusals.BUNDLE_UNLOADING.error(bundle=full)

    def cut(old: Policies) -> Policies:
        boundaries = sorted({*(old.bundles.boundaries or []), *(f"0x{each:08x}" for each in cuts)})
        bundles = msgspec.structs.replace(old.bundles, boundaries=boundaries, num_bundles=len(boundaries) - 1)
        return msgspec.structs.replace(old, bundles=bundles)

    await call.namespaces.update_namespace(call.namespace, cut)
    if call.api.peers is not None and call.flag("unload"):
        bounds = [low, *(f"0x{each:08x}" for each in cuts), high]
        for one, two in pairwise(bounds):
            await call.api.ownership.release(f"{call.namespace}/{one}_{two}")
    return done()


def _inside(cuts: list[int], low: str, high: str) -> list[int]:
    return sorted({each for each in cuts if int(low, 16) < each < int(high, 16)})


def _cuts(algorithm: str, low: int, high: int, hashes: list[int], given: list[int]) -> list[int]:
    """The hashes at which to split; none for fewer than two topics, unless the algorithm halves the range."""
    if algorithm == _EQUAL_PARTS:
        return [(low + high) // 2]
    if len(hashes) < _TO_PART:
        return []
    if algorithm == _GIVEN_POSITIONS:
        return [each for each in given if low < each < high]
    if algorithm == _EQUAL_COUNTS:
        middle = len(hashes) // 2
        return [hashes[middle - 1] + (hashes[middle] - hashes[middle - 1]) // 2]
    return []


def _names(call: Call) -> list[str]:
    return [*call.topics.names(call.namespace, "persistent"), *call.topics.names(call.namespace, "non-persistent")]


async def _hashes_in(call: Call, bundle: str) -> list[int]:
    return sorted(hash_of(name) for name in await in_bundle(call, _names(call), bundle))


async def _chosen_bundle(call: Call) -> tuple[str, str]:
    """The bundle of the path. LARGEST counts persistent topics and raises 404 when there are none, HOT when no bundle
    has traffic.
    """
    asked = call.param("bundle")
    if asked not in (_LARGEST, _HOT):
        return _check_bundle(call)
    if not call.namespaces.exists(call.namespace):
        raise rest_refusals.NAMESPACE_UNKNOWN.error()
    bundles = call.bundles()
    topics: dict[str, list[str]] = {bundle: [] for bundle in bundle_ranges(bundles)}
    bundle_of = bundle_finder(bundles)
    counted = call.topics.names(call.namespace, "persistent") if asked == _LARGEST else _names(call)
    async for part in sliced(counted):
        for name in part:
            topics.setdefault(bundle_of(name), []).append(name)
    weights: dict[str, float] = {}
    for bundle, names in topics.items():
        weights[bundle] = len(names) if asked == _LARGEST else await _traffic(call, names)
    chosen = max(weights, key=weights.__getitem__, default="")
    if not weights.get(chosen):
        raise rest_refusals.BUNDLE_RANGE_UNKNOWN.error(bundle=asked)
    low, _, high = chosen.partition("_")
    return low, high


async def _traffic(call: Call, names: list[str]) -> float:
    """Bytes per second into and out of the topics."""
    found = 0.0
    for name in names:
        stats = await call.logs.stats(TopicName.parse(name), earliest_in_backlog=False)
        found += stats.msg_throughput_in + sum(each.msg_throughput_out for each in stats.subscriptions.values())
    return found


@routes.delete(NAMESPACE + "/{bundle}", NAMESPACE_ADMIN)
async def delete_bundle(call: Call) -> Response:
    """Unload the bundle, which continues to exist; refused for a bundle that no broker serves and, without
    ?force=true, for a bundle with persistent topics.
    """
    if is_replicated(call.policies()):
        raise rest_refusals.BUNDLE_REPLICATED.error(namespace=call.namespace)
    if (redirect := redirect_to_cluster(call, only_cluster(call.policies()))) is not None:
        return redirect
    bundle = "_".join(_check_bundle(call))
    if isinstance(owner := await _present_owner(call, bundle), ServedAt):
        return redirect_to_owner(call, owner.owner)
    if not call.flag("force") and await in_bundle(call, call.topics.names(call.namespace, "persistent"), bundle):
        raise rest_refusals.BUNDLE_IN_USE.error()
    if not await call.api.ownership.release(f"{call.namespace}/{bundle}"):
        await unload_topics(call, call.namespace, bundle)
    return done()


@routes.post(NAMESPACE + "/{bundle}/clearBacklog", NAMESPACE_CONSUME)
async def clear_bundle_backlog(call: Call) -> Response:
    bundle = "_".join(_check_bundle(call))
    if (elsewhere := await _at_owner(call, bundle)) is not None:
        return elsewhere
    await clear_subscriptions(call, None, bundle)
    return done()


@routes.post(NAMESPACE + "/{bundle}/clearBacklog/{subscription}", NAMESPACE_CONSUME)
async def clear_bundle_backlog_of_subscription(call: Call) -> Response:
    bundle = "_".join(_check_bundle(call))
    if (elsewhere := await _at_owner(call, bundle)) is not None:
        return elsewhere
    await clear_subscriptions(call, call.param("subscription"), bundle)
    return done()


def _is_range(bundle: str) -> bool:
    low, high, *_ = [*bundle.lower().split("_"), ""]
    return bool(_NUMBER.fullmatch(low) and _NUMBER.fullmatch(high)) and int(low, 16) < int(high, 16)


@routes.get(ADMIN + "/non-persistent/{tenant}/{namespace}/{bundle}", NAMESPACE_ADMIN)
async def topics_of_bundle(call: Call) -> Response:
    """The non-persistent topics of the bundle that are loaded; 204 for a bundle that no broker serves."""
    bundle = "_".join(_check_bundle(call))
    owner = await _owner_now(call, bundle)
    if owner is None:
        return done()
    if isinstance(owner, ServedAt):
        return redirect_to_owner(call, owner.owner)
    names = call.topics.names(call.namespace, "non-persistent")
    return json_response(await listed_order(call, await in_bundle(call, names, bundle)))


@routes.get(NAMESPACE + "/{bundle}/topicHashPositions", NAMESPACE_ADMIN)
async def hash_positions(call: Call) -> Response:
    """Show the hashes of the bundle's topics; ?topics= selects topics, and of a partitioned topic its partitions."""
    low, high = bundle_of_path(call)
    if isinstance(owner := await _present_owner(call, f"{low}_{high}"), ServedAt):
        return redirect_to_owner(call, owner.owner)
    names = await in_bundle(call, _names(call), f"{low}_{high}")
    wanted = [text for each in call.request.query_params.getlist("topics") for text in each.split(",") if text]
    if wanted:
        asked = {str(TopicName.parse(text)) for text in wanted}
        chosen: list[str] = []
        async for part in sliced(names):
            chosen += [name for name in part if name in asked or str(TopicName.parse(name).base) in asked]
        names = chosen
    found = {name: hash_of(name) for name in names}
    return json_response({"namespace": call.namespace, "bundle": f"{low}_{high}", "topicHashPositions": found})


def _check_bundle(call: Call) -> tuple[str, str]:
    """The two boundaries of the bundle in the path; raises 404 without the namespace, 412 without such a bundle."""
    if not call.namespaces.exists(call.namespace):
        raise rest_refusals.NAMESPACE_UNKNOWN.error()
    call.namespaces.require_local(call.namespace)
    return bundle_of_path(call)


async def _present_owner(call: Call, bundle: str) -> LookupAnswer:
    """Return the owner of the bundle without assigning one; raises 412 for a bundle that no broker serves, such as each
    bundle of a missing namespace.
    """
    owner = await _owner_now(call, bundle) if call.namespaces.exists(call.namespace) else None
    if owner is None:
        raise rest_refusals.BUNDLE_UNOWNED.error(bundle=f"{call.namespace}/{bundle}")
    return owner


async def _owner_now(call: Call, bundle: str) -> LookupAnswer | None:
    """The owner of the bundle; None without one. Outside a cluster a bundle has an owner while a topic is loaded."""
    ownership = call.api.ownership
    if ownership.owned() is not None:
        return await ownership.bundle_owner(f"{call.namespace}/{bundle}")
    return Here() if await _has_loaded_topic(call, bundle) else None


async def _has_loaded_topic(call: Call, bundle: str) -> bool:
    bundle_of = bundle_finder(call.bundles())
    async for part in sliced(call.topics.loaded_names(call.namespace)):
        if any(bundle_of(str(name)) == bundle for name in part):
            return True
    return False


@routes.post(NAMESPACE + "/{bundle}/unsubscribe/{subscription}", NAMESPACE_CONSUME)
async def unsubscribe_bundle(call: Call) -> Response:
    bundle = "_".join(_check_bundle(call))
    if (elsewhere := await _at_owner(call, bundle)) is not None:
        return elsewhere
    return await unsubscribe_everywhere(call, bundle)
