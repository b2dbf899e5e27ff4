"""A mirror as it is added: what a dry run says of it, what Kafka is asked of its topic, and events of which none matches."""

import pytest

from eventlog import blocking
from eventlog.errors import InvalidArgument
from tests.kafka.mirrors import read, wait

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


@pytest.mark.parametrize("form", ["debezium", "upsert"])
def test_a_dry_run_says_where_the_mirror_would_begin(client: blocking.Client, broker: str, name: str, form: str) -> None:
    cache = client.create_cache(name)
    first, second = (cache.put("k", number).id for number in range(2))

    def begin(from_id: int | str, *, dry_run: bool) -> int:
        return client.mirrors.add(name, kafka=broker, format=form, from_id=from_id, dry_run=dry_run).mirror.from_id

    assert begin(first, dry_run=True) == first
    assert begin("latest", dry_run=True) >= second
    would = begin("earliest", dry_run=True)
    assert name not in {mirror.name for mirror in client.mirrors.list()}
    assert f"mirror.{name}" not in {one.id for one in client.listeners.list()}
    assert begin("earliest", dry_run=False) == would == first - 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_setting_that_kafka_does_not_take_is_refused(client: blocking.Client, broker: str, name: str, dry_run: bool) -> None:
    client.create_cache(name)
    with pytest.raises(InvalidArgument, match=f"topic eventlog.{name} cannot be made: .*retention.ms"):
        client.mirrors.add(name, kafka=broker, topic_settings={"retention.ms": "week"}, dry_run=dry_run)
    assert name not in {mirror.name for mirror in client.mirrors.list()}
    assert f"mirror.{name}" not in {one.id for one in client.listeners.list()}
    client.mirrors.add(name, kafka=broker, topic_settings={"retention.ms": "1000"}, dry_run=dry_run)


@pytest.mark.parametrize("form", ["debezium", "upsert"])
def test_a_filter_that_nothing_matched_yet_is_one_all_the_same(client: blocking.Client, broker: str, name: str, form: str) -> None:
    cache = client.create_cache(name)
    cache.put_many([(f"k{number}", {"total": number}) for number in range(50)])
    topic = client.mirrors.add(name, kafka=broker, format=form, where="value.total > 100", partitions=1).mirror.topic
    late = cache.put("k1", {"total": 500})
    wait(client, name)
    assert [one.id for one in read(broker, topic)] == [late.id]
