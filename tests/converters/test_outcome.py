from magnetar.converters.outcome import Converted, FailurePolicy, FailureReason, park_delay_ms


def test_backoff_doubles_from_one_second_to_five_minutes():
    assert [park_delay_ms(n) for n in (0, 1, 2, 3, 8, 9, 10, 10_000)] == [
        1_000, 1_000, 2_000, 4_000, 128_000, 256_000, 300_000, 300_000,
    ]  # fmt: skip


def test_an_entry_of_holes_is_empty():
    assert Converted(b"", 2, (0, 1)).is_empty
    assert not Converted(b"", 2, (1,)).is_empty
    assert not Converted(b"", 1).is_empty


def test_labels_and_settings_values():
    assert [str(p) for p in FailurePolicy] == ["raw", "park", "dlq", "skip"]
    assert {str(r) for r in FailureReason} == {"exception", "timeout", "invalid", "oversize", "checksum"}
