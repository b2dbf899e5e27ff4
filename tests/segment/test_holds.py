"""What durable listeners hold back, over the logs of several primaries."""

from hypothesis import given
from hypothesis import strategies as st

from eventlog.ids import ID_MAX, id_before
from eventlog.segment.holds import Hold, fewer, fewer_heads, held_percent, hold_ceiling, keeping_back, merged
from eventlog.segment.retention import CacheLog, OwnStep, RetentionLimits, StoredHead, plan_retention

NOW_MS = 1_700_000_000_000


def log_of(values: list[StoredHead], every: int = 1) -> CacheLog:
    """The log of a primary, with a step at every so many stored values."""
    steps, events, nbytes = [], 0, 0
    for number, value in enumerate(sorted(values), 1):
        events, nbytes = events + value.events, nbytes + value.nbytes
        if number % every == 0:
            steps.append(OwnStep(value.last_id, events, nbytes))
    last = max((value.last_id for value in values), default=0)
    return CacheLog(trimmed=OwnStep(0, 0, 0), steps=steps, now=OwnStep(last, events, nbytes))


@st.composite
def clusters(draw):
    """Stored values of several primaries, ids in no order over them."""
    count = draw(st.integers(1, 60))
    ids = [id_before(NOW_MS - 1_000 * (count - number)) for number in range(count)]
    primaries = draw(st.integers(1, 3))
    parts = [[] for _ in range(primaries)]
    for id_ in ids:
        parts[draw(st.integers(0, primaries - 1))].append(StoredHead(id_, draw(st.integers(1, 5)), draw(st.integers(1, 400))))
    return parts, draw(st.integers(1, 7))


caps = st.sampled_from([0, 100, 2_000]), st.sampled_from([0, 5_000, 30_000])
holds = st.builds(Hold, st.just("a"), st.integers(0, 60), *caps, st.booleans())
limits = st.builds(
    RetentionLimits, time_ms=st.sampled_from([0, 9_000]), nbytes=st.sampled_from([0, 500]), events=st.sampled_from([0, 7, 40])
)


def after(parts, id_):
    rest = [value for part in parts for value in part if value.last_id > id_]
    return sum(value.events for value in rest), sum(value.nbytes for value in rest)


@given(clusters(), limits, st.lists(holds, max_size=3))
def test_one_cut_keeps_every_limit_and_every_hold_within_its_cap(cluster, kept, held):
    parts, every = cluster
    ids = sorted(value.last_id for part in parts for value in part)
    own = [hold._replace(id=ids[hold.id % len(ids)] if hold.id else 0) for hold in held]
    log = merged([log_of(part, every) for part in parts])
    ceiling = hold_ceiling(log, own, physical_ms=NOW_MS)
    plan = plan_retention(1, log, kept, physical_ms=NOW_MS, ceiling=ceiling)
    cut = plan.cut.id if plan.removes else 0
    events, nbytes = after(parts, cut)
    if kept.events and not kept.nbytes and not kept.time_ms and cut:
        assert events >= kept.events
    if kept.nbytes and not kept.events and not kept.time_ms and cut:
        assert nbytes >= kept.nbytes
    for hold in own:
        if hold.nbytes or hold.time_ms:
            is_passed = (hold.nbytes and nbytes >= hold.nbytes) or (hold.time_ms and cut <= id_before(NOW_MS - hold.time_ms))
            assert cut <= hold.id or (is_passed and hold.warned)


@given(clusters())
def test_a_merged_log_never_says_less_than_there_was(cluster):
    parts, every = cluster
    log = merged([log_of(part, every) for part in parts])
    everything = after(parts, 0)
    assert (log.now.events, log.now.nbytes) == everything
    for step in log.steps:
        events, nbytes = after(parts, step.id)
        assert everything[0] - events <= step.events
        assert everything[1] - nbytes <= step.nbytes
    assert [step.id for step in log.steps] == sorted({step.id for step in log.steps})
    assert list(log.steps) == sorted(log.steps)


def test_without_a_cap_nothing_is_held():
    log = log_of([StoredHead(id_before(NOW_MS), 1, 10)])
    assert hold_ceiling(log, [Hold("a", 0, 0, 0)], physical_ms=NOW_MS) == ID_MAX


def test_of_two_caps_the_one_used_up_first_ends_the_hold():
    values = [StoredHead(id_before(NOW_MS - 1_000 * (100 - number)), 1, 10) for number in range(100)]
    log = log_of(values)

    def ceiling(nbytes, time_ms):
        return hold_ceiling(log, [Hold("a", values[9].last_id, nbytes, time_ms, warned=True)], physical_ms=NOW_MS)

    assert ceiling(1 << 30, 1 << 30) == values[9].last_id
    assert ceiling(500, 0) == ceiling(500, 1 << 30) == values[49].last_id
    assert ceiling(0, 50_000) == ceiling(1 << 30, 50_000) == ceiling(800, 50_000) == id_before(NOW_MS - 50_000)


def test_a_cap_ends_nothing_before_the_listener_was_warned():
    values = [StoredHead(id_before(NOW_MS - 1_000 * (100 - number)), 1, 10) for number in range(100)]
    log = log_of(values)
    for caps in ((500, 0), (0, 50_000), (500, 50_000)):
        hold = Hold("a", values[9].last_id, *caps)
        assert hold_ceiling(log, [hold], physical_ms=NOW_MS) == values[9].last_id
        assert hold_ceiling(log, [hold._replace(warned=True)], physical_ms=NOW_MS) >= values[49].last_id


def test_those_keep_back_but_for_whom_all_up_to_an_id_could_go():
    values = [StoredHead(id_before(NOW_MS - 1_000 * (100 - number)), 1, 10) for number in range(100)]
    ids, log = [value.last_id for value in values], log_of(values)
    behind, ahead = Hold("behind", ids[9], 1 << 30, 0), Hold("ahead", ids[90], 1 << 30, 0)
    passed, unbound = Hold("passed", ids[9], 500, 0, warned=True), Hold("unbound", ids[0], 0, 0)
    all_of_them = [behind, ahead, passed, unbound]
    assert keeping_back(log, all_of_them, upto=ids[49], physical_ms=NOW_MS) == [behind]
    assert keeping_back(log, all_of_them, upto=ids[50], physical_ms=NOW_MS) == [behind, passed]
    assert keeping_back(log, all_of_them, upto=ids[99], physical_ms=NOW_MS) == [behind, ahead, passed]
    assert keeping_back(log, all_of_them, upto=ids[9], physical_ms=NOW_MS) == []


def test_the_window_is_the_larger_of_the_hold_and_what_the_cache_keeps():
    values = [StoredHead(id_before(NOW_MS - 1_000 * (100 - number)), 1, 10) for number in range(100)]
    log = log_of(values)
    at = values[49].last_id  # 50 events, 500 bytes, some 51 s behind
    assert held_percent(log, Hold("a", at, 1_000, 0), RetentionLimits(nbytes=600), physical_ms=NOW_MS) == 50
    assert held_percent(log, Hold("a", at, 400, 0), RetentionLimits(nbytes=1_000), physical_ms=NOW_MS) == 50
    assert held_percent(log, Hold("a", at, 0, 0), RetentionLimits(events=62), physical_ms=NOW_MS) == 80
    assert held_percent(log, Hold("a", at, 0, 102_000), RetentionLimits(events=1), physical_ms=NOW_MS) == 50
    assert held_percent(log, Hold("a", at, 1, 0), RetentionLimits(), physical_ms=NOW_MS) == 0
    assert held_percent(log, Hold("a", values[-1].last_id, 1, 0), RetentionLimits(events=1), physical_ms=NOW_MS) == 0


@given(st.integers(0, 300))
def test_fewer_steps_end_with_the_last(count):
    steps = [OwnStep(number, number, number) for number in range(count)]
    found = fewer(steps)
    assert len(found) == min(count, 64)
    assert found == sorted(set(found))
    assert found[-1:] == steps[-1:]


@given(st.integers(0, 300), st.integers(1, 50))
def test_fewer_heads_add_up_to_the_same(count, most):
    heads = [StoredHead(number, 2, 3) for number in range(count)]
    found = fewer_heads(heads, most)
    assert len(found) <= most
    assert (sum(head.events for head in found), sum(head.nbytes for head in found)) == (2 * count, 3 * count)
    assert [head.last_id for head in found[-1:]] == [head.last_id for head in heads[-1:]]
