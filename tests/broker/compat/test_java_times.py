import pytest

from magnetar.broker.compat import java_times

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("time_ms", "instant", "offset_date_time"),
    [
        (NOW, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z"),
        (NOW + 70, "2023-11-14T22:13:20.070Z", "2023-11-14T22:13:20.07Z"),
        (NOW + 123, "2023-11-14T22:13:20.123Z", "2023-11-14T22:13:20.123Z"),
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        (1 << 63, str(1 << 63), str(1 << 63)),
    ],
)
def test_both_forms_of_a_time(time_ms, instant, offset_date_time):
    assert java_times.instant(time_ms) == instant
    assert java_times.offset_date_time(time_ms) == offset_date_time


@pytest.mark.parametrize(("time_ms", "text"), [(0, "1970-01-01T00:00:00.000Z"), (NOW + 70, "2023-11-14T22:13:20.070Z")])
def test_a_formatted_date_always_has_milliseconds(time_ms, text):
    assert java_times.date_format(time_ms) == text


def test_parts_of_times_are_read():
    assert java_times.parsed_local_date("1970-01-03") == 2
    assert java_times.parsed_local_time("10:15") == (10 * 60 + 15) * 60 * 10**9
    assert java_times.parsed_local_time("00:00:01.5") == 1_500_000_000
    assert java_times.parsed_medium_date("Jan 2, 1970") == 86_400_000
    assert java_times.parsed_offset_date_time("1970-01-01T01:00:00.001+01:00") == 1


@pytest.mark.parametrize("text", ["1970-1-3", "19700103", "1970-02-30", ""])
def test_another_form_of_a_date_is_refused(text):
    with pytest.raises(ValueError):
        java_times.parsed_local_date(text)


@pytest.mark.parametrize("text", ["24:00", "10:60", "10:00:60", "1:00", "10:00:00.", ""])
def test_another_form_of_a_time_is_refused(text):
    with pytest.raises(ValueError):
        java_times.parsed_local_time(text)


@pytest.mark.parametrize("text", ["2024-02-03", "2024-02-03T04:05:06", "2024-02-03 04:05:06Z", ""])
def test_a_date_and_time_needs_an_offset(text):
    with pytest.raises(ValueError):
        java_times.parsed_offset_date_time(text)
