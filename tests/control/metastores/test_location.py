"""Where metadata is, as text and back."""

from pathlib import Path

import pytest

from eventlog.control.metastores.location import EtcdLocation, SqliteLocation, parse_location
from eventlog.errors import BadConfig


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("sqlite:/a/meta.db", SqliteLocation(Path("/a/meta.db"))),
        ("etcd://h:2379", EtcdLocation(("h:2379",))),
        ("etcd://h:1,[::1]:2/name", EtcdLocation(("h:1", "[::1]:2"), "name")),
    ],
)
def test_a_location_is_read_and_written_as_the_same_text(text, location):
    assert parse_location(text) == location
    assert str(location) == text


def test_the_text_of_a_file_names_it_from_any_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    location = parse_location("sqlite:meta.db")
    assert location == SqliteLocation(Path("meta.db"))
    assert str(location) == f"sqlite:{tmp_path / 'meta.db'}"


@pytest.mark.parametrize(
    "text", ["", "sqlite:", "meta.db", "etcd://", "etcd://h", "etcd://h:0", "etcd://h:70000", "etcd://h:1,", "etcd://h:1/a/b", "etcd:h:1"]
)
def test_what_names_no_store_is_refused_with_what_would(text):
    with pytest.raises(BadConfig, match=r"neither sqlite:PATH nor etcd://"):
        parse_location(text)
