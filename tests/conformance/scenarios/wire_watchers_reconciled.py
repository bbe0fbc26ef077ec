"""Topic list watchers of clients that reconcile: hashes known before, changes while away, ids that come again."""

from harness.steps import namespace
from transcript import scenario

RECONCILES = dict(supports_topic_watchers=True, supports_topic_watcher_reconcile=True)


def watch(c, ns, pattern=".*", watcher_id=1, **more):
    fields = dict(watcher_id=watcher_id, namespace=ns, topics_pattern=f"persistent://public/.*/{pattern}")
    return c.ask("WATCH_TOPIC_LIST", **fields, **more)


@scenario
def reconciling_client_and_its_features(s):
    s.connect(feature_flags=RECONCILES, quietly=False)
    s.connect(feature_flags=dict(supports_topic_watcher_reconcile=True), quietly=False)
    s.connect(feature_flags={}, quietly=False)


@scenario
def watcher_closed_twice_and_unknown(s):
    ns = namespace(s)
    c = s.connect(feature_flags=RECONCILES)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=7)
    watch(c, ns, watcher_id=7)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=7)
    c.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=7)
    watch(c, ns, watcher_id=7)


@scenario
def watcher_of_a_namespace_that_is_not_there(s):
    c = s.connect(feature_flags=RECONCILES)
    for i, ns in enumerate(("public/none", "none/none", "public", "public/a/b", "")):
        c.ask("WATCH_TOPIC_LIST", watcher_id=i, namespace=ns, topics_pattern=".*")
