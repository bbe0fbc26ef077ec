"""The catalogue of an Apache Pulsar with transactions, from answers of its admin API."""

import io
import json
from email.message import Message
from urllib.error import HTTPError

import pytest

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.errors import CatalogUnavailableError
from magnetar.pipeline.offsets import Offsets, Position
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source_plan import SourcePlan

T = "persistent://public/default/t"
COUNTS = {7: 4, 8: 6}
"""Entries of each ledger, a message in each."""
DISABLED = 503, "This Broker is not configured with transactionCoordinatorEnabled=true."


class FakeAdmin:
    """Answers as Apache Pulsar 4.2.4. buffer: the statistics of the transaction buffer, or a status with its text."""

    url = "http://broker"

    def __init__(self, buffer, *, indexed=True):
        self.buffer, self.indexed, self.buffer_requests = buffer, indexed, 0

    def call(self, _method, path, _body=None):
        if path.endswith("/partitions"):
            return {"partitions": 0}
        if path.endswith("/internalStats"):
            ledgers = [{"ledgerId": ledger, "entries": count} for ledger, count in COUNTS.items()]
            return {
                "lastConfirmedEntry": "8:5",
                "ledgers": ledgers,
                "currentLedgerEntries": 6,
                "numberOfEntries": 10,
                "totalSize": 1000,
            }
        if path == "/admin/v3/transactions/transactionBufferStats/public/default/t":
            self.buffer_requests += 1
            if isinstance(self.buffer, dict):
                return self.buffer
            raise HTTPError(path, self.buffer[0], "", Message(), io.BytesIO(json.dumps(self.buffer[1]).encode()))
        raise HTTPError(path, 404, "", Message(), io.BytesIO())

    def fetch(self, _method, path):
        ledger, entry = path.partition("/ledger/")[2].partition("?")[0].split("/entry/")
        headers = Message()
        if self.indexed:
            headers["X-Pulsar-Broker-Entry-METADATA-index"] = str((4 if ledger == "8" else 0) + int(entry))
        return b"", headers


def ready(position):
    return {"state": "Ready", "maxReadPosition": position}


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("buffer", "end", "place"),
    [
        (ready("8:5"), 10, Position(8, 6)),
        (ready("8:2"), 7, Position(8, 3)),
        (ready("8:-1"), 4, Position(7, 4)),
        (ready("7:3"), 4, Position(7, 4)),
        (ready("7:-1"), 0, Position(7, 0)),
        ({"state": "Initializing", "maxReadPosition": "-1:-1"}, 10, Position(8, 6)),
        ({"state": "NoSnapshot", "maxReadPosition": "8:3"}, 10, Position(8, 6)),
        (DISABLED, 10, Position(8, 6)),
        ((403, "no right"), 10, Position(8, 6)),
        ((404, "no such route"), 10, Position(8, 6)),
    ],
)
def test_a_plan_ends_before_the_first_open_transaction(buffer, end, place, streaming):
    for indexed in (True, False):
        catalog = Catalog(FakeAdmin(buffer, indexed=indexed))
        plan = SourcePlan(SourceOptions.parse({"topic": "t"}, streaming=streaming), catalog)
        logs = plan.logs()
        expected = end if indexed else place
        assert plan.ending(logs).by_topic == {T: expected}
        first = 0 if indexed else Position(7, 0)
        ends = plan.advance(Offsets({T: first}), logs, limited=False).by_topic
        assert ends == {T: expected if expected != first else first}


def test_a_place_behind_an_open_transaction_is_kept():
    """The checkpoint of a stream may be further than the transaction buffer of a topic that was loaded anew."""
    plan = SourcePlan(SourceOptions.parse({"topic": "t"}, streaming=True), Catalog(FakeAdmin(ready("8:1"))))
    start = Offsets({T: 9}, {T: 8})
    assert plan.advance(start, plan.logs(), limited=False).by_topic == {T: 9}


def test_a_broker_without_transactions_is_asked_once():
    admin = FakeAdmin(DISABLED)
    catalog = Catalog(admin)
    for _ in range(3):
        assert catalog.range(T).open_from is None
    assert admin.buffer_requests == 1


def test_a_busy_broker_is_asked_again():
    catalog = Catalog(FakeAdmin((503, "busy")))
    with pytest.raises(CatalogUnavailableError):
        catalog.range(T)


@pytest.mark.parametrize(("wanted", "asked"), [(-5, 0), (7, 7), (10**30, 2**63 - 1)])
def test_times_that_no_request_can_name_are_the_ends_of_the_log(wanted, asked):
    """A broker answers a time of more than 64 bits as if the topic were absent."""
    paths = []

    class Admin:
        url = "http://broker"

        def call(self, _method, path, _body=None):
            paths.append(path)
            return {"ledgerId": 3, "entryId": 4}

    assert Catalog(Admin()).place_of_time(T, wanted).position == Position(3, 4)
    assert paths == [f"/admin/v2/persistent/public/default/t/messageid/{asked}"]
