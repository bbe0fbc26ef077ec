"""The stored form of cursors in statistics: their ledgers, and the size of acknowledged ranges."""

import time

from harness.steps import ack, published, read, rest
from transcript import scenario


def sizes_shown(s, topic, what, ledger_id):
    """Note the sizes of acknowledged ranges without the bytes of the ledger's id; a cursor saves its changes once a
    second.
    """
    time.sleep(1.2)
    stats = s.http("GET", rest(topic, "/stats"), quietly=True)[1]
    of_all = [stats, stats["subscriptions"]["s"], stats["subscriptions"]["other"]]
    sizes = [each["nonContiguousDeletedMessagesRangesSerializedSize"] for each in of_all]
    s.note(what, [size and size - max((ledger_id.bit_length() + 6) // 7, 1) for size in sizes])


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
    sizes_shown(s, topic, "nothing", ids[0].get("ledgerId", 0))
    for chosen in ids[1:2], ids[63:65], ids[100:129], ids[:129]:
        ack(c, *chosen)
        sizes_shown(s, topic, len(chosen), ids[0].get("ledgerId", 0))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    sizes_shown(s, topic, "unloaded", ids[0].get("ledgerId", 0))


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


def place_shown(s, topic, what):
    cursor = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]["s"]
    s.note(what, [cursor["state"], cursor["markDeletePosition"].rpartition(":")[2]])


@scenario
def cursors_behind_a_search_without_expired_messages(s):
    """A search moves no cursor; skipping all messages of an empty topic does."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    c = s.connect()
    c.subscribe(topic, "s", 1, 0, quietly=True)
    published(s, topic, 6)
    s.http("POST", rest(topic, "/messageTTL?messageTTL=100"), quietly=True)
    time.sleep(0.5)
    place_shown(s, topic, "searched")
    other = s.topic("empty")
    s.http("PUT", rest(other), quietly=True)
    c.subscribe(other, "s", 2, 0, quietly=True)
    s.http("POST", rest(other, "/subscription/s/skip_all"), quietly=True)
    place_shown(s, other, "skipped")
