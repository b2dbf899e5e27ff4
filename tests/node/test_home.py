"""What a data directory remembers beside its store."""

import pytest

from eventlog.control.metastores.location import parse_location
from eventlog.errors import CorruptData
from eventlog.node.home import Home

ELSEWHERE, BESIDE = parse_location("sqlite:/elsewhere/meta.db"), parse_location("sqlite:/beside/meta.db")


@pytest.fixture
def home(tmp_path):
    opened = Home.open(tmp_path)
    yield opened
    opened.close()


def test_where_the_metadata_are_is_kept_unless_that_is_beside_the_directory(home):
    assert home.metastore is None
    home.remember_metastore(ELSEWHERE, default=BESIDE)
    assert home.metastore == ELSEWHERE
    home.remember_metastore(BESIDE, default=BESIDE)
    assert home.metastore is None


@pytest.mark.parametrize("content", [b"", b"cqlite:/elsewhere/meta.db", b"sqlite:/elsewhere/\xff"])
def test_a_damaged_place_of_the_metadata_is_named_and_not_taken_for_an_option(home, tmp_path, content):
    (tmp_path / "metastore").write_bytes(content)
    with pytest.raises(CorruptData, match=r"metastore: it does not say where the metadata are; remove it if"):
        _ = home.metastore
