"""Bounds of every bounded thing, and how they relate. Options may lower most of them; asserts below say what must hold.

Sizes are bytes, times milliseconds, bounds inclusive.
"""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# ids and clock: docs/protocol.md, "Clock and ids"
SEGMENTS_DEFAULT = 256
SEGMENTS_MAX = 4096
NODE_NUMBER_MAX = 1023
CLOCK_AHEAD_MS_MAX = 60_000  # how far stamped ids may run ahead of physical time
LEASE_MS = 5_000  # id space granted at once
LEASE_AHEAD_MS = 2_000  # the same where ids run ahead of the clock: each takeover starts above the old primary's lease
KEY_OVERLAP_MS_DEFAULT = 60_000  # how long a replaced cluster key holds beside the new one: all members hear of that within seconds
LEASE_RENEW_MS = 1_000

# replicas and which nodes are alive: docs/protocol.md, "Replication and failover"
REPLICAS_DEFAULT = 3
REPLICAS_MAX = 7
SILENCE_MS_MAX = 1_200  # a member that says nothing for so long is taken for dead
MOVES_IN_FLIGHT_MAX = 16  # segments that a rebalancing copies at once
BALANCE_PRIMARIES_CALM_MS = 3_000  # nothing changed for so long: primaries are spread evenly
REBALANCE_DELAY_MS = 60_000  # nothing changed for so long: segments are too

# what a client may send
KEY_BYTES_MAX = 4 * KIB
VALUE_BYTES_MAX = 1 * MIB
VALUE_BYTES_CAP = 64 * MIB
JSON_DEPTH_MAX = 256  # arrays and objects in each other; a decoder's own bound depends on its caller, so readers would differ
HEADERS_BYTES_MAX = 16 * KIB
BATCH_BYTES_MAX = 16 * MIB
BATCH_BYTES_CAP = 1 * GIB
BATCH_EVENTS_MAX = 200_000  # a node takes a frame apart in one go, and does nothing else meanwhile
CACHE_NAME_BYTES_MAX = 200
CACHES_MAX = 10_000

# wire
FRAME_BYTES_BEFORE_HELLO_MAX = 64 * KIB
FRAME_HEADER_BYTES_MAX = 128 * KIB  # the protobuf part of a request, without its body
FRAME_BYTES_MAX = BATCH_BYTES_MAX + 1 * MIB
CONNECTIONS_MAX = 4_096
STREAMS_PER_CONNECTION_MAX = 256
REQUESTS_PER_CONNECTION_MAX = 8_192
CONNECTION_BYTES_IN_FLIGHT_MAX = 64 * MIB  # requests received and not answered, plus answers not yet taken by the socket
PROCESS_BYTES_IN_FLIGHT_MAX = 256 * MIB
HANDSHAKE_MS_MAX = 10_000
IDLE_MS_MAX = 10 * 60_000
IDLE_MS_MIN = 10_000  # then a connection gives way to a new one where all places are taken: group members beat more often
STREAM_CREDIT_BYTES_DEFAULT = 8 * MIB
PEER_BYTES_IN_FLIGHT_MAX = 32 * MIB  # of bodies sent to one other member and not answered
PEER_SILENT_MS_MAX = 2_000  # a connection to a member that says nothing for so long is given up

# write path
GROUP_BYTES_MAX = 4 * MIB  # no gain above 1 MiB a commit; larger groups only lengthen the wait
GROUP_FRAMES_MAX = 4_096
SYNC_BYTES_MAX = 16 * MIB  # appends that wait are synced together up to this much
FOLLOW_BYTES_MAX = 32 * MIB  # what a backup keeps at hand until the watermark passes it
OVERLAY_BYTES_MAX = 32 * MIB
KEY_INDEX_BYTES_MAX = 512 * MIB
PRODUCERS_PER_SEGMENT_MAX = 10_000
PRODUCERS_LATE_MAX = 40_000  # of one cache that wrote within PRODUCER_IDLE_MS_MIN; above, new ones are refused
PRODUCER_RESULTS_KEPT = 16  # a client keeps at most as many blocks of one segment unanswered
PRODUCER_IDLE_MS_MAX = 24 * 3_600_000
PRODUCER_BYTES_MAX = 64 * MIB  # of the producers of one cache; above, a producer silent for PRODUCER_IDLE_MS_MIN is forgotten
PRODUCER_IDLE_MS_MIN = 60_000  # several times what an operation has by default, with all its retries
FIRST_BLOCK_MS_MAX = 30_000  # a first block whose fate is unknown is sent again for so long: a node that forgot it would write it twice
TRANSACTION_ATTEMPTS_BYTES_MAX = 512 * KIB  # of one batch, packed: one entry says of which attempts it consists
TRANSACTION_IDLE_MS_MAX = 30 * 24 * 3_600_000  # what publishes nothing for so long is forgotten: a batch may then be published again
STAGE_KEEP_MS_DEFAULT = 3_600_000  # what is laid ready and not published goes after so long
STAGE_KEEP_MS_MAX = 24 * 3_600_000
STAGED_CHUNK_BYTES = 512 * KIB
EXPIRE_PER_TURN_MAX = 1_000
CLEAR_PER_GROUP_MAX = 10_000
REQUEST_TIMEOUT_MS_DEFAULT = 10_000

# what a cache keeps unless told otherwise
RETAIN_TIME_MS_DEFAULT = 7 * 24 * 3_600_000
RETAIN_BYTES_DEFAULT = 10 * GIB

# read path
TAIL_RING_BYTES_MAX = 32 * MIB
ANSWER_BYTES_DEFAULT = 1 * MIB
ANSWER_BYTES_MAX = 8 * MIB
STORED_VALUE_VERBATIM_BYTES_MIN = 64 * KIB  # larger stored values go out as they are
STEP_BYTES = 1 * MIB  # how finely the log is indexed by id
STEP_EVENTS = 8_192
HISTORY_READ_BYTES_FIRST = 4 * MIB  # read at once for a reader of history that begins somewhere ...
HISTORY_READ_BYTES_MAX = 8 * MIB  # ... and for one that goes on; many at once share HISTORY_CACHE_BYTES_MAX
HISTORY_CACHE_BYTES_MAX = 64 * MIB
ANSWER_CACHE_BYTES_MAX = 16 * MIB  # answers kept for readers that ask the same
ANSWER_CACHE_ENTRIES_MAX = 1_024
POLL_WAIT_MS_MAX = 60_000
FILTER_SCAN_STEP_BYTES = 2 * HISTORY_READ_BYTES_MAX  # looked at in one go for a reader with a filter ...
FILTER_SCAN_BYTES_MAX = 64 * MIB  # ... and without a match until it hears where it stands
FILTERS_COMPILED_MAX = 1_024
COLUMN_FILES_BYTES_DEFAULT = 1 * GIB  # copies of history on the disk, laid out for readers with filters
COLUMN_FILE_LOG_BYTES = 16 * MIB  # of the log in one of them
COLUMN_FILE_ASKED_S = 600.0  # they are kept up while readers with filters come at least so often
PROMOTED_FIELDS_MAX = 8  # of a cache
POSITION_TOLD_FIRST_MS = 100  # a follower for which nothing matches hears where it stands once it has caught up ...
POSITION_TOLD_MS = 5_000  # ... and so often from then on
NEAR_ENTRIES_MAX = 1 << 20  # keys of one near cache: the node that watches them holds 8 bytes of each ...
NEAR_DIGESTS_MAX = 16 << 20  # ... and of all of its near caches no more than these
CLOSE_UP_MS_MAX = 1_000  # how long a read that is not to wait for events waits for what is committed at other nodes
STALLED_MS = 2_000  # standing still for so long is said, with what holds it
LOOP_DELAY_WARN_MS = 50

# consumer groups
SESSION_TIMEOUT_MS_DEFAULT = 10_000
SESSION_TIMEOUT_MS_MIN = 1_000
SESSION_TIMEOUT_MS_MAX = 30 * 60_000
LISTENERS_PER_NODE_MAX = 100_000  # kept where their routes are led
LISTENER_EXPIRE_MS_DEFAULT = 600_000  # an ephemeral one that nobody has polled for so long is removed
LISTENER_POSITION_WRITE_MS = 1_000  # a durable one's position is written down at most so often ...
LISTENER_POSITIONS_PER_WRITE_MAX = 200  # ... and of so many in one turn
LISTENER_WAIT_MS_DEFAULT = 1_000  # how long a write waits for synchronous listeners ...
LISTENERS_AWAITED_MAX = 100  # ... and for how many
ARCHIVE_BYTES_MAX = 1_000  # of the path or address of a cache's archive
GROUPS_PER_NODE_MAX = 10_000  # with members, coordinated where their routes are led: tens of kilobytes each
GROUP_MEMBERS_MAX = 1_000
GROUP_NAME_BYTES_MAX = 200
WORK_WINDOW_MAX = 256  # events of one segment above a work group's position: handed out, waiting, or done out of turn
WORK_BYTES_MAX = 32 * MIB  # of all events that a work group's coordinator has at hand
DELIVERIES_MAX_DEFAULT = 5
TASK_DELAY_MS_MAX = 7 * 24 * 3_600_000  # how long a member may have an event put off
ACK_TIMEOUT_MS_MAX = 24 * 3_600_000  # how long a work group may leave an event with one member
GROUP_METADATA_BYTES_MAX = 4 * KIB  # of one commit

# mirrors
MIRRORS_MAX = 256  # of a cluster: all of them are one record, which every node reads again after a change
MIRRORS_BYTES_MAX = 768 * KIB  # of that record
MIRROR_SHARDS_MIN, MIRROR_SHARDS_MAX = 4, 16  # that share more partitions; each has a producer of its own
MIRROR_INTERVAL_MS_DEFAULT = 100  # from an event to the transaction that it is in
MIRROR_TRANSACTION_EVENTS_MAX = 10_000
MIRROR_TRANSACTION_BYTES_MAX = 4 * MIB  # and one answer
MIRRORS_HELD_BYTES_MAX = 128 * MIB  # of answers that all mirrors of a node have read and not committed; a shard may always hold one
MIRROR_BATCH_BYTES_MAX = 900 * KIB  # of one partition, below the largest that a topic takes unless told

# filters
WHERE_CHARACTERS_MAX = 16 * KIB
WHERE_TOKENS_MAX = 2_000
WHERE_DEPTH_MAX = 32  # how deep expressions may be nested; AND and OR chains of any length are one level
FILTER_PARAMETERS_BYTES_MAX = 64 * KIB
SELECT_FIELDS_MAX = 100
PATH_STEPS_MAX = 32
TEXT_RESULT_CHARACTERS_MAX = 1 * MIB  # what a function of a filter makes of texts; longer is NULL

# schemas, and the registry of them
SCHEMA_DEPTH_MAX = 64  # how deep the JSON of a schema nests
SCHEMA_ITEMS_MAX = 100_000  # values in the JSON of a schema, of any kind
SCHEMA_BYTES_MAX = 1 * MIB  # of the text of a registered schema
SUBJECT_VERSIONS_MAX = 10_000  # of one subject: it is deleted by one write
SCHEMAS_MAX = 100_000  # versions of all subjects of a registry ...
SCHEMA_TEXTS_BYTES_MAX = 128 * MIB  # ... and the texts of its schemas together: every node keeps them in memory
SCHEMA_REFERENCES_MAX = 100  # of a schema to others, and of those to further ones
SCHEMA_STEPS_MAX = 100_000  # places of two schemas that are compared; two that take more are taken for incompatible
SUBJECT_BYTES_MAX = 1_000
SCHEMA_PATTERN_SIZE_MAX = 2_000  # instructions that a pattern of a schema becomes
CHECKED_SCHEMA_BYTES_MAX = 64 * KIB  # of one that values are checked by: made ready, it takes about 100 times as much memory
CHECKED_SCHEMAS_BYTES_MAX = 1 * MIB  # of those that are kept ready
CHECK_STEPS_MIN = 1_000  # what the check of a value by its schema may take, 0.1 to 0.2 us each ...
CHECK_STEPS_A_BYTE_MAX = 16  # ... and that for each byte of it
CHECK_LOOP_STEPS_MAX = 4_000  # of one frame's values before a thread goes on: less than a millisecond

# reading the state
PINS_MAX = 256  # moments of the state kept for readers
PIN_SHARED_MS_MAX = 500  # a pin serves further readers so long: its ids stand still, and readers ask for the past of a moment ago
PIN_IDLE_MS_MAX = 60_000
PIN_AGE_MS_MAX = 10 * 60_000
PINNED_BYTES_MAX = 256 * MIB  # of buffers that only pins keep
STATE_SCAN_BYTES_MAX = 4 * MIB  # looked at for one batch, however little of it matches
ITERATIONS_MAX = 1_024
ITERATION_IDLE_MS_MAX = 60_000
ITERATION_BATCH_ENTRIES_DEFAULT = 1_000
CHUNK_BYTES_DEFAULT = 1 * MIB  # of a segment that is copied, and of entries that a task gets: one size for work that goes on in pieces
ITERATION_BATCH_ENTRIES_MAX = 100_000

# disk
DISK_RESERVE_BYTES_DEFAULT = 1 * GIB
BALLAST_BYTES = 16 * MIB  # given up by a start on a full disk; and the steps in which it grows with the journal

assert SEGMENTS_DEFAULT <= SEGMENTS_MAX <= 1 << 16, "a segment is a u16 in every format"
assert VALUE_BYTES_MAX <= VALUE_BYTES_CAP < BATCH_BYTES_CAP < 1 << 31, "offsets within a block are int32"
assert KEY_BYTES_MAX + VALUE_BYTES_MAX + HEADERS_BYTES_MAX < BATCH_BYTES_MAX, "one event fits a batch"
assert 2 * FIRST_BLOCK_MS_MAX <= PRODUCER_IDLE_MS_MIN, "ids may go faster than a client's clock: a failover costs a lease"
assert CHECKED_SCHEMA_BYTES_MAX <= CHECKED_SCHEMAS_BYTES_MAX, "one schema is kept ready"
assert BATCH_BYTES_MAX < FRAME_BYTES_MAX, "one batch fits a frame"
assert SUBJECT_VERSIONS_MAX * (SUBJECT_BYTES_MAX + 200) < BATCH_BYTES_MAX, "all versions of a subject fit a write, with what removes them"
assert FRAME_BYTES_MAX <= CONNECTION_BYTES_IN_FLIGHT_MAX <= PROCESS_BYTES_IN_FLIGHT_MAX, "one frame never blocks its own connection"
assert SEGMENTS_MAX * 20 + 1 * KIB < FRAME_HEADER_BYTES_MAX, "a poll from a position of every segment fits a header"
assert LEASE_RENEW_MS * 2 <= LEASE_AHEAD_MS < LEASE_MS < CLOCK_AHEAD_MS_MAX, "a lease survives a missed renewal"
assert STEP_BYTES <= ANSWER_BYTES_MAX, "an answer holds at least one step"
assert STEP_BYTES <= HISTORY_READ_BYTES_FIRST <= HISTORY_READ_BYTES_MAX <= HISTORY_CACHE_BYTES_MAX, (
    "reading ahead holds a step and fits where it is kept"
)
assert 2 * COLUMN_FILE_LOG_BYTES <= COLUMN_FILES_BYTES_DEFAULT, "a file of columns fits what is kept"
assert MIRRORS_BYTES_MAX < VALUE_BYTES_MAX, "all mirrors fit a value"
assert GROUP_BYTES_MAX <= OVERLAY_BYTES_MAX, "one group fits the overlay"
assert GROUP_BYTES_MAX < PEER_BYTES_IN_FLIGHT_MAX <= CONNECTION_BYTES_IN_FLIGHT_MAX, "one group never blocks the way to a backup"
assert ANSWER_BYTES_MAX <= STREAM_CREDIT_BYTES_DEFAULT <= CONNECTION_BYTES_IN_FLIGHT_MAX, "one answer fits a stream's credit"
