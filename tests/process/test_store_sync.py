"""A sync that fails: the store is fenced, what was acknowledged is there after a restart. Needs strace."""

import shutil

import pytest

from eventlog.segment.recovery import recover
from eventlog.segment.rocks.store import open_store
from tests.process.store_child import ROOMY, SEGMENTS, expected, faults, groups_upto, last_acknowledged, read_all
from tests.process.stores import run_story


def failing(tmp_path, when):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: apt-get install strace")
    return (strace, "-f", "-o", str(tmp_path / "trace"), "-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={when}")


@pytest.mark.parametrize("when", ["60", "60+"], ids=["once", "for good"])
def test_after_a_failed_sync_nothing_is_written_any_more(tmp_path, when):
    lines = run_story("stubborn", tmp_path / "store", before=failing(tmp_path, when))
    assert "EIO" in (tmp_path / "trace").read_text()
    acknowledged = last_acknowledged(lines)
    groups = groups_upto(acknowledged)
    assert groups > 10
    fenced = lines[groups:]
    assert fenced[0] == "STORE_FENCED unknown", "what became of the group is not known"
    assert fenced[1:6] == ["STORE_FENCED"] * 5, "whatever is tried, nothing is written after it"
    assert fenced[6].startswith("read "), "reading goes on"

    store = open_store(tmp_path / "store", segments=SEGMENTS, options=ROOMY)
    assert not store.stopped_cleanly
    recovery = recover(store, keyed={1}, acknowledged=acknowledged)
    assert recovery.refusals == ()
    assert read_all(store) == expected(groups_upto(recovery.last_id))
    assert groups_upto(recovery.last_id) in (groups, groups + 1), "the unknown group is there whole, or not at all"
    assert faults(store) == []
    store.close()
