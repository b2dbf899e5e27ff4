"""What the benchmarks compute from what they measured, and that both sides are given the same work."""

import socket
import threading
import time

import numpy as np
import pytest
from crc32c import crc32c

from benchmarks import baseline, flat, floor, latency, machine
from benchmarks.__main__ import main
from benchmarks.inputs import SEGMENTS, Load, distinct_frames, frames_of, key_of, random_keys, random_values
from benchmarks.traffic import Spent
from eventlog.batch.layout import checked_head
from eventlog.batch.views import decode_value
from eventlog.segment.keys import parse_log_key


def spent(*, us: float, background: float = 0.0) -> Spent:
    return Spent(
        events=1_000_000,
        requests=1_000,
        groups=250,
        seconds=1.0,
        server_cpu=us + background,
        client_cpu=0.1,
        kernel_cpu=0.0,
        background_cpu=background,
    )


def test_cost_of_traffic_is_the_servers_cpu_by_event():
    assert spent(us=0.7).us_per_event == pytest.approx(0.7)
    assert spent(us=0.7).requests_per_group == 4


def test_traffic_without_groups_divides_by_none():
    found = Spent(events=1, requests=8, groups=0, seconds=1, server_cpu=1, client_cpu=1, kernel_cpu=0, background_cpu=0)
    assert found.requests_per_group == 8


def test_percentiles_are_microseconds():
    found = latency.percentiles([number / 1e6 for number in range(1, 1_000)])
    assert found[50] == pytest.approx(500)
    assert found[99] == pytest.approx(990)


def test_merges_that_come_in_lumps_are_told_apart_from_what_grows():
    costs = [spent(us=1.0, background=2.0 if number in {7, 9} else 0.0) for number in range(10)]
    rows = {row.case: row for row in flat.rows_of("append", costs)}
    assert rows["append, without flushes and merges, the last 3 millions against the first"].ratio == pytest.approx(1.0)
    assert rows["append, all, the last 3 millions against the first"].ratio == pytest.approx(7 / 3)
    assert rows["append, all, the last 3 millions against the first"].reached is False


def test_a_keyed_cache_is_compared_with_its_second_million():
    costs = [spent(us=9.0), *[spent(us=1.0)] * 9]
    assert all(row.ratio == pytest.approx(1.0) for row in flat.rows_of("keyed", costs) if row.ratio is not None)


def test_what_is_done_aside_is_not_measured():
    watch = baseline.Stopwatch()
    with watch.aside():
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
    cost = watch.cost(events=1, groups=1)
    assert cost.cpu_seconds < 0.04
    assert cost.seconds < 0.04


def test_inputs_are_the_same_in_every_run():
    assert random_keys(5, seed=3) == random_keys(5, seed=3) != random_keys(5, seed=4)
    assert random_values(2, 10) == random_values(2, 10)
    assert len(key_of(0)) == len(key_of(999_999)) == 14


@pytest.mark.parametrize(("load", "segments"), [(Load(batch=1_000), SEGMENTS), (Load(batch=100, value_bytes=1_024, alike=True), 1)])
def test_a_frame_holds_its_batch(load, segments):
    frames = frames_of(load, 2)
    for frame in frames:
        assert int(frame.table["count"].sum()) == load.batch
        assert len(frame.table) > 0.9 * segments
        assert len(frame.table) <= segments
    assert 2 <= distinct_frames(load) <= 64
    assert load.label == ("1,000 x 100 B, all segments" if segments == SEGMENTS else "100 x 1 KiB, one segment")


def test_the_baseline_joins_a_group_to_one_value_a_segment_as_the_node_does():
    frames = frames_of(Load(batch=500), 3)
    joined, apart = baseline._values(baseline._blocks_of(frames)), baseline._values_apart(baseline._blocks_of(frames))
    assert sum(count for _, count, _ in joined) == sum(count for _, count, _ in apart) == 1_500
    assert len(apart) == sum(len(frame.table) for frame in frames)
    assert len(joined) == len(set(np.concatenate([frame.table["segment"] for frame in frames]).tolist()))
    for segment, count, value in joined:
        assert checked_head(value, segment=segment, cache=baseline.CACHE).count == count
        assert sum(block.count for block in decode_value(segment, baseline.CACHE, value).blocks) == count


def test_log_keys_of_the_baseline_rise_from_group_to_group():
    values = baseline._values(baseline._blocks_of(frames_of(Load(batch=500), 1)))
    first, second = baseline.keys_of(values, 0), baseline.keys_of(values, 500)
    assert len({parse_log_key(key)[0] for key in first}) == len(values)
    bases = [parse_log_key(key)[2] for key in [*first, *second]]
    assert bases == sorted(bases)
    assert len(set(bases)) == len(bases)


def test_the_floor_stores_every_byte_of_a_group_under_a_key_a_segment():
    frames = frames_of(Load(batch=500), 3)
    cuts = [floor._cuts(frame) for frame in frames]
    assert [own[-1][3] for own in cuts] == [len(frame.blocks) for frame in frames]
    assert [row[:2] for row in floor._shape(cuts)] == [row[:2] for row in baseline._values(baseline._blocks_of(frames))]


def test_the_floor_receives_a_frame_whole_and_believes_no_wrong_sum():
    body = bytes(range(256)) * 2_000
    near, far = socket.socketpair()
    with near, far:
        sender = threading.Thread(target=far.sendall, args=(floor._HEAD.pack(len(body), crc32c(body)) + body,))
        sender.start()
        assert floor._receive_frame(near, bytearray(len(body) + 100)) == body
        sender.join()
        far.sendall(floor._HEAD.pack(4, 0) + b"abcd")
        with pytest.raises(AssertionError):
            floor._receive_frame(near, bytearray(4))


def test_a_machine_that_others_use_is_told():
    quiet = machine.Watch.start()
    busy = machine.Watch(quiet.at - 1.0, quiet.everyone - 2.0, quiet.ours)
    assert "LOADED" in busy.remark()
    assert "LOADED" not in machine.Watch(quiet.at - 100.0, quiet.everyone, quiet.ours).remark()


def test_a_benchmark_that_is_not_there_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["appendd"])
    assert ended.value.code == 2
    assert "there is no benchmark appendd; there are append" in capsys.readouterr().err
