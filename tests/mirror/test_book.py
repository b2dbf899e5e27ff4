"""Which mirrors there may be, and what may be changed of them."""

import pytest

from eventlog.errors import CorruptData, InvalidArgument, MirrorExists, MirrorNotFound, MirrorRuns, Overloaded
from eventlog.limits import MIRRORS_MAX
from eventlog.mirror import book as books
from eventlog.mirror.book import Book, checked
from tests.mirror.making import mirror

FITS = {"segments": 64, "has_before": True, "has_state": True}


def test_a_book_is_read_as_it_was_written():
    book = Book().added(mirror(topic_settings={"a": "b"}, filter=b"\x00\xff"))
    assert books.decode(books.encode(book), where="here") == book
    with pytest.raises(CorruptData, match="here"):
        books.decode(b"{", where="here")


def test_a_name_and_a_topic_are_one_mirrors():
    book = Book().added(mirror())
    with pytest.raises(MirrorExists):
        book.added(mirror(topic="other"))
    with pytest.raises(MirrorExists):
        book.added(mirror(name="other"))
    assert len(book.added(mirror(name="other", kafka="elsewhere")).mirrors) == 2


@pytest.mark.parametrize(
    ("differs", "topic"),
    [
        ({"topic": "eventlog.c.dlq"}, "eventlog.c.dlq"),  # where the other may write one day
        ({"topic": "__eventlog.mirror", "prefix": "own"}, "__eventlog.mirror"),
        ({"topic": "own", "prefix": "x"}, "__x.mirror"),
    ],
)
def test_a_topic_is_of_one_kind(differs: dict[str, str], topic: str):
    book = Book().added(mirror()).added(mirror(name="in the way", topic="__x.mirror"))
    with pytest.raises(MirrorExists, match=topic):
        book.added(mirror(name="other", **differs))
    assert len(book.added(mirror(name="other", topic="own")).mirrors) == 3, "progress may stand beside that of others"


def test_there_are_at_most_so_many():
    book = Book(mirrors={str(number): mirror(name=str(number), topic=str(number)) for number in range(MIRRORS_MAX)})
    with pytest.raises(Overloaded):
        book.added(mirror())


def test_every_change_is_another_revision():
    book = Book().added(mirror())
    for change in (
        books.paused,
        lambda one: books.reset(one, from_id=5, generation=2, signals_from=9),
        lambda one: books.resumed(one, accepts_diverged=False),
    ):
        before = book.find("m").revision
        book = book.changed("m", change)
        assert book.find("m").revision == before + 1
    assert (book.find("m").from_id, book.find("m").generation, book.find("m").state, book.find("m").accepts) == (5, 2, "running", 0)
    assert books.resumed(book.find("m"), accepts_diverged=True).accepts == 2
    assert book.removed("m") == Book()


def test_what_is_altered_goes_on_where_it_is():
    assert books.altered(mirror(), interval_ms=5) == mirror(interval_ms=5)
    assert books.altered(mirror(), on_too_large="dead-letter") == mirror(on_too_large="dead-letter")
    for given, why in (({"interval_ms": 0}, "interval"), ({"on_too_large": "skip"}, "use halt, dead-letter")):
        with pytest.raises(InvalidArgument, match=why):
            books.altered(mirror(), **given)
        with pytest.raises(InvalidArgument, match=why):
            checked(mirror(**given), **FITS)


def test_what_is_not_there_is_said_to_be():
    for act in (Book().find, Book().removed, lambda name: Book().changed(name, books.paused)):
        with pytest.raises(MirrorNotFound, match="'m'"):
            act("m")


def test_what_its_listener_had_before_it_began_says_nothing_of_how_far_it_is():
    begun = books.reset(books.paused(mirror()), from_id=5, generation=2, signals_from=9)
    assert [books.came_to(begun, acknowledged) for acknowledged in (0, 7, 9, 10)] == [5, 5, 5, 10]


def test_what_runs_is_not_reset():
    with pytest.raises(MirrorRuns, match="eventlog mirror pause m"):
        books.reset(mirror(), from_id=5, generation=2, signals_from=9)


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"name": ""}, "a name is"),
        ({"name": "a/b"}, "a name is"),
        ({"topic": ".."}, "Kafka takes"),
        ({"topic": "a b"}, "Kafka takes"),
        ({"topic": "x" * 250}, "Kafka takes"),
        ({"prefix": "x" * 245}, "Kafka takes"),
        ({"topic": "__eventlog.mirror"}, "how far the mirrors"),
        ({"partitions": 0, "shards": 0}, "give 1 to 64"),
        ({"partitions": 65}, "give 1 to 64"),
        ({"shards": 5}, "divides"),
        ({"format": "csv"}, "use debezium"),
        ({"encoding": "xml"}, "use json"),
        ({"registry": "http://r:8081"}, "give --encoding avro"),
        ({"registry": "main", "encoding": "avro", "format": "raw"}, "another format than raw"),
        ({"interval_ms": 0}, "interval"),
        ({"from_id": -1}, "not an id"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(differs, why):
    with pytest.raises(InvalidArgument, match=why):
        checked(mirror(**differs), **FITS)


def test_debezium_needs_to_know_what_was_replaced():
    told = mirror(format="debezium")
    assert checked(told, **FITS) == told
    with pytest.raises(InvalidArgument, match=r"no before-images: use --format upsert, or alter the cache with --before first$"):
        checked(told, **FITS | {"has_before": False})
    with pytest.raises(InvalidArgument, match=r"no state, .*: use --format upsert$"):  # and such a cache cannot be altered to --before
        checked(told, **FITS | {"has_state": False})
    assert books.default_format(has_before=True, has_state=True)[0] == "debezium"
    assert books.default_format(has_before=False, has_state=True) == ("upsert", "the cache keeps no before-images")
    assert books.default_format(has_before=True, has_state=False) == ("upsert", "the cache keeps no state")
