"""The requests of a recovery; test_histories.py has its outcomes."""

from __future__ import annotations

import collections

from magnetar.bookkeeper.options import LedgerOptions
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.twins.sim_bookies import READ


@simulated
async def test_the_last_entry_of_the_bookies_is_read_once():
    cluster = SimCluster(3)
    writer = await cluster.join().client.create(LedgerOptions(3, 3, 2))
    for number in range(3):
        await writer.append(b"entry %d" % number)  # the last entry names its predecessor as the last confirmed
    for bookie in cluster.bookies:
        bookie.requests.clear()
    closed = (await cluster.join().client.recover(writer.ledger_id)).metadata
    assert (closed.last_entry_id, closed.length) == (2, 21)
    reads = collections.Counter(each[3] for bookie in cluster.bookies for each in bookie.requests if each[0] == READ)
    assert reads == {-1: 3, 3: 3}  # the last entries with the fence, and the absent entry behind them
    await cluster.close()
