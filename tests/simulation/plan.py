"""The plan of one seed: the broker's settings, the number of clients, and the possible faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from magnetar.storage.embedded.engine import EngineSettings
from tests.simulation.damage import DECAYED_FILE, FLIPPED_HEADER, KINDS, OF_JOURNAL

TOPICS = ("persistent://public/default/one", "persistent://public/default/two")
FAULTS = (
    "cut",
    "half_open",
    "stuck",
    "crash",
    "crash_in_write",
    "restart",
    "slow_disk",
    "full_disk",
    "failing_sync",
    "admin",
    "http",
)

FIRST_WITH_MORE = 100_000
"""Seeds from here on also have the newer faults; earlier seeds keep their histories."""
FIRST_WITH_FORGERY = 200_000
"""From here on half of the seeds have producers whose messages contain records, and a flipped bit in such a message."""
FIRST_WITH_KILLS = 240_000
"""From here on a process may end while its machine goes on; the power may fail in the next start."""
FIRST_WITH_PACE = 300_000
"""From here on small frames follow each other at a limited pace, as frames of the compiled writer do."""
FIRST_WITH_ROOM = 320_000
"""From here on a full disk may leave room at first, so that the engine's limits shrink before the space ends."""
FIRST_WITH_WORK = 340_000
"""From here on single writes find no space, a disk stands still for seconds while clients come and go, processes end in
compactions, and the index of delayed messages has small buckets, which it seals and merges all the time.
"""
FIRST_WITH_COMPACTED = 360_000
"""From here on most seeds compact their topics all the time, and have clients that read them compacted."""
FIRST_WITH_EXPIRY = 380_000
"""From here on administrators expire messages by age while the wall clock is set."""
FIRST_WITH_QUOTAS = 400_000
"""From here on topics have backlog quotas."""
FIRST_WITH_SHAPES = 420_000
"""From here on clients register schemas, and a partitioned topic grows."""
FIRST_WITH_DELETIONS = 440_000
"""From here on a topic is deleted and created again, and topics keep their messages for a minute."""
FIRST_WITH_OWNERS = 460_000
"""From here on producers compete for exclusive access to a topic."""
FIRST_WITH_OFFLINE = 480_000
"""From here on the directory is verified and repaired between two processes, and images of it are taken and restored."""
FIRST_WITH_SPACES = 500_000
"""From here on a namespace is deleted by force and created again, and its topic has policies."""
FIRST_WITH_PORTIONS = 520_000
"""From here on consumers acknowledge batches message by message, and subscriptions have properties."""
FIRST_WITH_FORCE = 540_000
"""From here on schemas are deleted by force, too."""
FIRST_WITH_CHUNKS = 620_000
"""From here on producers send messages in chunks."""
FIRST_WITH_KEYS = 640_000
"""From here on consumers of Key_Shared come and go, with split hashes and with ranges of their own."""
FIRST_WITH_ENDS = 660_000
"""From here on topics are terminated."""
FIRST_WITH_TIMES = 680_000
"""From here on consumers and administrators seek by time, beside unloads."""
FIRST_WITH_DECAY = 700_000
"""From here on a bit of one file of any kind flips between two processes."""
FIRST_WITH_ACKS = 720_000
"""From here on a PONG is the evidence that the broker has received an ACK without a request id."""
FIRST_WITH_LONE = 740_000
"""From here on lone producers wait for each receipt, and clients ask for the last message."""
FIRST_WITH_REPAIRS = 760_000
"""From here on also topics that are compacted have a damaged file, and an operator repairs damage that verify finds."""
FIRST_WITH_EARLY_READS = 780_000
"""From here on the next message of a lone producer may come before the books of the last are kept."""
FIRST_WITH_FIELDS = 800_000
"""From here on values that share a stored record change beside each other."""
FIRST_WITH_CANCELS = 820_000
"""From here on administrators cancel the delivery of delayed messages."""
FIRST_WITH_IDLE = 840_000
"""From here on inactive topics are deleted."""
FIRST_WITH_BRIM = 860_000
"""From here on the disk fills up and processes end under consumers of chunks, whose ACKs have a PONG as evidence."""
FIRST_WITH_REMOVALS = 880_000
"""From here on messages go by TTL, by retention by time and by size, and by truncations."""
OF_PARTS = {
    "quotas": FIRST_WITH_QUOTAS,
    "shapes": FIRST_WITH_SHAPES,
    "deletions": FIRST_WITH_DELETIONS,
    "owners": FIRST_WITH_OWNERS,
    "offline": FIRST_WITH_OFFLINE,
    "spaces": FIRST_WITH_SPACES,
    "portions": FIRST_WITH_PORTIONS,
    "chunks": FIRST_WITH_CHUNKS,
    "keys": FIRST_WITH_KEYS,
    "ends": FIRST_WITH_ENDS,
    "times": FIRST_WITH_TIMES,
    "acks": FIRST_WITH_ACKS,
    "lone": FIRST_WITH_LONE,
    "fields": FIRST_WITH_FIELDS,
    "cancels": FIRST_WITH_CANCELS,
    "idle": FIRST_WITH_IDLE,
    "brim": FIRST_WITH_BRIM,
    "removals": FIRST_WITH_REMOVALS,
}
"""Parts of a history (``parts.py``) by the first seed that may have them."""
AGAIN = {
    FIRST_WITH_FORCE: ("shapes", "quotas"),
    FIRST_WITH_DECAY: ("shapes",),
    FIRST_WITH_REPAIRS: ("acks",),
    FIRST_WITH_EARLY_READS: ("lone",),
}
"""First seed of a range -> earlier parts that most of its seeds have, with more acts."""
KEPT = ((0, 0), (4 / 60, -1), (1, -1), (-1, 2000 / (1 << 20)), (6 / 60, 2000 / (1 << 20)), (-1, -1))
"""(minutes, megabytes) of retention; fractions, since a history is short and small."""
BESIDE_REMOVALS = frozenset({"removals", "quotas", "owners", "fields"})
"""The parts whose messages may go by a policy."""
OF_WORK = ("full_write", "standstill", "crash_in_compaction")
SMALL_BUCKETS = {
    "delayed_delivery_min_index_count_per_bucket": 2,
    "delayed_delivery_max_indexes_per_bucket_snapshot_segment": 3,
    "delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds": 1,
    "delayed_delivery_max_num_buckets": 2,
}
COMPACTING = {
    "broker_service_compaction_threshold_in_bytes": 300,
    "broker_service_compaction_monitor_interval_in_seconds": 2,
}
"""With a threshold the log drops no entry before its compaction."""
RETAINED_MINUTES = 1
IDLE_SECONDS = 15.0
"""So much longer are histories in which topics are without clients for a while."""
BRIM_SECONDS = 25.0
"""So much longer are histories that wait for space on the disk, and for the saves behind, before the process ends."""
OF_BRIM = ("crash", "crash_in_write", "restart", "full_disk", "failing_sync")
"""Faults that such a history leaves to its part."""
DELETING = {
    "broker_delete_inactive_topics_enabled": True,
    "broker_delete_inactive_topics_frequency_seconds": 1,
    "broker_delete_inactive_topics_max_inactive_duration_seconds": 100_000,
}
"""Only the policies of a namespace delete topics."""
ROOMS_BYTES = (0, 100, 5000)
MORE_ROOMS_BYTES = (*ROOMS_BYTES, 20_000, 60_000, 150_000)
QUICK_S = [0.0001, 0.0005]
"""The pace of the disk and the latency with which a lone producer has many receipts before other clients act."""
PACES_S = (0.00075, 0.1, 1.0)
"""The pace of the compiled writer, and paces as slow as the producers of a simulation."""

SMALL = EngineSettings(
    journal_segment_bytes=36 << 10,
    journal_first_segment_bytes=12 << 10,
    journal_max_frame_bytes=8 << 10,
    checkpoint_bytes=16 << 10,
    checkpoint_interval_s=7,
    write_behind_bytes=512,
    unwritten_memory_bytes=4 << 10,
    cache_bytes=4 << 10,
    max_record_bytes=64 << 10,
    read_piece_bytes=4 << 10,
    metadata_log_bytes=32 << 10,
)
"""So small that a short run rolls, recycles, checkpoints and reads from files."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a history; every value follows from the seed."""

    seed: int
    seconds: float
    keeps_all: bool
    deduplicates: bool
    pace_s: float
    latency_s: float
    reads_early: bool
    """Whether links deliver messages to early reads (``network/early_read.py``)."""
    producers: int
    consumers: int
    readers: int
    delayed_share: float
    faults: tuple[str, ...]
    fault_every_s: float
    damage: str = ""
    """A kind of ``damage.py``; the damage happens once, at ``damage_s``."""
    damage_s: float = 0.0
    damage_in: str = ""
    """The folder that the damage hits."""
    forges: bool = False
    """Messages contain bytes that form records of entries to come."""
    kills: bool = False
    """A process may end while its machine goes on."""
    compacted: bool = False
    """Clients read the topics compacted."""
    parts: tuple[str, ...] = ()
    """Names of ``OF_PARTS``."""
    frame_pace_s: float = 0.0
    """The least seconds between the begins of small frames, for producers that do not wait for receipts."""
    rooms_bytes: tuple[int, ...] = ROOMS_BYTES
    """Free bytes at the beginning of a ``full_disk``."""
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> Plan:
        chance = Random(f"plan {seed}")
        keeps_all, deduplicates = chance.random() < 0.5, chance.random() < 0.4
        retention = -1 if keeps_all else 0
        seconds = chance.choice([4.0, 8.0, 15.0])
        damage = chance.choice(KINDS) if chance.random() < 0.4 else ""
        damage_s = chance.uniform(0.2, 0.8) * seconds
        damage_in = chance.choice(["/journal/", "/journal/", "/ledgers/", "/metadata/"])
        more = Random(f"more {seed}")
        if damage and seed >= FIRST_WITH_MORE and more.random() < 0.5:
            damage, damage_in = more.choice(OF_JOURNAL), "/journal/"
        sets_clock = seed >= FIRST_WITH_MORE and more.random() < 0.3
        forges = seed >= FIRST_WITH_FORGERY and more.random() < 0.5
        if forges:
            damage, damage_in = FLIPPED_HEADER, more.choice(["/journal/", "/ledgers/"])
        work, of_work, buckets = Random(f"work {seed}"), (), {}
        delayed_share = (0, 0, 0.1, 0.6)
        if seed >= FIRST_WITH_WORK:
            of_work = tuple(fault for fault in OF_WORK if work.random() < 0.6)
            delayed_share = work.choice([delayed_share, (0.4,), (0.9,)])
            buckets = SMALL_BUCKETS if work.random() < 0.7 else {}
        compacts = Random(f"compacted {seed}")
        compacted = seed >= FIRST_WITH_COMPACTED and compacts.random() < 0.8
        of_decay = FIRST_WITH_DECAY <= seed < FIRST_WITH_ACKS or FIRST_WITH_REPAIRS <= seed < FIRST_WITH_EARLY_READS
        decays = 0.0 if seed < FIRST_WITH_DECAY else 0.8 if of_decay else 0.2
        if Random(f"decay {seed}").random() < decays:
            damage, forges = DECAYED_FILE, False
            compacted = compacted and seed >= FIRST_WITH_REPAIRS
        if compacted and damage == DECAYED_FILE:
            of_work += ("compact", "compact")
        elif compacted:
            damage, forges = "", False  # a damaged entry may be the newest of its key: no model has the next
            of_work += ("compact", "crash_in_compaction") if compacts.random() < 0.7 else ()
        parts, without = _parts_of(seed), ()
        if "removals" in parts:
            parts = tuple(name for name in parts if name in BESIDE_REMOVALS)
            keeps_all = compacted = False  # a truncation takes values that no compaction has seen
            sets_clock = Random(f"clock {seed}").random() < 0.5
        reads_early = "lone" in parts and seed >= FIRST_WITH_EARLY_READS
        is_quick = reads_early or ("lone" in parts and seed % 3 > 0)
        deduplicates = deduplicates and (not reads_early or seed % 5 == 0)
        if "brim" in parts:
            seconds += BRIM_SECONDS
            without = OF_BRIM
        if "idle" in parts:
            seconds += IDLE_SECONDS
            compacted = compacted and seed % 4 == 0  # the subscription of compaction keeps a topic, mostly
            without += ("restart",) if seed % 4 else ()  # a stop takes longer than the rest of a history
        if "quotas" in parts:
            compacted = sets_clock = False  # the newest value of a key may be evicted; the quota by age needs one clock
        elif seed >= FIRST_WITH_EXPIRY and Random(f"expiry {seed}").random() < 0.8:
            of_work += ("expire", "expire", "set_clock")
        if "deletions" in parts or "times" in parts:  # the retention and the seeks need one clock
            sets_clock, of_work = False, tuple(kind for kind in of_work if kind != "set_clock")
        if {"offline", "times", "cancels"} & set(parts):  # the tool itself is at fault for all findings of verify
            damage, forges = "", False  # and a cursor that is set back may skip the messages that a seek brought back
        return cls(
            seed=seed,
            seconds=seconds,
            damage=damage,
            damage_s=damage_s,
            damage_in=damage_in,
            forges=forges,
            compacted=compacted,
            parts=parts,
            kills=seed >= FIRST_WITH_KILLS,
            frame_pace_s=Random(f"pace {seed}").choice(PACES_S) if seed >= FIRST_WITH_PACE else 0.0,
            rooms_bytes=MORE_ROOMS_BYTES if seed >= FIRST_WITH_ROOM else ROOMS_BYTES,
            keeps_all=keeps_all,
            deduplicates=deduplicates,
            pace_s=chance.choice(QUICK_S[:1] * 3 if is_quick else [0.0001, 0.002, 0.02]),
            latency_s=chance.choice(QUICK_S[0 if reads_early else 1 :][:1] * 3 if is_quick else [0.0005, 0.01, 0.1]),
            reads_early=reads_early,
            producers=chance.randint(1, 3),
            consumers=chance.randint(1, 5),
            readers=chance.choice([0, 0, 1, 3]),
            delayed_share=chance.choice(delayed_share),
            faults=tuple(fault for fault in FAULTS if chance.random() < 0.5 and fault not in without)
            + ("set_clock",) * sets_clock
            + of_work,
            fault_every_s=max(chance.choice([0.3, 1.0, 3.0]), 3.0 * ("brim" in parts)),
            settings={
                "broker_deduplication_enabled": deduplicates,
                "broker_deduplication_entries_interval": 7,
                "exposing_broker_entry_metadata_to_client_enabled": True,
                "managed_ledger_max_entries_per_ledger": chance.choice([3, 10, 50_000]),
                "managed_ledger_min_ledger_rollover_time_minutes": 0,
                "managed_ledger_cursor_max_entries_per_ledger": chance.choice([3, 50_000]),
                "default_retention_time_in_minutes": retention,
                "default_retention_size_in_mb": retention,
                "active_consumer_failover_delay_time_millis": chance.choice([0, 500]),
                "keep_alive_interval_seconds": 5,
                "retention_check_interval_in_seconds": 3,
                "max_unacked_messages_per_consumer": chance.choice([10, 50_000]),
                "broker_delete_inactive_topics_enabled": False,
                "auto_skip_non_recoverable_data": bool(damage),
                **buckets,
                **({"acknowledgment_at_batch_index_level_enabled": True} if {"portions", "acks"} & set(parts) else {}),
                **(_key_shared_of(seed) if "keys" in parts else {}),
                **({"force_delete_namespace_allowed": True} if "spaces" in parts else {}),
                **(DELETING if "idle" in parts else {}),
                **(COMPACTING if compacted else {}),
                **(_quota_of(seed) if "quotas" in parts else {}),
                **(_retention_of(seed, keeps_all=keeps_all) if "deletions" in parts else {}),
                **(_removals_of(seed) if "removals" in parts else {}),
            },
        )


def _parts_of(seed: int) -> tuple[str, ...]:
    """The parts of the seed's range, mostly; those of earlier ranges now and then."""
    chance, newest = Random(f"parts {seed}"), seed - seed % 20_000
    often = {name for name, first in OF_PARTS.items() if first == newest} | set(AGAIN.get(newest, ()))
    others = 0.2 if seed < FIRST_WITH_IDLE else 0.1 if seed < FIRST_WITH_BRIM else 0.05  # there are many by then
    return tuple(
        name
        for name, first in OF_PARTS.items()
        if seed >= first and chance.random() < (0.8 if name in often else others)
    )


def _quota_of(seed: int) -> dict[str, Any]:
    chance = Random(f"quota {seed}")
    return {
        "backlog_quota_default_limit_bytes": chance.choice([-1, 1000, 4000, 12_000]),
        "backlog_quota_default_limit_second": chance.choice([-1, 2, 5]),
        "backlog_quota_default_retention_policy": chance.choice(
            ["producer_request_hold", "producer_exception", "consumer_backlog_eviction", "consumer_backlog_eviction"]
        ),
        "backlog_quota_check_interval_in_seconds": 1,
        "precise_time_based_backlog_quota_check": chance.random() < 0.5,
        "managed_ledger_max_entries_per_ledger": chance.choice([3, 10]),
    }


def _retention_of(seed: int, *, keeps_all: bool) -> dict[str, Any]:
    chance = Random(f"retention {seed}")
    if keeps_all or chance.random() < 0.3:
        return {}
    return {"default_retention_time_in_minutes": RETAINED_MINUTES, "default_retention_size_in_mb": -1}


def _removals_of(seed: int) -> dict[str, Any]:
    chance = Random(f"removals {seed}")
    minutes, megabytes = chance.choice(KEPT)
    return {
        "default_retention_time_in_minutes": minutes,
        "default_retention_size_in_mb": megabytes,
        "ttl_duration_default_in_seconds": chance.choice([0, 2, 5, 60]),
        "message_expiry_check_interval_in_minutes": 1 / 60,
        "retention_check_interval_in_seconds": 1 + seed % 3,
        "managed_ledger_max_entries_per_ledger": chance.choice([3, 10]),
    }


def _key_shared_of(seed: int) -> dict[str, Any]:
    return {"subscription_key_shared_use_consistent_hashing": Random(f"keys {seed}").random() < 0.5}
