"""Bundles: split algorithms with topics, boundaries of odd numbers, ranges by hash, unloads with and without clients."""

from transcript import scenario

ALGOS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
    "unknown",
    "",
)


def made(s, n=None, boundaries=None):
    ns = s.namespace()
    body = {}
    if n:
        body = {"bundles": {"numBundles": n}}
    if boundaries:
        body = {"bundles": {"numBundles": len(boundaries) - 1, "boundaries": boundaries}}
    s.call("PUT", "/admin/v2/namespaces/" + ns, body)
    return ns, "/admin/v2/namespaces/" + ns


@scenario
def splits_by_every_algorithm_of_empty_bundles(s):
    for a in ALGOS:
        for unload in ("true", "false"):
            ns, p = made(s, 1)
            s.call("PUT", f"{p}/0x00000000_0xffffffff/split?splitAlgorithmName={a}&unload={unload}")
            s.call("GET", p + "/bundles", keep=True)
            s.tag += "x"


@scenario
def splits_of_bundles_named_by_size(s):
    ns, p = made(s, 4)
    for name in (
        "LARGEST",
        "HOT",
        "largest",
        "0x00000000_0x40000000",
        "0x00000000_0x80000000",
        "0x0_0x40000000",
        "0x40000000_0x00000000",
        "x_y",
        "0x00000000",
        "0x00000000_0x40000000_0x5",
        "0x00000000-0x40000000",
    ):
        for path in ("split", "unload", "clearBacklog", "topics", "clearBacklog/s", "unsubscribe/s"):
            s.call(
                "PUT" if path in ("split", "unload") else "GET" if path == "topics" else "POST",
                f"{p}/{name}/{path}",
                keep=True,
            )
    s.call("GET", p + "/bundles", keep=True)


@scenario
def splits_at_positions_in_every_form(s):
    for body in (
        [],
        [1],
        [0x40000000],
        [0x80000000, 0x40000000],
        [-1],
        [0xFFFFFFFF],
        [0],
        "x",
        {"a": 1},
        None,
        [0x40000000, 0x40000000],
        [0x1FFFFFFFF],
    ):
        ns, p = made(s, 1)
        s.call("PUT", f"{p}/0x00000000_0xffffffff/split?splitAlgorithmName=specified_positions_divide", body)
        s.call("GET", p + "/bundles", keep=True)
        s.tag += "x"


@scenario
def namespaces_by_boundaries_in_every_form(s):
    for boundaries in (
        ["0x00000000", "0xffffffff"],
        ["0x0", "0xffffffff"],
        ["0x00000000", "0x80000000", "0xffffffff"],
        ["0x80000000", "0x00000000", "0xffffffff"],
        ["0x00000000", "0x80000000"],
        ["0x00000001", "0xffffffff"],
        ["0x00000000", "x", "0xffffffff"],
        ["0x00000000"],
        ["0x00000000", "0x00000000", "0xffffffff"],
        ["0X00000000", "0XFFFFFFFF"],
        ["0", "4294967295"],
    ):
        ns, p = made(s, boundaries=boundaries)
        s.call("GET", p + "/bundles", keep=True)
        s.call("GET", p, keep=["bundles"])
        s.tag += "x"
    for n in (0, -1, 1, 3, 5, 7, 64, 100):
        s.call("PUT", f"/admin/v2/namespaces/{s.namespace()}", {"bundles": {"numBundles": n}})
        s.call("GET", f"/admin/v2/namespaces/{s.namespace()}/bundles", keep=True)
        s.tag += "y"


@scenario
def bundle_of_a_topic_and_its_hash(s):
    s.call("GET", "/lookup/v2/topic/persistent/public/none-such/a/bundle", keep=True)
    s.call("GET", "/lookup/v2/topic/x/public/default/a/bundle", keep=True)
    s.call("GET", "/lookup/v2/topic/persistent/public/default/fixed-name/bundle", keep=True)
    s.call("GET", "/lookup/v2/topic/non-persistent/public/default/fixed-name/bundle", keep=True)
    s.call("GET", "/lookup/v2/topic/persistent/public/default/fixed-name-partition-3/bundle", keep=True)


@scenario
def unloads_by_bundle_close_only_theirs(s):
    ns, p = made(s, 2)
    c = s.connect()
    for i in range(6):
        t = f"persistent://{ns}/t{i}"
        s.lookup(t)
        c.producer(t, i, quietly=True)
    for b in ("0x00000000_0x80000000", "0x80000000_0xffffffff"):
        st, _ = s.http("GET", f"{p}/{b}/topics", quietly=True)
        s.note("topics", [st])
        s.call("PUT", f"{p}/{b}/unload")
        n = 0
        while c.recv_quietly(0.4):
            n += 1
    s.call("PUT", f"{p}/unload")
    s.call("PUT", f"{p}/0x00000000_0x80000000/unload?destinationBroker=none:1")
    s.call("PUT", f"{p}/0x00000000_0x80000000/unload?authoritative=true")
    s.call("PUT", f"{p}/0x00000000_0x80000000/split?unload=true")
    s.call("GET", p + "/bundles", keep=True)
