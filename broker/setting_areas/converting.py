"""Settings of message converters: foreign entry formats that are converted on dispatch."""

from magnetar.broker.setting_areas.setting import Table, setting, table

_OURS = "Magnetar"


@table
class ConvertingSettings(Table):
    """Conversion on dispatch, its limits, and the treatment of entries that cannot be converted."""

    message_converters: tuple[str, ...] = setting(
        "messageConverters",
        (),
        "Converters in order, by short name (kafka, bytes, echo, reject-all) or dotted path of a class; the first that "
        "accepts an entry converts it. Empty converts nothing and costs nothing.",
        source="PIP-94",
    )
    message_converter_settings: tuple[str, ...] = setting(
        "messageConverterSettings",
        (),
        "Settings of the converters themselves as name.key=value, for example kafka.mode=kop.",
        source=_OURS,
    )
    message_converters_optional: bool = setting(
        "messageConvertersOptional",
        False,
        "Leave out, with a warning, converters that cannot be loaded instead of refusing to start.",
        source=_OURS,
    )
    message_converter_failure_policy: str = setting(
        "messageConverterFailurePolicy",
        "park",
        "Treatment of an entry that cannot be converted: raw sends it as stored, park tries again later, dlq "
        "publishes it to a dead letter topic after some attempts, skip acknowledges it. Namespaces and topics may set "
        "a property of this name.",
        choices=("raw", "park", "dlq", "skip"),
        source=_OURS,
    )
    message_converter_park_ordered: str = setting(
        "messageConverterParkOrdered",
        "block",
        "Whether a parked entry of an ordered subscription (Exclusive, Failover; Key_Shared: of its key) holds back "
        "the messages behind it, or lets them pass. Namespaces and topics may set a property of this name.",
        choices=("block", "pass"),
        source=_OURS,
    )
    message_converter_dead_letter_attempts: int = setting(
        "messageConverterDeadLetterAttempts",
        3,
        "Failed attempts before the policy dlq sends an entry to the dead letter topic.",
        unit="attempts",
        minimum=1,
        source=_OURS,
    )
    message_converter_timeout_millis: int = setting(
        "messageConverterTimeoutMillis",
        2000,
        "Longest time one conversion may take in a worker process; then the worker is killed and the entry has failed.",
        unit="ms",
        minimum=1,
        source=_OURS,
    )
    message_converter_inline_max_bytes: int = setting(
        "messageConverterInlineMaxBytes",
        32 * 1024,
        "Largest entry that the broker converts in its process; worker processes convert larger entries, and all "
        "entries of converters from outside the broker.",
        unit="bytes",
        minimum=0,
        source=_OURS,
    )
    message_converter_workers: int = setting(
        "messageConverterWorkers",
        2,
        "Worker processes for conversions, started when first needed. One topic gets at most a quarter of them, but "
        "always one.",
        unit="processes",
        minimum=1,
        maximum=64,
        source=_OURS,
    )
    message_converter_worker_memory_mb: int = setting(
        "messageConverterWorkerMemoryMb",
        1024,
        "Address space of one worker process.",
        unit="MiB",
        minimum=256,
        source=_OURS,
    )
    message_converter_cache_size_mb: int = setting(
        "messageConverterCacheSizeMb",
        64,
        "Converted entries kept for other subscriptions and redelivery; 0 keeps none.",
        unit="MiB",
        minimum=0,
        source=_OURS,
    )
    message_converter_max_expansion_ratio: int = setting(
        "messageConverterMaxExpansionRatio",
        16,
        "An entry may grow to this multiple of its size, but always to 1 MiB, and never beyond maxMessageSize.",
        unit="times",
        minimum=1,
        source=_OURS,
    )
    message_converter_breaker_failure_percent: int = setting(
        "messageConverterBreakerFailurePercent",
        50,
        "When more of a converter's last 100 calls for a topic time out or show it broken, it is not called for a "
        "while; bad data does not count.",
        unit="percent",
        minimum=0,
        maximum=99,
        source=_OURS,
    )
    message_converter_breaker_open_millis: int = setting(
        "messageConverterBreakerOpenMillis",
        30000,
        "How long it is not called then, before one attempt decides.",
        unit="ms",
        minimum=0,
        source=_OURS,
    )
