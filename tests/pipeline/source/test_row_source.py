import gc

from magnetar.pipeline.source import row_source


def test_present_objects_are_exempt_from_collections_once_a_process(monkeypatch):
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    row_source.spare_collections.cache_clear()
    row_source.spare_collections()
    row_source.spare_collections()
    assert calls == [1]
