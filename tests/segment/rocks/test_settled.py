"""The MANIFEST as it was known to be durable, and what of the log lay in tables then."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData, LostDisk
from eventlog.segment.rocks.settled import Manifest, Settling, decode_settled, encode_settled, read_settled

TOKEN = 5
KNOWN = Manifest(number=12, nbytes=99, checksum=2**32 - 1)


class Files:
    """What of a database is looked at, without RocksDB."""

    def __init__(self, path):
        self.database = path / "db"
        self.database.mkdir()
        self.file = path / "settled"
        self.manifest(5, b"edits")
        self.journal(4)
        self.settling = Settling(self.file, self.database, segments=2, token=TOKEN)

    def manifest(self, number, content):
        (self.database / f"MANIFEST-{number:06d}").write_bytes(content)
        (self.database / "CURRENT").write_text(f"MANIFEST-{number:06d}\n")

    def journal(self, number):
        (self.database / f"{number:06d}.log").touch()

    def deleted(self, number):
        (self.database / f"{number:06d}.log").unlink()

    def reached(self, *ids):
        self.settling.reach(np.array(ids))
        self.settling.settle()

    def read(self):
        return read_settled(self.file, self.database, segments=2, token=TOKEN).tolist()


@pytest.fixture
def files(tmp_path):
    made = Files(tmp_path)
    made.settling.begin(np.array([10, 20]))
    return made


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=50))
def test_what_is_encoded_comes_back(ids):
    manifest, found = decode_settled(encode_settled(KNOWN, np.array(ids), token=TOKEN), segments=len(ids), token=TOKEN)
    assert (manifest, found.tolist()) == (KNOWN, ids)


def test_every_flipped_bit_and_every_cut_is_as_if_there_was_no_file():
    data = encode_settled(KNOWN, np.array([1, 2]), token=TOKEN)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        assert decode_settled(bytes(changed), segments=2, token=TOKEN) is None
        assert decode_settled(data[:at], segments=2, token=TOKEN) is None
    assert decode_settled(data, segments=2, token=TOKEN + 1) is None
    assert decode_settled(data, segments=3, token=TOKEN) is None


def test_what_an_opening_found_whole_has_settled(files):
    assert files.read() == [10, 20]


def test_nothing_is_noted_before_somebody_has_looked(tmp_path):
    files = Files(tmp_path)
    files.reached(3, 4)
    files.settling.settle(is_closed=True)
    assert not files.file.exists()
    assert files.read() == [0, 0]


def test_what_is_in_the_journal_settles_when_the_journal_goes(files):
    files.reached(11, 21)
    files.journal(8)
    files.reached(12, 22)
    assert files.read() == [10, 20]
    files.deleted(4)
    files.manifest(5, b"edits and a flush")
    files.reached(13, 23)
    assert files.read() == [11, 21], "what came after the second journal began may be in that alone"
    files.journal(9)
    files.deleted(8)
    files.manifest(5, b"edits and a flush and one more")
    files.reached(14, 24)
    assert files.read() == [13, 23]


def test_after_a_close_everything_has_settled(files):
    files.settling.reach(np.array([30, 40]))
    files.settling.settle(is_closed=True)
    assert files.read() == [30, 40]


def test_a_log_that_gets_shorter_takes_back_what_has_settled_and_what_would(files):
    files.reached(50, 60)
    files.settling.lower(np.array([7, 60]))
    assert files.read() == [7, 20]
    files.journal(8)
    files.deleted(4)
    files.manifest(5, b"edits and a flush")
    files.settling.settle()
    assert files.read() == [7, 60]


@pytest.mark.parametrize("content", [b"", b"edit", b"edItS"])
def test_a_shorter_or_other_manifest_is_a_lost_disk(files, content):
    files.manifest(5, content)
    with pytest.raises(LostDisk, match="MANIFEST-000005"):
        files.read()


def test_a_longer_manifest_is_what_a_kill_leaves(files):
    files.manifest(5, b"edits and one that nobody noted")
    assert files.read() == [10, 20]


def test_an_older_manifest_is_a_lost_disk(files):
    files.manifest(3, b"edits")
    with pytest.raises(LostDisk, match=r"MANIFEST-000003.*older than MANIFEST-000005"):
        files.read()


def test_of_a_manifest_that_nobody_noted_nothing_is_known(files):
    files.manifest(9, b"other edits")
    assert files.read() == [0, 0]


def test_a_missing_manifest_or_current_is_named(files):
    (files.database / "MANIFEST-000005").unlink()
    with pytest.raises(CorruptData, match="MANIFEST-000005"):
        files.read()
    (files.database / "CURRENT").write_text("\0")
    with pytest.raises(CorruptData, match="CURRENT"):
        files.read()


def test_a_new_manifest_is_noted_from_its_beginning(files):
    files.manifest(9, b"a new one")
    files.settling.settle()
    files.manifest(9, b"a new ONE")
    with pytest.raises(LostDisk):
        files.read()
