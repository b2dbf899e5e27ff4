import json

import pytest

from eventlog.errors import CorruptData, DirectoryInUse, UnsupportedFormat, WrongCluster
from eventlog.segment.directory import Directory, Label, check_owner, decode_label, read_label
from eventlog.segment.port import Identity

OWNER = Identity(cluster="c", node=3, incarnation="i")


def made(path, owner=OWNER):
    directory = Directory(path)
    directory.lock()
    label = Label.new(owner, 8)
    building = directory.begin_creation()
    directory.finish_creation(building, label)
    directory.unlock()
    return label


def test_a_label_comes_back_and_every_directory_has_its_own_token(tmp_path):
    label = made(tmp_path)
    assert Directory(tmp_path).label() == label
    assert read_label(tmp_path).owner == OWNER
    assert decode_label(label.encode(), where="x") == label
    assert Label.new(OWNER, 8) != label


def test_a_label_without_owner_comes_back(tmp_path):
    label = made(tmp_path, owner=None)
    assert Directory(tmp_path).label() == label
    assert read_label(tmp_path).owner is None


def test_a_directory_without_store_has_no_label(tmp_path):
    assert read_label(tmp_path / "nowhere") is None


def test_every_flipped_bit_of_a_label_is_refused(tmp_path):
    data = made(tmp_path).encode()
    for at in range(len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(CorruptData):
            decode_label(bytes(changed), where="x")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b"\xff", b'{"crc": 1}'])
def test_other_text_is_no_label(data):
    with pytest.raises(CorruptData):
        decode_label(data, where="x")


def test_a_label_cut_anywhere_is_refused(tmp_path):
    data = made(tmp_path).encode()
    for size in range(len(data) - 2):
        with pytest.raises(CorruptData):
            decode_label(data[:size], where="x")


def test_a_newer_format_is_named_as_such():
    data = Label.new(OWNER, 8).encode(form=2)
    assert json.loads(data)["format"] == 2
    with pytest.raises(UnsupportedFormat, match="format 2"):
        decode_label(data, where="x")


def test_a_store_without_its_label_is_damage(tmp_path):
    made(tmp_path)
    (tmp_path / "store" / "identity").unlink()
    with pytest.raises(CorruptData, match="identity"):
        read_label(tmp_path)


def test_an_interrupted_creation_leaves_no_store_and_is_begun_anew(tmp_path):
    directory = Directory(tmp_path)
    directory.lock()
    (directory.begin_creation().store / "half").write_text("x")
    assert directory.label() is None
    assert not (directory.begin_creation().store / "half").exists()


def test_a_locked_directory_is_in_use_until_it_is_unlocked(tmp_path):
    first, second = Directory(tmp_path), Directory(tmp_path)
    first.lock()
    with pytest.raises(DirectoryInUse, match=str(tmp_path)):
        second.lock()
    first.unlock()
    first.unlock()
    second.lock()
    second.unlock()


def test_the_clean_mark_is_taken_once(tmp_path):
    made(tmp_path)
    directory = Directory(tmp_path)
    assert directory.take_clean_mark()
    assert not directory.take_clean_mark()
    directory.mark_clean()
    assert directory.take_clean_mark()


@pytest.mark.parametrize(
    "owner",
    [
        Identity(cluster="d", node=3, incarnation="i"),
        Identity(cluster="c", node=4, incarnation="i"),
        Identity(cluster="c", node=3, incarnation="j"),
    ],
)
def test_another_owner_is_refused_with_both_names(owner):
    label = Label.new(OWNER, 8)
    with pytest.raises(WrongCluster) as caught:
        check_owner(label, owner=owner, segments=8, where="here")
    assert str(OWNER.node) in str(caught.value)
    assert str(owner.node) in str(caught.value)
    check_owner(label, owner=OWNER, segments=8, where="here")
    check_owner(label, owner=None, segments=8, where="here")


def test_another_number_of_segments_is_refused():
    with pytest.raises(WrongCluster, match="8 segments"):
        check_owner(Label.new(OWNER, 8), owner=OWNER, segments=16, where="here")
