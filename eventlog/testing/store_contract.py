"""What every storage engine must do.

Derive a test class from `StoreContract` and say how your store is opened:

    class TestMyStore(StoreContract):
        def open_store(self, path, options): ...
        def crash(self, store, path, options): ...

Each test gets an empty directory. `crash` ends the store as a killed process would, loses what the port allows to be lost or less,
and opens what is left.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from eventlog.errors import ClientClosed, DirectoryInUse, Misuse, WrongCluster
from eventlog.limits import MIB
from eventlog.segment import keys
from eventlog.segment.port import Identity, Pair, Store, StoreEnds, StoreOptions

SEGMENTS = 16
ALL = (b"", b"\xff" * 16)
OPTIONS = StoreOptions(identity=Identity(cluster="contract", node=1, incarnation="a"))


def ends_at(last_id: int) -> StoreEnds:
    """Return ends of `last_id` in every segment."""
    return StoreEnds(ids=np.full(SEGMENTS, last_id, np.int64), epochs=np.ones(SEGMENTS, np.uint32))


def log_pairs(count: int, *, segment: int = 1, cache: int = 1, size: int = 100) -> list[Pair]:
    """Return `count` pairs with ids 1 to `count`."""
    return [(keys.log_key(segment, cache, id_), id_.to_bytes(4) * (size // 4)) for id_ in range(1, count + 1)]


class StoreContract(ABC):
    """The tests. One store is open at a time; it is closed at the end."""

    @abstractmethod
    def open_store(self, path: Path, options: StoreOptions) -> Store:
        """Open the store in `path` with `SEGMENTS` segments, as a new process would."""

    @abstractmethod
    def crash(self, store: Store, path: Path, options: StoreOptions) -> Store:
        """End `store` without closing it, open what is left."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """An empty store."""
        store = self.open_store(tmp_path, OPTIONS)
        yield store
        store.close()

    def reopen(self, store: Store, path: Path) -> Store:
        """Close the store and open it again."""
        store.close()
        return self.open_store(path, OPTIONS)

    # ------------------------------------------------------------ log and meta

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.segments == SEGMENTS
        assert store.identity == OPTIONS.identity
        assert store.stopped_cleanly
        assert store.unreadable == ""
        assert store.ends.ids.tolist() == [0] * SEGMENTS
        assert store.ends.epochs.tolist() == [0] * SEGMENTS
        assert store.read_log(*ALL, bytes_max=1) == []
        assert store.last_log(*ALL) is None
        assert store.read_state(*ALL, limit=1) == []

    def test_log_is_read_in_key_order_whatever_the_order_of_writing(self, store: Store) -> None:
        pairs = log_pairs(20)
        store.append(pairs[10:], [])
        store.append(list(reversed(pairs[:10])), [])
        assert store.read_log(*keys.cache_range(1, 1), bytes_max=MIB) == pairs

    def test_a_range_has_its_lower_bound_and_not_its_upper(self, store: Store) -> None:
        pairs = log_pairs(5)
        store.append(pairs, [])
        assert store.read_log(pairs[1][0], pairs[3][0], bytes_max=MIB) == pairs[1:3]
        assert store.last_log(pairs[1][0], pairs[3][0]) == pairs[2]
        assert store.last_log(pairs[3][0], pairs[3][0]) is None
        assert store.last_log(pairs[4][0] + b"\0", b"\xff") is None
        assert store.last_log(pairs[1][0] + b"\0", pairs[2][0]) is None

    def test_a_read_ends_with_the_value_that_reaches_the_limit(self, store: Store) -> None:
        pairs = log_pairs(5, size=100)
        store.append(pairs, [])
        assert store.read_log(*ALL, bytes_max=1) == pairs[:1]
        assert store.read_log(*ALL, bytes_max=100) == pairs[:1]
        assert store.read_log(*ALL, bytes_max=101) == pairs[:2]
        assert store.read_log(*ALL, bytes_max=500) == pairs

    def test_many_ranges_are_read_as_one_list_with_one_limit(self, store: Store) -> None:
        by_segment = {segment: log_pairs(3, segment=segment) for segment in (1, 2, 4)}
        for pairs in by_segment.values():
            store.append(pairs, [])
        ranges = [keys.segment_range(segment) for segment in (1, 3, 4)]
        assert store.read_logs(ranges, bytes_max=MIB) == by_segment[1] + by_segment[4]
        assert store.read_logs(ranges, bytes_max=301) == by_segment[1] + by_segment[4][:1]
        assert store.read_logs([], bytes_max=MIB) == []

    def test_of_each_range_the_next_pair_is_told_below_a_bound(self, store: Store) -> None:
        one, two = log_pairs(4, segment=1, size=100), log_pairs(3, segment=2, size=100)
        store.append(one + two, [])
        ranges = [(keys.segment_range(1)[0], one[2][0]), (keys.segment_range(2)[0], two[1][0])]
        bounds = [keys.segment_range(segment)[1] for segment in (1, 2)]
        assert store.read_logs_and_next(ranges, bounds, bytes_max=MIB) == (one[:2] + two[:1], [one[2], two[1]])
        assert store.read_logs_and_next(ranges, [one[2][0], two[1][0]], bytes_max=MIB) == (one[:2] + two[:1], [None, None])
        assert store.read_logs_and_next(ranges, bounds, bytes_max=300)[0] == one[:2] + two[:1]
        assert store.read_logs_and_next(ranges, bounds, bytes_max=201) == (one[:2] + two[:1], [one[2]])
        assert store.read_logs_and_next(ranges, bounds, bytes_max=100) == (one[:1], [])
        whole = [keys.segment_range(segment) for segment in (1, 2, 3)]
        assert store.read_logs_and_next(whole, [upper for _, upper in whole], bytes_max=MIB) == (one + two, [None, None, None])
        assert store.read_logs_and_next([], [], bytes_max=MIB) == ([], [])

    def test_the_last_of_each_cache_is_found_from_above(self, store: Store) -> None:
        store.append(log_pairs(3, cache=1) + log_pairs(2, cache=7), [])
        assert store.last_log(*keys.segment_range(1)) == log_pairs(2, cache=7)[-1]
        between = (keys.cache_range(1, 1)[1], keys.cache_range(1, 7)[0])
        found = store.last_logs([keys.segment_range(0), keys.cache_range(1, 1), between, keys.cache_range(1, 7), keys.segment_range(2)])
        assert found == [None, log_pairs(3, cache=1)[-1], None, log_pairs(2, cache=7)[-1], None]
        first, second = log_pairs(2, cache=7)
        assert store.last_logs([(first[0], first[0]), (first[0], second[0])]) == [None, first]
        assert store.last_logs([]) == []
        behind = (second[0] + b"\0", keys.segment_range(1)[1])
        ranges = [keys.segment_range(0), keys.cache_range(1, 7), (first[0], first[0]), (first[0] + b"\0", second[0] + b"\0"), behind]
        assert store.first_log_keys(ranges) == [None, first[0], None, second[0], None]
        assert store.first_log_keys([]) == []
        assert store.last_log(keys.segment_range(1)[0], keys.cache_range(1, 7)[0]) == log_pairs(3, cache=1)[-1]

    def test_meta_rows_come_with_the_log_values_of_their_write(self, store: Store) -> None:
        store.append(log_pairs(1), [keys.encode_epoch(1, 1, 5, previous=0)])
        store.append([], [keys.encode_step(1, 9, 1, 2)])
        assert store.read_meta(*keys.epoch_range()) == [keys.encode_epoch(1, 1, 5, previous=0)]
        assert store.read_meta(*keys.step_range(1)) == [keys.encode_step(1, 9, 1, 2)]

    def test_large_and_empty_values_come_back_as_they_are(self, store: Store) -> None:
        pairs = [(keys.log_key(0, 0, 1), b""), (keys.log_key(0, 0, 2), bytes(range(256)) * (8 * MIB // 256))]
        store.append(pairs, [])
        assert store.read_log(*ALL, bytes_max=64 * MIB) == pairs

    # ------------------------------------------------------------ state

    def test_state_is_put_changed_and_deleted(self, store: Store) -> None:
        store.apply([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        store.apply([(b"b", None), (b"c", b"4"), (b"d", None)])
        assert store.get_many([b"a", b"b", b"c", b"d"]) == [b"1", None, b"4", None]
        assert store.get_many([]) == []

    def test_what_memory_holds_of_the_state_is_all_that_was_asked_for_as_it_is_or_nothing(self, store: Store) -> None:
        store.apply([(b"a", b"1"), (b"b", b"2"), (b"c", b"4")])
        store.apply([(b"b", None), (b"a", b"3")])
        assert store.get_in_memory([b"a", b"c"]) == [b"3", b"4"]
        assert store.get_in_memory([b"a", b"b"]) is None
        assert store.get_in_memory([b"z"]) is None
        assert store.get_in_memory([]) == []
        store.flush_state()
        assert store.get_in_memory([b"a"]) in ([b"3"], None)
        assert store.get_in_memory([b"b"]) is None
        assert store.get_many([b"a", b"c"]) == [b"3", b"4"]
        store.drop([], [(b"a", b"b")], [])
        assert store.get_in_memory([b"a"]) is None
        assert store.get_in_memory([b"c"]) in ([b"4"], None)

    def test_the_later_of_two_changes_in_one_call_wins(self, store: Store) -> None:
        store.apply([(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2")])
        assert store.get_many([b"a", b"b"]) == [None, b"2"]

    def test_state_is_read_in_key_order_up_to_a_limit(self, store: Store) -> None:
        store.apply([(bytes([key]), b"x") for key in (5, 3, 9, 1)])
        assert [key for key, _ in store.read_state(b"\x02", b"\x09", limit=10)] == [b"\x03", b"\x05"]
        assert [key for key, _ in store.read_state(*ALL, limit=3)] == [b"\x01", b"\x03", b"\x05"]

    # ------------------------------------------------------------ snapshots

    def test_a_snapshot_shows_one_moment_whatever_comes_after(self, store: Store) -> None:
        store.apply([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        snapshot = store.snapshot()
        store.apply([(b"a", b"9"), (b"b", None), (b"d", b"4")])
        store.drop([], [(b"c", b"d")], [])
        store.flush_state()
        assert snapshot.read(*ALL, rows_max=9, bytes_max=MIB)[:3] == ([b"a", b"b", b"c"], [b"1", b"2", b"3"], True)
        assert store.snapshot().read(*ALL, rows_max=9, bytes_max=MIB)[:3] == ([b"a", b"d"], [b"9", b"4"], True)
        assert store.pinned_bytes() >= 0

    def test_a_snapshot_is_read_by_ranges_rows_and_bytes(self, store: Store) -> None:
        store.apply([(bytes([key]), b"x" * 10) for key in range(200)])
        snapshot = store.snapshot()
        keys_, values, is_end, nbytes = snapshot.read(b"\x02", b"\x09", rows_max=300, bytes_max=MIB)
        assert (keys_, values, is_end, nbytes) == ([bytes([key]) for key in range(2, 9)], [b"x" * 10] * 7, True, 70)
        assert snapshot.read(b"\x02", b"\x09", rows_max=3, bytes_max=MIB)[:3] == (keys_[:3], values[:3], False)
        assert snapshot.read(b"\x02", b"\x09", rows_max=300, bytes_max=31)[:3] == (keys_[:4], values[:4], False)
        assert snapshot.read(b"\x02", b"\x09", rows_max=300, bytes_max=1)[:3] == (keys_[:1], values[:1], False)
        assert snapshot.read(b"\x09", b"\x09", rows_max=300, bytes_max=1)[:3] == ([], [], True)
        assert len(snapshot.read(*ALL, rows_max=300, bytes_max=MIB).keys) == 200
        assert len(snapshot.read(*ALL, rows_max=300, bytes_max=1_501).keys) == 151

    def test_a_closed_snapshot_says_so_and_lets_the_store_go(self, store: Store, tmp_path: Path) -> None:
        store.apply([(b"a", b"1")])
        closed, left = store.snapshot(), store.snapshot()
        closed.close()
        closed.close()
        store = self.reopen(store, tmp_path)
        for snapshot in (closed, left):
            with pytest.raises(ClientClosed):
                snapshot.read(*ALL, rows_max=1, bytes_max=1)
        assert store.get_many([b"a"]) == [b"1"]
        store.close()

    def test_a_snapshot_holds_whole_writes_only(self, store: Store) -> None:
        torn: list[object] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                found = store.snapshot().read(*ALL, rows_max=9, bytes_max=MIB)
                torn.extend([] if len(set(found.values)) <= 1 and len(found.keys) in (0, 3) else [found])

        reader = threading.Thread(target=read)
        reader.start()
        for round_ in range(300):
            store.apply([(key, b"%d" % round_) for key in (b"a", b"b", b"c")])
        done.set()
        reader.join()
        assert torn == []

    # ------------------------------------------------------------ shortening

    def test_trim_removes_log_ranges_and_keeps_the_rest(self, store: Store) -> None:
        store.append(log_pairs(9) + log_pairs(3, segment=2), [keys.encode_step(1, 1, 1, 1), keys.encode_step(1, 9, 9, 9)])
        store.trim([keys.log_range(1, 1, after=0, upto=4)], [keys.encode_trim(1, 1, 4, 3)], meta_ranges=[keys.step_range(1, upto=8)])
        assert store.read_log(*ALL, bytes_max=MIB) == log_pairs(9)[4:] + log_pairs(3, segment=2)
        assert store.read_meta(*keys.trim_range()) == [keys.encode_trim(1, 1, 4, 3)]
        assert store.read_meta(*keys.step_range(1)) == [keys.encode_step(1, 9, 9, 9)]

    def test_what_is_trimmed_stays_away_and_can_be_compacted(self, store: Store, tmp_path: Path) -> None:
        store.append(log_pairs(9), [])
        store.trim([keys.segment_range(1)], [])
        store.compact([keys.segment_range(1)], [keys.segment_range(1)])
        store.append(log_pairs(9)[8:], [])
        store = self.reopen(store, tmp_path)
        assert store.read_log(*ALL, bytes_max=MIB) == log_pairs(9)[8:]
        store.close()

    def test_drop_removes_from_all_families_and_leaves_the_neighbours(self, store: Store, tmp_path: Path) -> None:
        own, other = keys.cache_range(1, 1), keys.cache_range(1, 2)
        store.append(log_pairs(3, cache=1) + log_pairs(3, cache=2), [keys.encode_step(1, 1, 1, 1), keys.encode_step(2, 1, 1, 1)])
        store.apply([(keys.entry_key(1, 1, b"k"), b"1"), (keys.entry_key(1, 2, b"k"), b"2")])
        store.sync(ends_at(3))
        store.drop([own], [own], [keys.step_range(1)], meta=[keys.encode_end(1, 3, 1)], ends=ends_at(2))
        store = self.crash(store, tmp_path, OPTIONS)
        assert store.read_log(*own, bytes_max=MIB) == []
        assert store.read_log(*other, bytes_max=MIB) == log_pairs(3, cache=2)
        assert store.read_meta(*keys.step_range(1)) == []
        assert store.read_meta(*keys.step_range(2)) == [keys.encode_step(2, 1, 1, 1)]
        assert store.read_meta(*keys.end_range()) == [keys.encode_end(1, 3, 1)]
        assert store.ends.ids.tolist() == [2] * SEGMENTS
        store.close()

    def test_drop_removes_state(self, store: Store) -> None:
        own, other = keys.cache_range(1, 1), keys.cache_range(1, 2)
        store.apply([(keys.entry_key(1, 1, b"k"), b"1"), (keys.entry_key(1, 2, b"k"), b"2")])
        store.drop([], [own], [])
        assert store.read_state(*own, limit=9) == []
        assert store.read_state(*other, limit=9) == [(keys.entry_key(1, 2, b"k"), b"2")]

    # ------------------------------------------------------------ durability

    def test_a_clean_close_keeps_everything(self, store: Store, tmp_path: Path) -> None:
        store.append(log_pairs(3), [keys.encode_epoch(1, 1, 1, previous=0)])
        store.sync(ends_at(3))
        store.apply([(b"a", b"1")])
        store = self.reopen(store, tmp_path)
        assert store.stopped_cleanly
        assert store.ends.ids.tolist() == [3] * SEGMENTS
        assert store.ends.epochs.tolist() == [1] * SEGMENTS
        assert store.read_log(*ALL, bytes_max=MIB) == log_pairs(3)
        assert store.read_meta(*keys.epoch_range()) == [keys.encode_epoch(1, 1, 1, previous=0)]
        assert store.get_many([b"a"]) == [b"1"]
        store.close()

    def test_a_crash_keeps_what_was_synced_and_flushed(self, store: Store, tmp_path: Path) -> None:
        store.append(log_pairs(5)[:3], [keys.encode_epoch(1, 1, 1, previous=0)])
        store.sync(ends_at(3))
        store.apply([(b"a", b"1")])
        store.flush_state()
        store.apply([(b"a", b"2"), (b"b", b"2")])
        store.append(log_pairs(5)[3:], [])
        store = self.crash(store, tmp_path, OPTIONS)
        assert not store.stopped_cleanly
        assert store.ends.ids.tolist() == [3] * SEGMENTS
        assert store.read_log(*ALL, bytes_max=MIB) in (log_pairs(5)[:3], log_pairs(5))
        assert store.read_meta(*keys.epoch_range()) == [keys.encode_epoch(1, 1, 1, previous=0)]
        assert store.get_many([b"a", b"b"]) in ([b"1", None], [b"2", b"2"])
        store.close()

    def test_state_comes_back_as_of_one_moment(self, store: Store, tmp_path: Path) -> None:
        for round_ in range(50):
            number = b"%d" % round_
            store.apply([(b"entry", number), (b"\xff\xffmark", number), (b"\x80index", number)])
            if round_ == 25:
                store.flush_state()
        store = self.crash(store, tmp_path, OPTIONS)
        entry, mark, index = store.get_many([b"entry", b"\xff\xffmark", b"\x80index"])
        assert entry == mark == index
        assert entry is not None
        assert int(entry) >= 25
        store.close()

    def test_a_log_is_durable_without_its_ends(self, store: Store, tmp_path: Path) -> None:
        store.append(log_pairs(3), [])
        store.sync()
        store = self.crash(store, tmp_path, OPTIONS)
        assert store.read_log(*ALL, bytes_max=MIB) == log_pairs(3)
        assert store.ends.ids.tolist() == [0] * SEGMENTS
        store.close()

    def test_ends_may_be_written_later_than_the_log(self, store: Store, tmp_path: Path) -> None:
        store.append(log_pairs(3), [])
        store.sync()
        store.write_ends(ends_at(3))
        store = self.crash(store, tmp_path, OPTIONS)
        assert store.ends.ids.tolist() == [3] * SEGMENTS
        store.close()

    def test_generations_of_the_log_ends_rise_over_restarts(self, store: Store, tmp_path: Path) -> None:
        store.sync(ends_at(1))
        store.sync(ends_at(2))
        store = self.reopen(store, tmp_path)
        first = store.ends.generation
        store.sync(ends_at(3))
        store = self.reopen(store, tmp_path)
        assert store.ends.generation > first
        assert store.ends.ids.tolist() == [3] * SEGMENTS
        store.close()

    def test_a_mark_of_a_clean_stop_is_good_for_one_start(self, store: Store, tmp_path: Path) -> None:
        store = self.reopen(store, tmp_path)
        assert store.stopped_cleanly
        store = self.crash(store, tmp_path, OPTIONS)
        assert not store.stopped_cleanly
        store.close()

    # ------------------------------------------------------------ misuse

    def test_a_directory_is_opened_once_at_a_time(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(DirectoryInUse):
            self.open_store(tmp_path, OPTIONS)
        self.reopen(store, tmp_path).close()

    def test_a_directory_of_another_is_refused_and_left_alone(self, store: Store, tmp_path: Path) -> None:
        store.append(log_pairs(1), [])
        store.sync(ends_at(1))
        store.close()
        for identity in (
            Identity(cluster="other", node=1, incarnation="a"),
            Identity(cluster="contract", node=2, incarnation="a"),
            Identity(cluster="contract", node=1, incarnation="b"),
        ):
            with pytest.raises(WrongCluster):
                self.open_store(tmp_path, StoreOptions(identity=identity))
        store = self.open_store(tmp_path, StoreOptions())
        assert store.identity == OPTIONS.identity
        assert store.read_log(*ALL, bytes_max=MIB) == log_pairs(1)
        store.close()

    def test_ends_of_another_number_of_segments_are_refused(self, store: Store) -> None:
        with pytest.raises(Misuse):
            store.sync(StoreEnds.empty(SEGMENTS + 1))
        with pytest.raises(Misuse):
            store.write_ends(StoreEnds.empty(SEGMENTS + 1))

    def test_a_closed_store_says_so(self, store: Store) -> None:
        store.close()
        store.close()
        for call in (
            lambda: store.append([], []),
            lambda: store.apply([]),
            lambda: store.sync(ends_at(1)),
            store.sync,
            lambda: store.write_ends(ends_at(1)),
            lambda: store.read_log(*ALL, bytes_max=1),
            lambda: store.last_log(*ALL),
            lambda: store.first_log_keys([ALL]),
            lambda: store.get_many([b"a"]),
            lambda: store.get_in_memory([b"a"]),
            lambda: store.read_state(*ALL, limit=1),
            lambda: store.read_meta(*ALL),
            store.snapshot,
        ):
            with pytest.raises(ClientClosed):
                call()

    # ------------------------------------------------------------ threads and figures

    def test_readers_in_other_threads_see_whole_writes(self, store: Store) -> None:
        rounds, torn = 200, []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                found = store.read_logs([keys.segment_range(1), keys.segment_range(2)], bytes_max=64 * MIB)
                ids = [keys.parse_log_key(key)[2] for key, _ in found if keys.parse_log_key(key)[0] == 1]
                torn.extend([] if ids == list(range(1, len(ids) + 1)) else [ids])
                first, second = store.get_many([b"a", b"b"])
                torn.extend([] if first is None or second is not None else [[0]])

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for pair in log_pairs(rounds):
            store.append([pair, (keys.log_key(2, 1, keys.parse_log_key(pair[0])[2]), b"")], [])
            store.apply([(b"b", pair[1]), (b"a", pair[1])])
        done.set()
        for reader in readers:
            reader.join()
        assert torn == []
        assert len(store.read_log(*keys.segment_range(1), bytes_max=64 * MIB)) == rounds

    def test_figures_are_pairs_of_used_and_limit(self, store: Store) -> None:
        store.append(log_pairs(10), [])
        figures = store.figures()
        assert figures
        assert all(used >= 0 and limit >= 0 for used, limit in figures.values())
        assert store.free_bytes() > 0
        assert store.replay_bytes() >= 0
