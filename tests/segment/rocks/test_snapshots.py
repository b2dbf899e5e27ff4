import pytest

from eventlog.errors import ClientClosed, CorruptData
from eventlog.segment.rocks.store import open_store

ALL = (b"", b"\xff" * 16)


def test_buffers_that_only_a_snapshot_keeps_are_counted_and_given_back(tmp_path):
    store = open_store(tmp_path, segments=4)
    store.apply([(b"%06d" % number, b"x" * 100) for number in range(5_000)])
    snapshot = store.snapshot()
    store.flush_state()
    assert store.pinned_bytes() > 400_000
    assert len(snapshot.read(*ALL, rows_max=10_000, bytes_max=1 << 30).keys) == 5_000
    snapshot.close()
    assert store.pinned_bytes() == 0
    store.close()


def test_a_snapshot_reaches_from_memory_over_files(tmp_path):
    store = open_store(tmp_path, segments=4)
    store.apply([(b"a", b"1"), (b"c", b"1")])
    store.flush_state()
    store.apply([(b"b", b"2")])
    snapshot = store.snapshot()
    store.apply([(b"a", None), (b"b", None), (b"c", None)])
    store.flush_state()
    store.apply([(b"a", b"9")])
    assert snapshot.read(*ALL, rows_max=9, bytes_max=99)[:3] == ([b"a", b"b", b"c"], [b"1", b"2", b"1"], True)
    store.close()
    with pytest.raises(ClientClosed):
        snapshot.read(*ALL, rows_max=9, bytes_max=99)
    open_store(tmp_path, segments=4).close()


def test_who_keeps_the_error_of_a_damaged_file_does_not_keep_the_directory(tmp_path):
    store = open_store(tmp_path, segments=4)
    store.apply([(b"%06d" % number, b"x" * 100) for number in range(5_000)])
    store.close()
    table = max((tmp_path / "store" / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[1_000] ^= 1
    table.write_bytes(data)
    store = open_store(tmp_path, segments=4)
    with pytest.raises(CorruptData) as caught:
        store.snapshot().read(*ALL, rows_max=10_000, bytes_max=1 << 30)
    store.close()
    open_store(tmp_path, segments=4).close()
    assert caught.tb is not None
