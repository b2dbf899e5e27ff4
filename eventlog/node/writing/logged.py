"""What an event replaced, as the log has it: for a write that was done before and is asked for its old value again."""

from eventlog.batch.views import decode_value
from eventlog.errors import CorruptData
from eventlog.ids import ID_STEP
from eventlog.segment.keys import log_range
from eventlog.segment.port import Store


def logged_image(store: Store, *, cache_id: int, segment: int, id_: int) -> bytes | None:
    """Return the value that the event `id_` replaced; None where the log does not have it, any more or undamaged."""
    found = store.last_log(*log_range(segment, cache_id, after=-1, upto=id_))
    if found is None:
        return None
    try:
        value = decode_value(segment, cache_id, found[1])
    except CorruptData:
        return None
    row, rest = divmod(id_ - value.head.base, ID_STEP)
    for block in value.blocks:
        if row < block.count:
            return None if block.before is None or rest else block.before.to_list()[row]
        row -= block.count
    return None
