"""The stored lists of ledgers and the records of cursors: terminated topics, moves of a cursor."""

from harness.steps import ack, compact, published, read, rest
from transcript import scenario


class Ledgers:
    """Ledgers by the order in which a scenario saw them."""

    def __init__(self, s, topic):
        self.s, self.topic, self.known = s, topic, []

    def number(self, ledger):
        if ledger not in self.known:
            self.known.append(ledger)
        return self.known.index(ledger)

    def place(self, position):
        return [self.number(position["ledgerId"]), position["entryId"]]

    def answer(self, what, method, more, body=None):
        status, found = self.s.http(method, rest(self.topic, more), body, quietly=True)
        self.s.note(what, [status, self.place(found)])

    def note(self, what):
        info = self.s.http("GET", rest(self.topic, "/internal-info"), quietly=True)[1]
        stats = self.s.http("GET", rest(self.topic, "/internalStats"), quietly=True)[1]
        end = info.get("terminatedPosition")
        self.s.note(
            what,
            {
                "stored": [[self.number(x["ledgerId"]), x.get("entries")] for x in info["ledgers"]],
                "end": self.place(end) if end else None,
                "shown": [[self.number(x["ledgerId"]), x["entries"]] for x in stats["ledgers"]],
                "properties": [info["properties"], stats["properties"]],
            },
        )

    def cursors(self, what):
        info = self.s.http("GET", rest(self.topic, "/internal-info"), quietly=True)[1]
        shown = {}
        for name, cursor in info["cursors"].items():
            ranges = cursor.get("individualDeletedMessages", [])
            shown[name] = [
                self.place(cursor["markDelete"]),
                [self.place(x["from"]) + self.place(x["to"]) for x in ranges],
            ]
        self.s.note(what, shown)


@scenario
def terminated_topics_in_the_stored_list(s):
    for name, messages, subscribed in ("empty", 0, False), ("filled", 3, False), ("subscribed", 3, True):
        topic = s.topic(name)
        s.http("PUT", rest(topic), quietly=True)
        if subscribed:
            s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
        if messages:
            published(s, topic, messages)
        ledgers = Ledgers(s, topic)
        for turn in "first", "reloaded":
            ledgers.answer(f"{name} {turn}", "POST", "/terminate")
            ledgers.note(f"{name} {turn}")
            ledgers.answer(f"{name} {turn} last", "GET", "/lastMessageId")
            s.http("PUT", rest(topic, "/unload"), quietly=True)
            ledgers.note(f"{name} {turn} unloaded")


@scenario
def records_of_cursors(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
    s.http("PUT", rest(topic, "/subscription/u"), quietly=True)
    ids = published(s, topic, 9)
    ledgers = Ledgers(s, topic)
    c = s.connect()
    c.subscribe(topic, "s", 1, 10, quietly=True)
    read(c, 9)
    for k in 0, 1, 3, 4, 7:
        ack(c, ids[k], quietly=True)
    ledgers.cursors("acknowledged")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    ledgers.cursors("unloaded")
    s.http("POST", rest(topic, "/subscription/u/skip/2"), quietly=True)
    ledgers.cursors("skipped")
    s.http("POST", rest(topic, "/subscription/u/skip_all"), quietly=True)
    ledgers.cursors("skipped all")
    s.http("PUT", rest(topic, "/subscription/v"), quietly=True)
    ledgers.cursors("new")


@scenario
def record_of_a_compaction(s):
    """The properties of the cursor of a compaction, before and after a load."""
    topic = s.topic()
    published(s, topic, 3, partition_key="k")
    compact(s, topic)
    for turn in "compacted", "loaded":
        stats = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]["__compaction"]
        s.note(turn, [stats["state"], list(stats["properties"])])
        record = s.http("GET", rest(topic, "/internal-info"), quietly=True)[1]["cursors"]["__compaction"]
        s.note(turn, [record["markDelete"]["entryId"], list(record.get("properties", {}))])
        s.http("PUT", rest(topic, "/unload"), quietly=True)


@scenario
def epoch_of_exclusive_producers_in_the_properties(s):
    topic = s.topic()
    c = s.connect()
    for turn, mode in enumerate(("Exclusive", "ExclusiveWithFencing"), 1):
        c.producer(topic, turn, quietly=True, producer_access_mode=mode)
        for path in "/properties", "/internalStats", "/internal-info":
            found = s.http("GET", rest(topic, path), quietly=True)[1]
            s.note(mode + path, found.get("properties", found).get("pulsar.topic.epoch"))


@scenario
def records_of_subscriptions_made_over_rest(s):
    """Apache Pulsar creates the cursor at the end of the topic, and then resets the cursor."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    ledgers = Ledgers(s, topic)
    for number, start in enumerate(("earliest", "latest")):
        s.http("PUT", rest(topic, f"/subscription/empty{number}"), start, quietly=True)
    ledgers.cursors("empty")
    ids = published(s, topic, 4)
    at = {"ledgerId": ids[1]["ledgerId"], "entryId": ids[1].get("entryId", 0)}
    for number, start in enumerate(("earliest", "latest", at)):
        s.http("PUT", rest(topic, f"/subscription/filled{number}"), start, quietly=True)
    c = s.connect()
    c.subscribe(topic, "joined", 1, 0, quietly=True, initialPosition="Earliest")
    ledgers.cursors("filled")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    published(s, topic, 2)
    for number, start in enumerate(("earliest", "latest", at)):
        s.http("PUT", rest(topic, f"/subscription/loaded{number}"), start, quietly=True)
    ledgers.cursors("loaded")


@scenario
def partitions_before_their_first_use(s):
    """A partition that no request has loaded has no ledger; requests for statistics and subscriptions load it."""
    ns = s.namespace()
    base = f"/admin/v2/persistent/{ns}"
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {"bundles": {"numBundles": 1}}, quietly=True)
    s.http("PUT", f"{base}/plain", quietly=True)  # loads the bundle, and with it the topics that exist by now
    s.lookup(f"persistent://{ns}/plain")
    s.http("PUT", f"{base}/p/partitions", 3, quietly=True)

    def note(what, topic):
        status, found = s.http("GET", f"{base}/{topic}/internal-info", quietly=True)
        logs = found.get("partitions", {topic: found}).items()
        told = {
            name[-1]: [
                sorted(log),
                log["version"],
                len(log["ledgers"]),
                log.get("properties"),
                {cursor: record["version"] for cursor, record in log["cursors"].items()},
            ]
            for name, log in logs
        }
        s.note(what, [status, told])

    note("created", "p")
    note("one of them", "p-partition-0")
    s.http("GET", f"{base}/p-partition-1/stats", quietly=True)
    note("statistics", "p")
    s.http("PUT", f"{base}/p-partition-2/subscription/s", quietly=True)
    note("a subscription", "p")
    s.http("POST", f"{base}/p/partitions", 4, quietly=True)
    note("grown", "p")
    note("one of them again", "p-partition-0")
