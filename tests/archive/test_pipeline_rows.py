"""What `eventlog pipeline` says of itself, and the rows that it prints."""

import json

import click
from click.testing import CliRunner

from eventlog.client.mirrors import MirrorDifference, MirrorVerification
from eventlog.integrations.archive.auditing import Audit, FirstDifference, HourDifference
from eventlog.integrations.archive.merging import TARGET_BYTES_DEFAULT
from eventlog.integrations.archive.reading import Verified
from eventlog.integrations.pipeline_rows import Took, audit_row
from eventlog.limits import MIB
from eventlog_cli.pipeline import command


def test_files_are_merged_up_to_the_size_that_the_help_says() -> None:
    context = click.Context(command.commands["compact"])
    [target] = [option for option in context.command.params if option.name == "target_bytes"]
    assert target.get_default(context) == "256MiB"
    assert target.type_cast_value(context, "256MiB") == TARGET_BYTES_DEFAULT == 256 * MIB
    assert "[default: 256MiB]" in CliRunner().invoke(command, ["compact", "--help"]).output


def test_the_row_of_an_audit_is_as_json_has_it_with_each_id_as_text() -> None:
    verified = Verified(after=1, upto=9, events=4, files=2, rounds=1, undigested=1)
    hour = HourDifference(segment=3, hour_ms=3_600_000, in_log=2, in_archive=1)
    first = FirstDifference(segment=3, hour_ms=3_600_000, id=7, in_log=True, in_archive=True, columns=("value",))
    found = Audit(verified=verified, after=1, upto=9, events=4, differing=1, differences=(hour,), first=first)
    unlike = MirrorDifference(segment=3, offset=0, id=1 << 60, in_log=1, in_topic=2)
    row = audit_row("orders", found, MirrorVerification(events=4, records=6, foreign=1, differences=(unlike,)), Took())
    assert row == json.loads(json.dumps(row))
    assert (row["events_verified"], row["events_undigested"]) == (3, 1)
    assert (row["first_difference"]["id_str"], row["first_difference"]["columns"]) == ("7", ["value"])
    assert row["differences"] == [{"segment": 3, "hour": "1970-01-01T01:00Z", "in_log": 2, "in_archive": 1}]
    assert (row["mirror"]["differences"], row["mirror"]["first_difference"]["id_str"]) == (2, str(1 << 60))
    assert list(row)[-2:] == ["seconds", "cpu_seconds"]
