"""The stored form of cursors in statistics: their ledgers, and the size of acknowledged ranges."""

import time

from harness.steps import ack, published, read, rest
from transcript import scenario


def sizes_shown(s, topic, what):
    """Note the sizes of acknowledged ranges; a cursor saves its changes once a second."""
    time.sleep(1.2)
    stats = s.http("GET", rest(topic, "/stats"), quietly=True)[1]
    of_all = [stats, stats["subscriptions"]["s"], stats["subscriptions"]["other"]]
    s.note(what, [each["nonContiguousDeletedMessagesRangesSerializedSize"] for each in of_all])


@scenario
def stored_sizes_of_acknowledged_ranges(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for name in "s", "other":
        s.http("PUT", rest(topic, f"/subscription/{name}"), quietly=True)
    ids = published(s, topic, 130)
    c = s.connect()
    c.subscribe(topic, "s", 1, 130, quietly=True, subType="Shared")
    read(c, 130)
    sizes_shown(s, topic, "nothing")
    for chosen in ids[1:2], ids[63:65], ids[100:129], ids[:129]:
        ack(c, *chosen)
        sizes_shown(s, topic, len(chosen))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    sizes_shown(s, topic, "unloaded")


@scenario
def ledgers_of_cursors(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    ids = published(s, topic, 9)
    c = s.connect()
    c.subscribe(topic, "s", 1, 9, quietly=True, subType="Shared", initialPosition="Earliest")
    read(c, 9)

    def shown(what):
        time.sleep(1.2)
        cursor = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]["s"]
        record = s.http("GET", rest(topic, "/internal-info"), quietly=True)[1]["cursors"]["s"]
        places = [cursor["cursorLedger"] >= 0, cursor["cursorLedgerLastEntry"] >= 0]
        s.note(what, [cursor["state"], *places, record["cursorsLedgerId"] == cursor["cursorLedger"]])

    shown("new")
    ack(c, ids[3])
    shown("one")
    ack(c, *ids[:4])
    shown("four")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    shown("unloaded")
