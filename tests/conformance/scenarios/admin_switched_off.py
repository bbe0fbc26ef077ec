"""Paths of features that are switched off or absent: functions, connectors, packages, transactions, workers; racks of bookies."""

from transcript import scenario

V2, V3 = "/admin/v2", "/admin/v3"
FUNCTION = "public/default/f"


@scenario
def functions_that_are_off(s):
    for path in ("/connectors", "/builtins", "/download", "/public/default", f"/{FUNCTION}", f"/{FUNCTION}/status"):
        s.call("GET", V3 + "/functions" + path)
    for path in ("/0/status", "/stats", "/0/stats", "/download", "/state/k"):
        s.call("GET", f"{V3}/functions/{FUNCTION}{path}")
    for path in ("/restart", "/stop", "/start", "/0/restart", "/0/stop", "/0/start"):
        s.call("POST", f"{V3}/functions/{FUNCTION}{path}")
    s.call("POST", V3 + "/functions/builtins/reload")
    s.call("DELETE", f"{V3}/functions/{FUNCTION}")


@scenario
def functions_of_version_two_that_are_off(s):
    for path in ("/connectors", "/download", "/public/default", f"/{FUNCTION}", f"/{FUNCTION}/status"):
        s.call("GET", V2 + "/functions" + path)
    for path in ("/stats", "/download", "/0/stats"):
        s.call("GET", f"{V2}/functions/{FUNCTION}{path}")
    s.call("POST", f"{V2}/functions/{FUNCTION}/start")
    s.call("POST", f"{V2}/functions/{FUNCTION}/stop")


@scenario
def functions_put_as_what_is_no_form(s):
    for family in ("functions", "sinks", "sources", "sink", "source"):
        for method in ("PUT", "POST"):
            s.call(method, f"{V3}/{family}/{FUNCTION}")
            s.call(method, f"{V3}/{family}/{FUNCTION}", {"className": "C"})


@scenario
def connectors_that_are_off(s):
    for kind in ("sink", "source"):
        for family in (kind, kind + "s"):
            base = f"{V3}/{family}"
            for path in (f"/builtin{kind}s", f"/builtin{kind}s/x/configdefinition", "/public/default", f"/{FUNCTION}"):
                s.call("GET", base + path)
            s.call("GET", f"{base}/{FUNCTION}/0/status")
            s.call("POST", f"{base}/reloadBuiltIn{kind.capitalize()}s")
            s.call("POST", f"{base}/{FUNCTION}/start")
            s.call("DELETE", f"{base}/{FUNCTION}")


@scenario
def workers_that_are_off(s):
    for path in (
        "cluster",
        "cluster/leader",
        "cluster/leader/ready",
        "assignments",
        "connectors",
        "drain",
        "leader/drain",
    ):
        s.call("GET", f"{V2}/worker/{path}")
    s.call("PUT", V2 + "/worker/rebalance")
    s.call("PUT", V2 + "/worker/drain")
    s.call("GET", V2 + "/worker-stats/metrics")
    s.call("GET", V2 + "/worker-stats/functionsmetrics")


@scenario
def paths_of_nobody_beside_functions_and_transactions(s):
    for path in (
        "functions",
        "functions/public",
        "sinks",
        "sources",
        "packages",
        "packages/x",
        "transactions/nope",
        "nope",
    ):
        s.call("GET", f"{V3}/{path}")
    for path in ("worker", "worker/nope", "worker-stats", "worker-stats/nope", "functions/public", "bookies/nope"):
        s.call("GET", f"{V2}/{path}")


@scenario
def packages_that_are_off(s):
    for kind in ("function", "sink", "source"):
        base = f"{V3}/packages/{kind}/public/default"
        for path in ("", "/p", "/p/v", "/p/v/metadata"):
            s.call("GET", base + path)
        s.call("DELETE", base + "/p/v")
        s.call("PUT", base + "/p/v/metadata", {"description": "d"})
        s.call("POST", base + "/p/v")
        s.call("POST", base + "/p/v", {})


@scenario
def packages_of_a_kind_that_is_none(s):
    base = V3 + "/packages/thing/public/default"
    for path in ("", "/p", "/p/v", "/p/v/metadata"):
        s.call("GET", base + path)
    s.call("DELETE", base + "/p/v")
    s.call("PUT", base + "/p/v/metadata", {"description": "d"})


@scenario
def transactions_that_are_off(s):
    topic = s.topic().removeprefix("persistent://")
    base = V3 + "/transactions"
    for path in ("/coordinators", "/coordinatorStats", "/coordinatorInternalStats/0", "/slowTransactions/5"):
        s.call("GET", base + path)
    for path in ("transactionBufferStats/{}", "pendingAckStats/{}/s", "pendingAckInternalStats/{}/s"):
        s.call("GET", f"{base}/{path.format(topic)}")
    s.call("GET", f"{base}/transactionMetadata/0/1")
    s.call("GET", f"{base}/transactionInBufferStats/{topic}/0/1")
    s.call("GET", f"{base}/transactionInPendingAckStats/{topic}/s/0/1")
    s.call("GET", f"{base}/positionStatsInPendingAck/{topic}/s/0/1")
    s.call("GET", f"{base}/positionStatsInPendingAck/{topic}/s/x/y")
    s.call("POST", base + "/abortTransaction/0/1")
    s.call("POST", base + "/transactionCoordinator/replicas", 3)


@scenario
def transaction_buffer_of_topics_without(s):
    topic = s.topic()
    s.connect().producer(topic, quietly=True)
    base = V3 + "/transactions/transactionBufferInternalStats/"
    s.call("GET", base + topic.removeprefix("persistent://"))
    s.call("GET", base + f"public/default/{s.tag}-unknown")
    s.call("GET", base + f"public/{s.tag}/t")
    s.call("GET", base + f"{s.tag}/n/t")


@scenario
def racks_of_a_bookie(s):
    base, bookie = V2 + "/bookies/racks-info", f"{s.tag}:3181"
    s.call("GET", f"{base}/{bookie}")
    s.call("DELETE", f"{base}/{bookie}")
    s.call("POST", f"{base}/{bookie}", {"rack": "/r"})
    s.call("POST", f"{base}/{bookie}?group=g", {"rack": "/r", "hostname": "h"})
    s.call("GET", f"{base}/{bookie}", keep=True)
    s.call("POST", f"{base}/{bookie}?group=other", {"rack": "/q"})
    s.call("GET", base, keep=lambda groups: sorted(name for name, members in groups.items() if bookie in members))
    s.call("DELETE", f"{base}/{bookie}")
    s.call("GET", f"{base}/{bookie}")


@scenario
def metadata_is_not_moved(s):
    s.call("GET", V2 + "/metadata/migration/status", keep=True)
    s.call("POST", V2 + "/metadata/migration/start")
    s.call("POST", V2 + "/metadata/migration/start?target=nowhere")


@scenario
def operations_of_bookies_of_a_topic(s):
    topic = s.topic()
    s.connect().producer(topic, quietly=True)
    s.call("GET", V2 + "/broker-stats/bookieops", keep=lambda all_: all_["public/default"][topic])


@scenario
def ledgers_offloaded_from_a_namespace(s):
    s.call("GET", V2 + "/namespaces/public/default/scanOffloadedLedgers")
    s.call("GET", V2 + f"/namespaces/public/{s.tag}/scanOffloadedLedgers")
