from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIMARY: _ClassVar[Consistency]
    LINEAR: _ClassVar[Consistency]
    ANY: _ClassVar[Consistency]

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JSON: _ClassVar[Format]
    BYTES: _ClassVar[Format]
    AVRO: _ClassVar[Format]
PRIMARY: Consistency
LINEAR: Consistency
ANY: Consistency
JSON: Format
BYTES: Format
AVRO: Format

class Message(_message.Message):
    __slots__ = ("body_length", "opaque", "version", "timeout_ms", "forwarded", "cover", "hello", "hello_answer", "error", "done", "stream_item", "stream_end", "credit", "end_stream", "ping", "write", "write_answer", "get", "get_answer", "get_many", "keys", "size", "size_answer", "clear", "clear_answer", "get_topology", "topology_answer", "topology_changed", "poll", "poll_answer", "watch", "log_ends", "log_ends_answer", "last_events", "last_events_answer", "plan_events", "plan_events_answer", "register_listener", "listener_answer", "list_listeners", "list_listeners_answer", "alter_listener", "remove_listener", "use_listeners", "use_listeners_answer", "acknowledge_listener", "list_filters", "list_filters_answer", "near_watch", "near_interest", "near_interest_answer", "create_cache", "describe_cache", "alter_cache", "drop_cache", "list_caches", "cache_answer", "list_caches_answer", "status", "status_answer", "list_segments", "list_segments_answer", "run_retention", "run_retention_answer", "check_data", "check_data_answer", "list_nodes", "list_nodes_answer", "change_cluster", "change_cluster_answer", "plan_rebalance", "plan_rebalance_answer", "digest_segments", "digest_segments_answer", "force_primary", "force_primary_answer", "rebalance_status", "rebalance_status_answer", "compare_copies", "peer_hello", "peer_hello_answer", "peer_proof", "beat", "beat_answer", "cluster_info", "cluster_info_answer", "see_revision", "replicate", "replicate_answer", "acknowledge", "close_up", "close_up_answer", "fetch", "fetch_answer", "confirm_epochs", "confirm_epochs_answer", "retention_steps", "retention_steps_answer", "retention_cut", "await_listeners", "await_listeners_answer", "listener_changed", "count_after", "count_after_answer", "trim_copies", "group_beat", "group_beat_answer", "leave_group", "commit_group", "describe_group", "describe_group_answer", "list_groups", "list_groups_answer", "reset_group", "reset_group_answer", "delete_group", "take_tasks", "take_tasks_answer", "settle_tasks", "iteration_start", "iteration_start_answer", "iteration_next", "iteration_end", "for_each", "member_closed", "group_lag", "group_lag_answer", "read_state", "read_state_answer", "shift_places", "shift_places_answer", "add_mirror", "add_mirror_answer", "list_mirrors", "list_mirrors_answer", "mirror_status", "mirror_status_answer", "verify_mirror", "verify_mirror_answer", "change_mirror", "stage", "stage_answer", "publish", "publish_answer", "publish_segment", "check_staged", "padding", "body")
    BODY_LENGTH_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    COVER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HELLO_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STREAM_ITEM_FIELD_NUMBER: _ClassVar[int]
    STREAM_END_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    END_STREAM_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    WRITE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    GET_ANSWER_FIELD_NUMBER: _ClassVar[int]
    GET_MANY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SIZE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    CLEAR_ANSWER_FIELD_NUMBER: _ClassVar[int]
    GET_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ANSWER_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_CHANGED_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    POLL_ANSWER_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    LOG_ENDS_FIELD_NUMBER: _ClassVar[int]
    LOG_ENDS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_EVENTS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    PLAN_EVENTS_FIELD_NUMBER: _ClassVar[int]
    PLAN_EVENTS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_LISTENER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LIST_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    LIST_LISTENERS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ALTER_LISTENER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_LISTENER_FIELD_NUMBER: _ClassVar[int]
    USE_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    USE_LISTENERS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_LISTENER_FIELD_NUMBER: _ClassVar[int]
    LIST_FILTERS_FIELD_NUMBER: _ClassVar[int]
    LIST_FILTERS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    NEAR_WATCH_FIELD_NUMBER: _ClassVar[int]
    NEAR_INTEREST_FIELD_NUMBER: _ClassVar[int]
    NEAR_INTEREST_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CREATE_CACHE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CACHE_FIELD_NUMBER: _ClassVar[int]
    ALTER_CACHE_FIELD_NUMBER: _ClassVar[int]
    DROP_CACHE_FIELD_NUMBER: _ClassVar[int]
    LIST_CACHES_FIELD_NUMBER: _ClassVar[int]
    CACHE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LIST_CACHES_ANSWER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATUS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LIST_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LIST_SEGMENTS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    RUN_RETENTION_FIELD_NUMBER: _ClassVar[int]
    RUN_RETENTION_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CHECK_DATA_FIELD_NUMBER: _ClassVar[int]
    CHECK_DATA_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LIST_NODES_FIELD_NUMBER: _ClassVar[int]
    LIST_NODES_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CHANGE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    CHANGE_CLUSTER_ANSWER_FIELD_NUMBER: _ClassVar[int]
    PLAN_REBALANCE_FIELD_NUMBER: _ClassVar[int]
    PLAN_REBALANCE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    DIGEST_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_SEGMENTS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    FORCE_PRIMARY_FIELD_NUMBER: _ClassVar[int]
    FORCE_PRIMARY_ANSWER_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_STATUS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_STATUS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    COMPARE_COPIES_FIELD_NUMBER: _ClassVar[int]
    PEER_HELLO_FIELD_NUMBER: _ClassVar[int]
    PEER_HELLO_ANSWER_FIELD_NUMBER: _ClassVar[int]
    PEER_PROOF_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    BEAT_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_INFO_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_INFO_ANSWER_FIELD_NUMBER: _ClassVar[int]
    SEE_REVISION_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_UP_FIELD_NUMBER: _ClassVar[int]
    CLOSE_UP_ANSWER_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    FETCH_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_EPOCHS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_STEPS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_STEPS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    RETENTION_CUT_FIELD_NUMBER: _ClassVar[int]
    AWAIT_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    AWAIT_LISTENERS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_CHANGED_FIELD_NUMBER: _ClassVar[int]
    COUNT_AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_AFTER_ANSWER_FIELD_NUMBER: _ClassVar[int]
    TRIM_COPIES_FIELD_NUMBER: _ClassVar[int]
    GROUP_BEAT_FIELD_NUMBER: _ClassVar[int]
    GROUP_BEAT_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LEAVE_GROUP_FIELD_NUMBER: _ClassVar[int]
    COMMIT_GROUP_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_GROUP_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LIST_GROUPS_FIELD_NUMBER: _ClassVar[int]
    LIST_GROUPS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    RESET_GROUP_FIELD_NUMBER: _ClassVar[int]
    RESET_GROUP_ANSWER_FIELD_NUMBER: _ClassVar[int]
    DELETE_GROUP_FIELD_NUMBER: _ClassVar[int]
    TAKE_TASKS_FIELD_NUMBER: _ClassVar[int]
    TAKE_TASKS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    SETTLE_TASKS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_START_FIELD_NUMBER: _ClassVar[int]
    ITERATION_START_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ITERATION_NEXT_FIELD_NUMBER: _ClassVar[int]
    ITERATION_END_FIELD_NUMBER: _ClassVar[int]
    FOR_EACH_FIELD_NUMBER: _ClassVar[int]
    MEMBER_CLOSED_FIELD_NUMBER: _ClassVar[int]
    GROUP_LAG_FIELD_NUMBER: _ClassVar[int]
    GROUP_LAG_ANSWER_FIELD_NUMBER: _ClassVar[int]
    READ_STATE_FIELD_NUMBER: _ClassVar[int]
    READ_STATE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    SHIFT_PLACES_FIELD_NUMBER: _ClassVar[int]
    SHIFT_PLACES_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ADD_MIRROR_FIELD_NUMBER: _ClassVar[int]
    ADD_MIRROR_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LIST_MIRRORS_FIELD_NUMBER: _ClassVar[int]
    LIST_MIRRORS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    MIRROR_STATUS_FIELD_NUMBER: _ClassVar[int]
    MIRROR_STATUS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    VERIFY_MIRROR_FIELD_NUMBER: _ClassVar[int]
    VERIFY_MIRROR_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CHANGE_MIRROR_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_ANSWER_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    CHECK_STAGED_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    body_length: int
    opaque: int
    version: int
    timeout_ms: int
    forwarded: bool
    cover: Cover
    hello: Hello
    hello_answer: HelloAnswer
    error: Error
    done: Done
    stream_item: StreamItem
    stream_end: StreamEnd
    credit: Credit
    end_stream: EndStream
    ping: Ping
    write: Write
    write_answer: WriteAnswer
    get: Get
    get_answer: GetAnswer
    get_many: GetMany
    keys: Keys
    size: Size
    size_answer: SizeAnswer
    clear: Clear
    clear_answer: ClearAnswer
    get_topology: GetTopology
    topology_answer: TopologyAnswer
    topology_changed: TopologyChanged
    poll: Poll
    poll_answer: PollAnswer
    watch: Watch
    log_ends: LogEnds
    log_ends_answer: LogEndsAnswer
    last_events: LastEvents
    last_events_answer: LastEventsAnswer
    plan_events: PlanEvents
    plan_events_answer: PlanEventsAnswer
    register_listener: RegisterListener
    listener_answer: ListenerAnswer
    list_listeners: ListListeners
    list_listeners_answer: ListListenersAnswer
    alter_listener: AlterListener
    remove_listener: RemoveListener
    use_listeners: UseListeners
    use_listeners_answer: UseListenersAnswer
    acknowledge_listener: AcknowledgeListener
    list_filters: ListFilters
    list_filters_answer: ListFiltersAnswer
    near_watch: NearWatch
    near_interest: NearInterest
    near_interest_answer: NearInterestAnswer
    create_cache: CreateCache
    describe_cache: DescribeCache
    alter_cache: AlterCache
    drop_cache: DropCache
    list_caches: ListCaches
    cache_answer: CacheAnswer
    list_caches_answer: ListCachesAnswer
    status: Status
    status_answer: StatusAnswer
    list_segments: ListSegments
    list_segments_answer: ListSegmentsAnswer
    run_retention: RunRetention
    run_retention_answer: RunRetentionAnswer
    check_data: CheckData
    check_data_answer: CheckDataAnswer
    list_nodes: ListNodes
    list_nodes_answer: ListNodesAnswer
    change_cluster: ChangeCluster
    change_cluster_answer: ChangeClusterAnswer
    plan_rebalance: PlanRebalance
    plan_rebalance_answer: PlanRebalanceAnswer
    digest_segments: DigestSegments
    digest_segments_answer: DigestSegmentsAnswer
    force_primary: ForcePrimary
    force_primary_answer: ForcePrimaryAnswer
    rebalance_status: RebalanceStatus
    rebalance_status_answer: RebalanceStatusAnswer
    compare_copies: CompareCopies
    peer_hello: PeerHello
    peer_hello_answer: PeerHelloAnswer
    peer_proof: PeerProof
    beat: Beat
    beat_answer: BeatAnswer
    cluster_info: ClusterInfo
    cluster_info_answer: ClusterInfoAnswer
    see_revision: SeeRevision
    replicate: Replicate
    replicate_answer: ReplicateAnswer
    acknowledge: Acknowledge
    close_up: CloseUp
    close_up_answer: CloseUpAnswer
    fetch: Fetch
    fetch_answer: FetchAnswer
    confirm_epochs: ConfirmEpochs
    confirm_epochs_answer: ConfirmEpochsAnswer
    retention_steps: RetentionSteps
    retention_steps_answer: RetentionStepsAnswer
    retention_cut: RetentionCut
    await_listeners: AwaitListeners
    await_listeners_answer: AwaitListenersAnswer
    listener_changed: ListenerChanged
    count_after: CountAfter
    count_after_answer: CountAfterAnswer
    trim_copies: TrimCopies
    group_beat: GroupBeat
    group_beat_answer: GroupBeatAnswer
    leave_group: LeaveGroup
    commit_group: CommitGroup
    describe_group: DescribeGroup
    describe_group_answer: DescribeGroupAnswer
    list_groups: ListGroups
    list_groups_answer: ListGroupsAnswer
    reset_group: ResetGroup
    reset_group_answer: ResetGroupAnswer
    delete_group: DeleteGroup
    take_tasks: TakeTasks
    take_tasks_answer: TakeTasksAnswer
    settle_tasks: SettleTasks
    iteration_start: IterationStart
    iteration_start_answer: IterationStartAnswer
    iteration_next: IterationNext
    iteration_end: IterationEnd
    for_each: ForEach
    member_closed: MemberClosed
    group_lag: GroupLag
    group_lag_answer: GroupLagAnswer
    read_state: ReadState
    read_state_answer: ReadStateAnswer
    shift_places: ShiftPlaces
    shift_places_answer: ShiftPlacesAnswer
    add_mirror: AddMirror
    add_mirror_answer: AddMirrorAnswer
    list_mirrors: ListMirrors
    list_mirrors_answer: ListMirrorsAnswer
    mirror_status: MirrorStatus
    mirror_status_answer: MirrorStatusAnswer
    verify_mirror: VerifyMirror
    verify_mirror_answer: VerifyMirrorAnswer
    change_mirror: ChangeMirror
    stage: Stage
    stage_answer: StageAnswer
    publish: Publish
    publish_answer: PublishAnswer
    publish_segment: PublishSegment
    check_staged: CheckStaged
    padding: bytes
    body: bytes
    def __init__(self, body_length: _Optional[int] = ..., opaque: _Optional[int] = ..., version: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., forwarded: bool = ..., cover: _Optional[_Union[Cover, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., hello_answer: _Optional[_Union[HelloAnswer, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., stream_item: _Optional[_Union[StreamItem, _Mapping]] = ..., stream_end: _Optional[_Union[StreamEnd, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., end_stream: _Optional[_Union[EndStream, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., write: _Optional[_Union[Write, _Mapping]] = ..., write_answer: _Optional[_Union[WriteAnswer, _Mapping]] = ..., get: _Optional[_Union[Get, _Mapping]] = ..., get_answer: _Optional[_Union[GetAnswer, _Mapping]] = ..., get_many: _Optional[_Union[GetMany, _Mapping]] = ..., keys: _Optional[_Union[Keys, _Mapping]] = ..., size: _Optional[_Union[Size, _Mapping]] = ..., size_answer: _Optional[_Union[SizeAnswer, _Mapping]] = ..., clear: _Optional[_Union[Clear, _Mapping]] = ..., clear_answer: _Optional[_Union[ClearAnswer, _Mapping]] = ..., get_topology: _Optional[_Union[GetTopology, _Mapping]] = ..., topology_answer: _Optional[_Union[TopologyAnswer, _Mapping]] = ..., topology_changed: _Optional[_Union[TopologyChanged, _Mapping]] = ..., poll: _Optional[_Union[Poll, _Mapping]] = ..., poll_answer: _Optional[_Union[PollAnswer, _Mapping]] = ..., watch: _Optional[_Union[Watch, _Mapping]] = ..., log_ends: _Optional[_Union[LogEnds, _Mapping]] = ..., log_ends_answer: _Optional[_Union[LogEndsAnswer, _Mapping]] = ..., last_events: _Optional[_Union[LastEvents, _Mapping]] = ..., last_events_answer: _Optional[_Union[LastEventsAnswer, _Mapping]] = ..., plan_events: _Optional[_Union[PlanEvents, _Mapping]] = ..., plan_events_answer: _Optional[_Union[PlanEventsAnswer, _Mapping]] = ..., register_listener: _Optional[_Union[RegisterListener, _Mapping]] = ..., listener_answer: _Optional[_Union[ListenerAnswer, _Mapping]] = ..., list_listeners: _Optional[_Union[ListListeners, _Mapping]] = ..., list_listeners_answer: _Optional[_Union[ListListenersAnswer, _Mapping]] = ..., alter_listener: _Optional[_Union[AlterListener, _Mapping]] = ..., remove_listener: _Optional[_Union[RemoveListener, _Mapping]] = ..., use_listeners: _Optional[_Union[UseListeners, _Mapping]] = ..., use_listeners_answer: _Optional[_Union[UseListenersAnswer, _Mapping]] = ..., acknowledge_listener: _Optional[_Union[AcknowledgeListener, _Mapping]] = ..., list_filters: _Optional[_Union[ListFilters, _Mapping]] = ..., list_filters_answer: _Optional[_Union[ListFiltersAnswer, _Mapping]] = ..., near_watch: _Optional[_Union[NearWatch, _Mapping]] = ..., near_interest: _Optional[_Union[NearInterest, _Mapping]] = ..., near_interest_answer: _Optional[_Union[NearInterestAnswer, _Mapping]] = ..., create_cache: _Optional[_Union[CreateCache, _Mapping]] = ..., describe_cache: _Optional[_Union[DescribeCache, _Mapping]] = ..., alter_cache: _Optional[_Union[AlterCache, _Mapping]] = ..., drop_cache: _Optional[_Union[DropCache, _Mapping]] = ..., list_caches: _Optional[_Union[ListCaches, _Mapping]] = ..., cache_answer: _Optional[_Union[CacheAnswer, _Mapping]] = ..., list_caches_answer: _Optional[_Union[ListCachesAnswer, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., status_answer: _Optional[_Union[StatusAnswer, _Mapping]] = ..., list_segments: _Optional[_Union[ListSegments, _Mapping]] = ..., list_segments_answer: _Optional[_Union[ListSegmentsAnswer, _Mapping]] = ..., run_retention: _Optional[_Union[RunRetention, _Mapping]] = ..., run_retention_answer: _Optional[_Union[RunRetentionAnswer, _Mapping]] = ..., check_data: _Optional[_Union[CheckData, _Mapping]] = ..., check_data_answer: _Optional[_Union[CheckDataAnswer, _Mapping]] = ..., list_nodes: _Optional[_Union[ListNodes, _Mapping]] = ..., list_nodes_answer: _Optional[_Union[ListNodesAnswer, _Mapping]] = ..., change_cluster: _Optional[_Union[ChangeCluster, _Mapping]] = ..., change_cluster_answer: _Optional[_Union[ChangeClusterAnswer, _Mapping]] = ..., plan_rebalance: _Optional[_Union[PlanRebalance, _Mapping]] = ..., plan_rebalance_answer: _Optional[_Union[PlanRebalanceAnswer, _Mapping]] = ..., digest_segments: _Optional[_Union[DigestSegments, _Mapping]] = ..., digest_segments_answer: _Optional[_Union[DigestSegmentsAnswer, _Mapping]] = ..., force_primary: _Optional[_Union[ForcePrimary, _Mapping]] = ..., force_primary_answer: _Optional[_Union[ForcePrimaryAnswer, _Mapping]] = ..., rebalance_status: _Optional[_Union[RebalanceStatus, _Mapping]] = ..., rebalance_status_answer: _Optional[_Union[RebalanceStatusAnswer, _Mapping]] = ..., compare_copies: _Optional[_Union[CompareCopies, _Mapping]] = ..., peer_hello: _Optional[_Union[PeerHello, _Mapping]] = ..., peer_hello_answer: _Optional[_Union[PeerHelloAnswer, _Mapping]] = ..., peer_proof: _Optional[_Union[PeerProof, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., beat_answer: _Optional[_Union[BeatAnswer, _Mapping]] = ..., cluster_info: _Optional[_Union[ClusterInfo, _Mapping]] = ..., cluster_info_answer: _Optional[_Union[ClusterInfoAnswer, _Mapping]] = ..., see_revision: _Optional[_Union[SeeRevision, _Mapping]] = ..., replicate: _Optional[_Union[Replicate, _Mapping]] = ..., replicate_answer: _Optional[_Union[ReplicateAnswer, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., close_up: _Optional[_Union[CloseUp, _Mapping]] = ..., close_up_answer: _Optional[_Union[CloseUpAnswer, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., fetch_answer: _Optional[_Union[FetchAnswer, _Mapping]] = ..., confirm_epochs: _Optional[_Union[ConfirmEpochs, _Mapping]] = ..., confirm_epochs_answer: _Optional[_Union[ConfirmEpochsAnswer, _Mapping]] = ..., retention_steps: _Optional[_Union[RetentionSteps, _Mapping]] = ..., retention_steps_answer: _Optional[_Union[RetentionStepsAnswer, _Mapping]] = ..., retention_cut: _Optional[_Union[RetentionCut, _Mapping]] = ..., await_listeners: _Optional[_Union[AwaitListeners, _Mapping]] = ..., await_listeners_answer: _Optional[_Union[AwaitListenersAnswer, _Mapping]] = ..., listener_changed: _Optional[_Union[ListenerChanged, _Mapping]] = ..., count_after: _Optional[_Union[CountAfter, _Mapping]] = ..., count_after_answer: _Optional[_Union[CountAfterAnswer, _Mapping]] = ..., trim_copies: _Optional[_Union[TrimCopies, _Mapping]] = ..., group_beat: _Optional[_Union[GroupBeat, _Mapping]] = ..., group_beat_answer: _Optional[_Union[GroupBeatAnswer, _Mapping]] = ..., leave_group: _Optional[_Union[LeaveGroup, _Mapping]] = ..., commit_group: _Optional[_Union[CommitGroup, _Mapping]] = ..., describe_group: _Optional[_Union[DescribeGroup, _Mapping]] = ..., describe_group_answer: _Optional[_Union[DescribeGroupAnswer, _Mapping]] = ..., list_groups: _Optional[_Union[ListGroups, _Mapping]] = ..., list_groups_answer: _Optional[_Union[ListGroupsAnswer, _Mapping]] = ..., reset_group: _Optional[_Union[ResetGroup, _Mapping]] = ..., reset_group_answer: _Optional[_Union[ResetGroupAnswer, _Mapping]] = ..., delete_group: _Optional[_Union[DeleteGroup, _Mapping]] = ..., take_tasks: _Optional[_Union[TakeTasks, _Mapping]] = ..., take_tasks_answer: _Optional[_Union[TakeTasksAnswer, _Mapping]] = ..., settle_tasks: _Optional[_Union[SettleTasks, _Mapping]] = ..., iteration_start: _Optional[_Union[IterationStart, _Mapping]] = ..., iteration_start_answer: _Optional[_Union[IterationStartAnswer, _Mapping]] = ..., iteration_next: _Optional[_Union[IterationNext, _Mapping]] = ..., iteration_end: _Optional[_Union[IterationEnd, _Mapping]] = ..., for_each: _Optional[_Union[ForEach, _Mapping]] = ..., member_closed: _Optional[_Union[MemberClosed, _Mapping]] = ..., group_lag: _Optional[_Union[GroupLag, _Mapping]] = ..., group_lag_answer: _Optional[_Union[GroupLagAnswer, _Mapping]] = ..., read_state: _Optional[_Union[ReadState, _Mapping]] = ..., read_state_answer: _Optional[_Union[ReadStateAnswer, _Mapping]] = ..., shift_places: _Optional[_Union[ShiftPlaces, _Mapping]] = ..., shift_places_answer: _Optional[_Union[ShiftPlacesAnswer, _Mapping]] = ..., add_mirror: _Optional[_Union[AddMirror, _Mapping]] = ..., add_mirror_answer: _Optional[_Union[AddMirrorAnswer, _Mapping]] = ..., list_mirrors: _Optional[_Union[ListMirrors, _Mapping]] = ..., list_mirrors_answer: _Optional[_Union[ListMirrorsAnswer, _Mapping]] = ..., mirror_status: _Optional[_Union[MirrorStatus, _Mapping]] = ..., mirror_status_answer: _Optional[_Union[MirrorStatusAnswer, _Mapping]] = ..., verify_mirror: _Optional[_Union[VerifyMirror, _Mapping]] = ..., verify_mirror_answer: _Optional[_Union[VerifyMirrorAnswer, _Mapping]] = ..., change_mirror: _Optional[_Union[ChangeMirror, _Mapping]] = ..., stage: _Optional[_Union[Stage, _Mapping]] = ..., stage_answer: _Optional[_Union[StageAnswer, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., publish_answer: _Optional[_Union[PublishAnswer, _Mapping]] = ..., publish_segment: _Optional[_Union[PublishSegment, _Mapping]] = ..., check_staged: _Optional[_Union[CheckStaged, _Mapping]] = ..., padding: _Optional[bytes] = ..., body: _Optional[bytes] = ...) -> None: ...

class Cover(_message.Message):
    __slots__ = ("segments", "epochs")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version_min", "version_max", "features", "producer", "producer_id", "client", "member", "operator")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    features: int
    producer: bool
    producer_id: int
    client: str
    member: bool
    operator: bool
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., features: _Optional[int] = ..., producer: bool = ..., producer_id: _Optional[int] = ..., client: _Optional[str] = ..., member: bool = ..., operator: bool = ...) -> None: ...

class HelloAnswer(_message.Message):
    __slots__ = ("version", "features", "cluster", "segments", "topology_epoch", "producer_id", "node", "frame_bytes_max", "now_id", "number")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    NOW_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    version: int
    features: int
    cluster: str
    segments: int
    topology_epoch: int
    producer_id: int
    node: str
    frame_bytes_max: int
    now_id: int
    number: int
    def __init__(self, version: _Optional[int] = ..., features: _Optional[int] = ..., cluster: _Optional[str] = ..., segments: _Optional[int] = ..., topology_epoch: _Optional[int] = ..., producer_id: _Optional[int] = ..., node: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ..., now_id: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "outcome", "facts")
    CODE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    code: str
    outcome: str
    facts: bytes
    def __init__(self, code: _Optional[str] = ..., outcome: _Optional[str] = ..., facts: _Optional[bytes] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamItem(_message.Message):
    __slots__ = ("poll_answer", "entries", "near_item", "iteration_batch")
    POLL_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEAR_ITEM_FIELD_NUMBER: _ClassVar[int]
    ITERATION_BATCH_FIELD_NUMBER: _ClassVar[int]
    poll_answer: PollAnswer
    entries: Entries
    near_item: NearItem
    iteration_batch: IterationBatch
    def __init__(self, poll_answer: _Optional[_Union[PollAnswer, _Mapping]] = ..., entries: _Optional[_Union[Entries, _Mapping]] = ..., near_item: _Optional[_Union[NearItem, _Mapping]] = ..., iteration_batch: _Optional[_Union[IterationBatch, _Mapping]] = ...) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Credit(_message.Message):
    __slots__ = ("stream", "bytes")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    stream: int
    bytes: int
    def __init__(self, stream: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class EndStream(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: int
    def __init__(self, stream: _Optional[int] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("cache_id", "producer_id", "blocks", "conditions", "previous")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    producer_id: int
    blocks: int
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    previous: bool
    def __init__(self, cache_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., blocks: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., previous: bool = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("block", "key", "version", "absent", "present")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    block: int
    key: bytes
    version: int
    absent: bool
    present: bool
    def __init__(self, block: _Optional[int] = ..., key: _Optional[bytes] = ..., version: _Optional[int] = ..., absent: bool = ..., present: bool = ...) -> None: ...

class WriteAnswer(_message.Message):
    __slots__ = ("id", "kind", "events", "has_previous", "previous", "refusals")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: int
    events: int
    has_previous: bool
    previous: bytes
    refusals: _containers.RepeatedCompositeFieldContainer[BlockRefusal]
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[int] = ..., events: _Optional[int] = ..., has_previous: bool = ..., previous: _Optional[bytes] = ..., refusals: _Optional[_Iterable[_Union[BlockRefusal, _Mapping]]] = ...) -> None: ...

class BlockRefusal(_message.Message):
    __slots__ = ("block", "error")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    block: int
    error: Error
    def __init__(self, block: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Get(_message.Message):
    __slots__ = ("cache_id", "key", "consistency", "at_least")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    key: bytes
    consistency: Consistency
    at_least: int
    def __init__(self, cache_id: _Optional[int] = ..., key: _Optional[bytes] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., at_least: _Optional[int] = ...) -> None: ...

class GetAnswer(_message.Message):
    __slots__ = ("found", "value", "version", "expires_ms", "epoch", "applied_id", "lifespan_ms")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPLIED_ID_FIELD_NUMBER: _ClassVar[int]
    LIFESPAN_MS_FIELD_NUMBER: _ClassVar[int]
    found: bool
    value: bytes
    version: int
    expires_ms: int
    epoch: int
    applied_id: int
    lifespan_ms: int
    def __init__(self, found: bool = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ..., expires_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., applied_id: _Optional[int] = ..., lifespan_ms: _Optional[int] = ...) -> None: ...

class GetMany(_message.Message):
    __slots__ = ("cache_id", "consistency", "count", "credit", "metadata")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    consistency: Consistency
    count: int
    credit: int
    metadata: bool
    def __init__(self, cache_id: _Optional[int] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., count: _Optional[int] = ..., credit: _Optional[int] = ..., metadata: bool = ...) -> None: ...

class Keys(_message.Message):
    __slots__ = ("cache_id", "prefix", "limit", "credit", "values", "segments", "after")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    prefix: bytes
    limit: int
    credit: int
    values: bool
    segments: _containers.RepeatedScalarFieldContainer[int]
    after: bytes
    def __init__(self, cache_id: _Optional[int] = ..., prefix: _Optional[bytes] = ..., limit: _Optional[int] = ..., credit: _Optional[int] = ..., values: bool = ..., segments: _Optional[_Iterable[int]] = ..., after: _Optional[bytes] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("count", "metadata")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    count: int
    metadata: bool
    def __init__(self, count: _Optional[int] = ..., metadata: bool = ...) -> None: ...

class Size(_message.Message):
    __slots__ = ("cache_id", "segments")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cache_id: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ...) -> None: ...

class SizeAnswer(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class Clear(_message.Message):
    __slots__ = ("cache_id", "limit")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    limit: int
    def __init__(self, cache_id: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ClearAnswer(_message.Message):
    __slots__ = ("removed", "more")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    removed: int
    more: bool
    def __init__(self, removed: _Optional[int] = ..., more: bool = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("cache_id", "attempt", "frame", "blocks", "keep_ms")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    attempt: bytes
    frame: int
    blocks: int
    keep_ms: int
    def __init__(self, cache_id: _Optional[int] = ..., attempt: _Optional[bytes] = ..., frame: _Optional[int] = ..., blocks: _Optional[int] = ..., keep_ms: _Optional[int] = ...) -> None: ...

class StageAnswer(_message.Message):
    __slots__ = ("chunks", "until_ms")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedScalarFieldContainer[int]
    until_ms: int
    def __init__(self, chunks: _Optional[_Iterable[int]] = ..., until_ms: _Optional[int] = ...) -> None: ...

class StagedAttempt(_message.Message):
    __slots__ = ("attempt", "segments", "blocks", "chunks", "until_ms")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    attempt: bytes
    segments: _containers.RepeatedScalarFieldContainer[int]
    blocks: _containers.RepeatedScalarFieldContainer[int]
    chunks: _containers.RepeatedScalarFieldContainer[int]
    until_ms: int
    def __init__(self, attempt: _Optional[bytes] = ..., segments: _Optional[_Iterable[int]] = ..., blocks: _Optional[_Iterable[int]] = ..., chunks: _Optional[_Iterable[int]] = ..., until_ms: _Optional[int] = ...) -> None: ...

class StagedAttempts(_message.Message):
    __slots__ = ("attempts",)
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("cache_id", "transaction", "batch", "insert")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    INSERT_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    transaction: str
    batch: int
    insert: bool
    def __init__(self, cache_id: _Optional[int] = ..., transaction: _Optional[str] = ..., batch: _Optional[int] = ..., insert: bool = ...) -> None: ...

class PublishAnswer(_message.Message):
    __slots__ = ("repeated",)
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    repeated: bool
    def __init__(self, repeated: bool = ...) -> None: ...

class PublishSegment(_message.Message):
    __slots__ = ("cache_id", "producer", "segment", "first", "attempts")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    producer: int
    segment: int
    first: int
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, cache_id: _Optional[int] = ..., producer: _Optional[int] = ..., segment: _Optional[int] = ..., first: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class CheckStaged(_message.Message):
    __slots__ = ("cache_id", "segment", "attempts")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    segment: int
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    def __init__(self, cache_id: _Optional[int] = ..., segment: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping]]] = ...) -> None: ...

class Poll(_message.Message):
    __slots__ = ("cache_id", "after", "position", "from_time_ms", "until_id", "max_events", "max_bytes", "wait_ms", "segments", "notify", "earliest", "latest", "accept_diverged", "filter", "listener", "state_first", "without")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_DIVERGED_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIRST_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    after: int
    position: bytes
    from_time_ms: int
    until_id: int
    max_events: int
    max_bytes: int
    wait_ms: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    notify: bool
    earliest: bool
    latest: bool
    accept_diverged: bool
    filter: Filter
    listener: str
    state_first: bool
    without: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cache_id: _Optional[int] = ..., after: _Optional[int] = ..., position: _Optional[bytes] = ..., from_time_ms: _Optional[int] = ..., until_id: _Optional[int] = ..., max_events: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ..., notify: bool = ..., earliest: bool = ..., latest: bool = ..., accept_diverged: bool = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., listener: _Optional[str] = ..., state_first: bool = ..., without: _Optional[_Iterable[str]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("where", "parameters", "select", "name", "version", "arguments", "continuous")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    CONTINUOUS_FIELD_NUMBER: _ClassVar[int]
    where: str
    parameters: bytes
    select: _containers.RepeatedScalarFieldContainer[str]
    name: str
    version: int
    arguments: bytes
    continuous: bool
    def __init__(self, where: _Optional[str] = ..., parameters: _Optional[bytes] = ..., select: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., arguments: _Optional[bytes] = ..., continuous: bool = ...) -> None: ...

class RegisterListener(_message.Message):
    __slots__ = ("cache_id", "filter", "durable", "hold_bytes", "hold_ms", "expire_ms", "id", "after", "earliest")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    filter: Filter
    durable: bool
    hold_bytes: int
    hold_ms: int
    expire_ms: int
    id: str
    after: int
    earliest: bool
    def __init__(self, cache_id: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., durable: bool = ..., hold_bytes: _Optional[int] = ..., hold_ms: _Optional[int] = ..., expire_ms: _Optional[int] = ..., id: _Optional[str] = ..., after: _Optional[int] = ..., earliest: bool = ...) -> None: ...

class Listener(_message.Message):
    __slots__ = ("id", "cache_id", "cache", "filter", "from_id", "durable", "hold_bytes", "hold_ms", "expire_ms", "last_id", "first_id", "position", "position_id", "lag_events", "lag_bytes", "lag_ms", "held_percent", "version", "filters")
    ID_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_ID_FIELD_NUMBER: _ClassVar[int]
    LAG_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_PERCENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    cache_id: int
    cache: str
    filter: Filter
    from_id: int
    durable: bool
    hold_bytes: int
    hold_ms: int
    expire_ms: int
    last_id: int
    first_id: int
    position: bytes
    position_id: int
    lag_events: int
    lag_bytes: int
    lag_ms: int
    held_percent: int
    version: int
    filters: _containers.RepeatedCompositeFieldContainer[ListenerFilter]
    def __init__(self, id: _Optional[str] = ..., cache_id: _Optional[int] = ..., cache: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., from_id: _Optional[int] = ..., durable: bool = ..., hold_bytes: _Optional[int] = ..., hold_ms: _Optional[int] = ..., expire_ms: _Optional[int] = ..., last_id: _Optional[int] = ..., first_id: _Optional[int] = ..., position: _Optional[bytes] = ..., position_id: _Optional[int] = ..., lag_events: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., held_percent: _Optional[int] = ..., version: _Optional[int] = ..., filters: _Optional[_Iterable[_Union[ListenerFilter, _Mapping]]] = ...) -> None: ...

class ListenerFilter(_message.Message):
    __slots__ = ("from_id", "filter")
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    from_id: int
    filter: Filter
    def __init__(self, from_id: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class ListenerAnswer(_message.Message):
    __slots__ = ("listener",)
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    listener: Listener
    def __init__(self, listener: _Optional[_Union[Listener, _Mapping]] = ...) -> None: ...

class ListListeners(_message.Message):
    __slots__ = ("id", "cache_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    cache_id: int
    def __init__(self, id: _Optional[str] = ..., cache_id: _Optional[int] = ...) -> None: ...

class ListListenersAnswer(_message.Message):
    __slots__ = ("listeners", "changes")
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    changes: int
    def __init__(self, listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., changes: _Optional[int] = ...) -> None: ...

class AlterListener(_message.Message):
    __slots__ = ("id", "filter", "from_id", "hold_bytes", "hold_ms", "expire_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    filter: Filter
    from_id: int
    hold_bytes: int
    hold_ms: int
    expire_ms: int
    def __init__(self, id: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., from_id: _Optional[int] = ..., hold_bytes: _Optional[int] = ..., hold_ms: _Optional[int] = ..., expire_ms: _Optional[int] = ...) -> None: ...

class RemoveListener(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class AcknowledgeListener(_message.Message):
    __slots__ = ("id", "upto", "position")
    ID_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    id: str
    upto: int
    position: bytes
    def __init__(self, id: _Optional[str] = ..., upto: _Optional[int] = ..., position: _Optional[bytes] = ...) -> None: ...

class ListenerUse(_message.Message):
    __slots__ = ("id", "position")
    ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    id: str
    position: bytes
    def __init__(self, id: _Optional[str] = ..., position: _Optional[bytes] = ...) -> None: ...

class UseListeners(_message.Message):
    __slots__ = ("uses",)
    USES_FIELD_NUMBER: _ClassVar[int]
    uses: _containers.RepeatedCompositeFieldContainer[ListenerUse]
    def __init__(self, uses: _Optional[_Iterable[_Union[ListenerUse, _Mapping]]] = ...) -> None: ...

class ListenerUsed(_message.Message):
    __slots__ = ("version", "held_percent")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HELD_PERCENT_FIELD_NUMBER: _ClassVar[int]
    version: int
    held_percent: int
    def __init__(self, version: _Optional[int] = ..., held_percent: _Optional[int] = ...) -> None: ...

class UseListenersAnswer(_message.Message):
    __slots__ = ("used",)
    USED_FIELD_NUMBER: _ClassVar[int]
    used: _containers.RepeatedCompositeFieldContainer[ListenerUsed]
    def __init__(self, used: _Optional[_Iterable[_Union[ListenerUsed, _Mapping]]] = ...) -> None: ...

class AwaitListeners(_message.Message):
    __slots__ = ("listeners", "cache_id", "segments", "ids", "wait_ms")
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    listeners: _containers.RepeatedScalarFieldContainer[str]
    cache_id: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    wait_ms: int
    def __init__(self, listeners: _Optional[_Iterable[str]] = ..., cache_id: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ..., ids: _Optional[_Iterable[int]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class AwaitListenersAnswer(_message.Message):
    __slots__ = ("missing", "gone")
    MISSING_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedScalarFieldContainer[str]
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, missing: _Optional[_Iterable[str]] = ..., gone: _Optional[_Iterable[str]] = ...) -> None: ...

class ListenerChanged(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CountAfter(_message.Message):
    __slots__ = ("cache_id", "ids", "upto", "around")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    AROUND_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    upto: int
    around: bool
    def __init__(self, cache_id: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., upto: _Optional[int] = ..., around: bool = ...) -> None: ...

class CountAfterAnswer(_message.Message):
    __slots__ = ("events", "bytes", "last_id", "last_ids", "next_ids", "segment_events", "trimmed")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_IDS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_EVENTS_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedScalarFieldContainer[int]
    bytes: _containers.RepeatedScalarFieldContainer[int]
    last_id: int
    last_ids: _containers.RepeatedScalarFieldContainer[int]
    next_ids: _containers.RepeatedScalarFieldContainer[int]
    segment_events: _containers.RepeatedScalarFieldContainer[int]
    trimmed: bool
    def __init__(self, events: _Optional[_Iterable[int]] = ..., bytes: _Optional[_Iterable[int]] = ..., last_id: _Optional[int] = ..., last_ids: _Optional[_Iterable[int]] = ..., next_ids: _Optional[_Iterable[int]] = ..., segment_events: _Optional[_Iterable[int]] = ..., trimmed: bool = ...) -> None: ...

class RetentionSteps(_message.Message):
    __slots__ = ("cache_id", "steps_max", "flush", "after", "upto", "cache_ids")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_MAX_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    CACHE_IDS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    steps_max: int
    flush: bool
    after: int
    upto: int
    cache_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cache_id: _Optional[int] = ..., steps_max: _Optional[int] = ..., flush: bool = ..., after: _Optional[int] = ..., upto: _Optional[int] = ..., cache_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RetentionStep(_message.Message):
    __slots__ = ("id", "events", "bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    id: int
    events: int
    bytes: int
    def __init__(self, id: _Optional[int] = ..., events: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class RetentionHold(_message.Message):
    __slots__ = ("listener", "id", "hold_bytes", "hold_ms", "warned")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    WARNED_FIELD_NUMBER: _ClassVar[int]
    listener: str
    id: int
    hold_bytes: int
    hold_ms: int
    warned: bool
    def __init__(self, listener: _Optional[str] = ..., id: _Optional[int] = ..., hold_bytes: _Optional[int] = ..., hold_ms: _Optional[int] = ..., warned: bool = ...) -> None: ...

class RetentionStepsAnswer(_message.Message):
    __slots__ = ("trimmed", "steps", "now", "ceiling", "holds", "top", "cache_id", "caches")
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    CACHES_FIELD_NUMBER: _ClassVar[int]
    trimmed: RetentionStep
    steps: _containers.RepeatedCompositeFieldContainer[RetentionStep]
    now: RetentionStep
    ceiling: int
    holds: _containers.RepeatedCompositeFieldContainer[RetentionHold]
    top: RetentionStep
    cache_id: int
    caches: _containers.RepeatedCompositeFieldContainer[RetentionStepsAnswer]
    def __init__(self, trimmed: _Optional[_Union[RetentionStep, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[RetentionStep, _Mapping]]] = ..., now: _Optional[_Union[RetentionStep, _Mapping]] = ..., ceiling: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[RetentionHold, _Mapping]]] = ..., top: _Optional[_Union[RetentionStep, _Mapping]] = ..., cache_id: _Optional[int] = ..., caches: _Optional[_Iterable[_Union[RetentionStepsAnswer, _Mapping]]] = ...) -> None: ...

class RetentionHeld(_message.Message):
    __slots__ = ("listener", "percent")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    listener: str
    percent: int
    def __init__(self, listener: _Optional[str] = ..., percent: _Optional[int] = ...) -> None: ...

class RetentionCut(_message.Message):
    __slots__ = ("cache_id", "id", "dry_run", "held")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    id: int
    dry_run: bool
    held: _containers.RepeatedCompositeFieldContainer[RetentionHeld]
    def __init__(self, cache_id: _Optional[int] = ..., id: _Optional[int] = ..., dry_run: bool = ..., held: _Optional[_Iterable[_Union[RetentionHeld, _Mapping]]] = ...) -> None: ...

class TrimCopies(_message.Message):
    __slots__ = ("cache_id", "segments", "ids", "offsets")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cache_id: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ..., ids: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class ListFilters(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: bool = ...) -> None: ...

class ListFiltersAnswer(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[FilterDescription]
    def __init__(self, filters: _Optional[_Iterable[_Union[FilterDescription, _Mapping]]] = ...) -> None: ...

class FilterDescription(_message.Message):
    __slots__ = ("node", "name", "version", "parameters", "summary")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    version: int
    parameters: bytes
    summary: str
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., parameters: _Optional[bytes] = ..., summary: _Optional[str] = ...) -> None: ...

class CloseUp(_message.Message):
    __slots__ = ("id", "seen", "wait_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    seen: int
    wait_ms: int
    def __init__(self, id: _Optional[int] = ..., seen: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class CloseUpAnswer(_message.Message):
    __slots__ = ("commits", "last_id")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    commits: int
    last_id: int
    def __init__(self, commits: _Optional[int] = ..., last_id: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("cache_id", "segments", "after", "upto", "max_bytes", "filter", "without", "all")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    after: _containers.RepeatedScalarFieldContainer[int]
    upto: int
    max_bytes: int
    filter: Filter
    without: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, cache_id: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ..., after: _Optional[_Iterable[int]] = ..., upto: _Optional[int] = ..., max_bytes: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., without: _Optional[_Iterable[str]] = ..., all: bool = ...) -> None: ...

class FetchAnswer(_message.Message):
    __slots__ = ("upto", "values", "trimmed", "trimmed_ids", "trimmed_offsets", "runs", "changes", "passed", "next_offsets", "epochs", "scanned_bytes")
    UPTO_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_IDS_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SCANNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    upto: int
    values: int
    trimmed: _containers.RepeatedScalarFieldContainer[int]
    trimmed_ids: _containers.RepeatedScalarFieldContainer[int]
    trimmed_offsets: _containers.RepeatedScalarFieldContainer[int]
    runs: int
    changes: bool
    passed: _containers.RepeatedScalarFieldContainer[int]
    next_offsets: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    scanned_bytes: int
    def __init__(self, upto: _Optional[int] = ..., values: _Optional[int] = ..., trimmed: _Optional[_Iterable[int]] = ..., trimmed_ids: _Optional[_Iterable[int]] = ..., trimmed_offsets: _Optional[_Iterable[int]] = ..., runs: _Optional[int] = ..., changes: bool = ..., passed: _Optional[_Iterable[int]] = ..., next_offsets: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ..., scanned_bytes: _Optional[int] = ...) -> None: ...

class GetTopology(_message.Message):
    __slots__ = ("copies",)
    COPIES_FIELD_NUMBER: _ClassVar[int]
    copies: bool
    def __init__(self, copies: bool = ...) -> None: ...

class TopologyAnswer(_message.Message):
    __slots__ = ("epoch", "primaries", "nodes", "number", "copies")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRIMARIES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    primaries: _containers.RepeatedScalarFieldContainer[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeAddress]
    number: int
    copies: _containers.RepeatedCompositeFieldContainer[SegmentCopies]
    def __init__(self, epoch: _Optional[int] = ..., primaries: _Optional[_Iterable[int]] = ..., nodes: _Optional[_Iterable[_Union[NodeAddress, _Mapping]]] = ..., number: _Optional[int] = ..., copies: _Optional[_Iterable[_Union[SegmentCopies, _Mapping]]] = ...) -> None: ...

class SegmentCopies(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class NodeAddress(_message.Message):
    __slots__ = ("number", "address")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    number: int
    address: str
    def __init__(self, number: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class TopologyChanged(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class PollAnswer(_message.Message):
    __slots__ = ("parts", "last_id", "position", "end", "stalled", "low_watermark", "events", "state", "held_percent")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HELD_PERCENT_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    last_id: int
    position: bytes
    end: bool
    stalled: _containers.RepeatedCompositeFieldContainer[Stalled]
    low_watermark: int
    events: int
    state: bool
    held_percent: int
    def __init__(self, parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., last_id: _Optional[int] = ..., position: _Optional[bytes] = ..., end: bool = ..., stalled: _Optional[_Iterable[_Union[Stalled, _Mapping]]] = ..., low_watermark: _Optional[int] = ..., events: _Optional[int] = ..., state: bool = ..., held_percent: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("form", "length", "runs", "segment", "events", "changes")
    class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        JOINED: _ClassVar[Part.Form]
        STORED: _ClassVar[Part.Form]
        STATE: _ClassVar[Part.Form]
    JOINED: Part.Form
    STORED: Part.Form
    STATE: Part.Form
    FORM_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    form: Part.Form
    length: int
    runs: int
    segment: int
    events: int
    changes: bool
    def __init__(self, form: _Optional[_Union[Part.Form, str]] = ..., length: _Optional[int] = ..., runs: _Optional[int] = ..., segment: _Optional[int] = ..., events: _Optional[int] = ..., changes: bool = ...) -> None: ...

class Stalled(_message.Message):
    __slots__ = ("segment", "node", "since_ms")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    segment: int
    node: int
    since_ms: int
    def __init__(self, segment: _Optional[int] = ..., node: _Optional[int] = ..., since_ms: _Optional[int] = ...) -> None: ...

class Watch(_message.Message):
    __slots__ = ("poll", "credit", "follow", "pace_ms")
    POLL_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    PACE_MS_FIELD_NUMBER: _ClassVar[int]
    poll: Poll
    credit: int
    follow: bool
    pace_ms: int
    def __init__(self, poll: _Optional[_Union[Poll, _Mapping]] = ..., credit: _Optional[int] = ..., follow: bool = ..., pace_ms: _Optional[int] = ...) -> None: ...

class NearWatch(_message.Message):
    __slots__ = ("cache_id", "after", "latest", "digests", "credit", "probe")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    after: int
    latest: bool
    digests: int
    credit: int
    probe: int
    def __init__(self, cache_id: _Optional[int] = ..., after: _Optional[int] = ..., latest: bool = ..., digests: _Optional[int] = ..., credit: _Optional[int] = ..., probe: _Optional[int] = ...) -> None: ...

class NearInterest(_message.Message):
    __slots__ = ("watch", "added", "removed", "probe")
    WATCH_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    watch: int
    added: int
    removed: int
    probe: int
    def __init__(self, watch: _Optional[int] = ..., added: _Optional[int] = ..., removed: _Optional[int] = ..., probe: _Optional[int] = ...) -> None: ...

class NearInterestAnswer(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    def __init__(self, after: _Optional[int] = ...) -> None: ...

class NearItem(_message.Message):
    __slots__ = ("upto", "digests", "probe")
    UPTO_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    upto: int
    digests: int
    probe: int
    def __init__(self, upto: _Optional[int] = ..., digests: _Optional[int] = ..., probe: _Optional[int] = ...) -> None: ...

class LogEnds(_message.Message):
    __slots__ = ("cache_id",)
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    def __init__(self, cache_id: _Optional[int] = ...) -> None: ...

class LogEndsAnswer(_message.Message):
    __slots__ = ("first_id", "last_id", "events", "stalled", "is_behind")
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    IS_BEHIND_FIELD_NUMBER: _ClassVar[int]
    first_id: int
    last_id: int
    events: int
    stalled: _containers.RepeatedCompositeFieldContainer[Stalled]
    is_behind: bool
    def __init__(self, first_id: _Optional[int] = ..., last_id: _Optional[int] = ..., events: _Optional[int] = ..., stalled: _Optional[_Iterable[_Union[Stalled, _Mapping]]] = ..., is_behind: bool = ...) -> None: ...

class PlanEvents(_message.Message):
    __slots__ = ("cache_id", "after", "upto", "max_events", "max_bytes", "segments")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    after: int
    upto: int
    max_events: int
    max_bytes: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cache_id: _Optional[int] = ..., after: _Optional[int] = ..., upto: _Optional[int] = ..., max_events: _Optional[int] = ..., max_bytes: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ...) -> None: ...

class PlanEventsAnswer(_message.Message):
    __slots__ = ("upto", "events", "bytes", "first_id", "trimmed", "segments", "segment_events", "primaries")
    UPTO_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_EVENTS_FIELD_NUMBER: _ClassVar[int]
    PRIMARIES_FIELD_NUMBER: _ClassVar[int]
    upto: int
    events: int
    bytes: int
    first_id: int
    trimmed: bool
    segments: _containers.RepeatedScalarFieldContainer[int]
    segment_events: _containers.RepeatedScalarFieldContainer[int]
    primaries: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, upto: _Optional[int] = ..., events: _Optional[int] = ..., bytes: _Optional[int] = ..., first_id: _Optional[int] = ..., trimmed: bool = ..., segments: _Optional[_Iterable[int]] = ..., segment_events: _Optional[_Iterable[int]] = ..., primaries: _Optional[_Iterable[int]] = ...) -> None: ...

class LastEvents(_message.Message):
    __slots__ = ("cache_id", "events", "upto", "segments")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    events: int
    upto: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cache_id: _Optional[int] = ..., events: _Optional[int] = ..., upto: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ...) -> None: ...

class LastEventsAnswer(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    def __init__(self, after: _Optional[int] = ...) -> None: ...

class CacheOptions(_message.Message):
    __slots__ = ("format", "schema", "events", "state", "before", "bytes_keys", "retain_time_ms", "retain_bytes", "retain_events", "lifespan_ms", "route_by_prefix", "promote", "wait_listeners", "wait_ms", "wait_proceeds", "validate", "archive")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    BYTES_KEYS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAIN_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LIFESPAN_MS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_BY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    WAIT_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_PROCEEDS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    format: Format
    schema: str
    events: bool
    state: bool
    before: bool
    bytes_keys: bool
    retain_time_ms: int
    retain_bytes: int
    retain_events: int
    lifespan_ms: int
    route_by_prefix: bool
    promote: str
    wait_listeners: str
    wait_ms: int
    wait_proceeds: bool
    validate: bool
    archive: str
    def __init__(self, format: _Optional[_Union[Format, str]] = ..., schema: _Optional[str] = ..., events: bool = ..., state: bool = ..., before: bool = ..., bytes_keys: bool = ..., retain_time_ms: _Optional[int] = ..., retain_bytes: _Optional[int] = ..., retain_events: _Optional[int] = ..., lifespan_ms: _Optional[int] = ..., route_by_prefix: bool = ..., promote: _Optional[str] = ..., wait_listeners: _Optional[str] = ..., wait_ms: _Optional[int] = ..., wait_proceeds: bool = ..., validate: bool = ..., archive: _Optional[str] = ...) -> None: ...

class CreateCache(_message.Message):
    __slots__ = ("name", "options", "use_existing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    USE_EXISTING_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: CacheOptions
    use_existing: bool
    def __init__(self, name: _Optional[str] = ..., options: _Optional[_Union[CacheOptions, _Mapping]] = ..., use_existing: bool = ...) -> None: ...

class DescribeCache(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AlterCache(_message.Message):
    __slots__ = ("name", "options")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: CacheOptions
    def __init__(self, name: _Optional[str] = ..., options: _Optional[_Union[CacheOptions, _Mapping]] = ...) -> None: ...

class DropCache(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListCaches(_message.Message):
    __slots__ = ("internal",)
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    internal: bool
    def __init__(self, internal: bool = ...) -> None: ...

class CacheDescription(_message.Message):
    __slots__ = ("name", "id", "options", "from_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    options: CacheOptions
    from_id: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., options: _Optional[_Union[CacheOptions, _Mapping]] = ..., from_id: _Optional[int] = ...) -> None: ...

class CacheAnswer(_message.Message):
    __slots__ = ("cache", "created")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    cache: CacheDescription
    created: bool
    def __init__(self, cache: _Optional[_Union[CacheDescription, _Mapping]] = ..., created: bool = ...) -> None: ...

class ListCachesAnswer(_message.Message):
    __slots__ = ("caches",)
    CACHES_FIELD_NUMBER: _ClassVar[int]
    caches: _containers.RepeatedCompositeFieldContainer[CacheDescription]
    def __init__(self, caches: _Optional[_Iterable[_Union[CacheDescription, _Mapping]]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: bool = ...) -> None: ...

class Serving(_message.Message):
    __slots__ = ("led", "epochs", "unwritable", "unreadable", "disk_is_full", "disk_free_bytes")
    LED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    UNWRITABLE_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    DISK_IS_FULL_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    led: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    unwritable: _containers.RepeatedScalarFieldContainer[int]
    unreadable: _containers.RepeatedScalarFieldContainer[int]
    disk_is_full: bool
    disk_free_bytes: int
    def __init__(self, led: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ..., unwritable: _Optional[_Iterable[int]] = ..., unreadable: _Optional[_Iterable[int]] = ..., disk_is_full: bool = ..., disk_free_bytes: _Optional[int] = ...) -> None: ...

class StatusAnswer(_message.Message):
    __slots__ = ("cluster", "health", "controller", "metastore", "nodes", "nodes_live", "segments", "without_primary", "under_replicated", "low_watermark", "low_watermark_age_ms", "held_by", "rebalance", "advice", "unwritable", "unreadable", "missing", "serving")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    METASTORE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODES_LIVE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PRIMARY_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    UNWRITABLE_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    health: str
    controller: str
    metastore: str
    nodes: int
    nodes_live: int
    segments: int
    without_primary: int
    under_replicated: int
    low_watermark: int
    low_watermark_age_ms: int
    held_by: str
    rebalance: str
    advice: _containers.RepeatedScalarFieldContainer[str]
    unwritable: int
    unreadable: int
    missing: _containers.RepeatedScalarFieldContainer[str]
    serving: Serving
    def __init__(self, cluster: _Optional[str] = ..., health: _Optional[str] = ..., controller: _Optional[str] = ..., metastore: _Optional[str] = ..., nodes: _Optional[int] = ..., nodes_live: _Optional[int] = ..., segments: _Optional[int] = ..., without_primary: _Optional[int] = ..., under_replicated: _Optional[int] = ..., low_watermark: _Optional[int] = ..., low_watermark_age_ms: _Optional[int] = ..., held_by: _Optional[str] = ..., rebalance: _Optional[str] = ..., advice: _Optional[_Iterable[str]] = ..., unwritable: _Optional[int] = ..., unreadable: _Optional[int] = ..., missing: _Optional[_Iterable[str]] = ..., serving: _Optional[_Union[Serving, _Mapping]] = ...) -> None: ...

class ListSegments(_message.Message):
    __slots__ = ("cache", "local")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    cache: str
    local: bool
    def __init__(self, cache: _Optional[str] = ..., local: bool = ...) -> None: ...

class SegmentDescription(_message.Message):
    __slots__ = ("segment", "primary", "owners", "in_sync", "epoch", "first_id", "last_id", "high_watermark", "events", "bytes", "under_replicated", "unwritable", "unreadable")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    UNWRITABLE_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    segment: int
    primary: str
    owners: _containers.RepeatedScalarFieldContainer[str]
    in_sync: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    first_id: int
    last_id: int
    high_watermark: int
    events: int
    bytes: int
    under_replicated: bool
    unwritable: bool
    unreadable: bool
    def __init__(self, segment: _Optional[int] = ..., primary: _Optional[str] = ..., owners: _Optional[_Iterable[str]] = ..., in_sync: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., first_id: _Optional[int] = ..., last_id: _Optional[int] = ..., high_watermark: _Optional[int] = ..., events: _Optional[int] = ..., bytes: _Optional[int] = ..., under_replicated: bool = ..., unwritable: bool = ..., unreadable: bool = ...) -> None: ...

class ListSegmentsAnswer(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentDescription]
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentDescription, _Mapping]]] = ...) -> None: ...

class RunRetention(_message.Message):
    __slots__ = ("cache", "dry_run")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    cache: str
    dry_run: bool
    def __init__(self, cache: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class RetentionRow(_message.Message):
    __slots__ = ("cache", "segment", "removed", "first_id")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    cache: str
    segment: int
    removed: int
    first_id: int
    def __init__(self, cache: _Optional[str] = ..., segment: _Optional[int] = ..., removed: _Optional[int] = ..., first_id: _Optional[int] = ...) -> None: ...

class KeptBack(_message.Message):
    __slots__ = ("listener", "id", "hold_bytes", "hold_ms", "percent")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    listener: str
    id: int
    hold_bytes: int
    hold_ms: int
    percent: int
    def __init__(self, listener: _Optional[str] = ..., id: _Optional[int] = ..., hold_bytes: _Optional[int] = ..., hold_ms: _Optional[int] = ..., percent: _Optional[int] = ...) -> None: ...

class RunRetentionAnswer(_message.Message):
    __slots__ = ("rows", "removed", "cut_id", "kept_back")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    CUT_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_BACK_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[RetentionRow]
    removed: int
    cut_id: int
    kept_back: _containers.RepeatedCompositeFieldContainer[KeptBack]
    def __init__(self, rows: _Optional[_Iterable[_Union[RetentionRow, _Mapping]]] = ..., removed: _Optional[int] = ..., cut_id: _Optional[int] = ..., kept_back: _Optional[_Iterable[_Union[KeptBack, _Mapping]]] = ...) -> None: ...

class NodeDescription(_message.Message):
    __slots__ = ("number", "name", "address", "state", "primaries", "segments", "host_label", "rack", "weight", "gateway")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRIMARIES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    HOST_LABEL_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    address: str
    state: str
    primaries: int
    segments: int
    host_label: str
    rack: str
    weight: int
    gateway: bool
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., primaries: _Optional[int] = ..., segments: _Optional[int] = ..., host_label: _Optional[str] = ..., rack: _Optional[str] = ..., weight: _Optional[int] = ..., gateway: bool = ...) -> None: ...

class ListNodes(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesAnswer(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeDescription]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeDescription, _Mapping]]] = ...) -> None: ...

class DrainNode(_message.Message):
    __slots__ = ("node", "cancel")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    node: str
    cancel: bool
    def __init__(self, node: _Optional[str] = ..., cancel: bool = ...) -> None: ...

class ReplaceNode(_message.Message):
    __slots__ = ("old", "new")
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    old: str
    new: str
    def __init__(self, old: _Optional[str] = ..., new: _Optional[str] = ...) -> None: ...

class StartRebalance(_message.Message):
    __slots__ = ("throttle_bytes",)
    THROTTLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    throttle_bytes: int
    def __init__(self, throttle_bytes: _Optional[int] = ...) -> None: ...

class CancelRebalance(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RotateKey(_message.Message):
    __slots__ = ("overlap_ms",)
    OVERLAP_MS_FIELD_NUMBER: _ClassVar[int]
    overlap_ms: int
    def __init__(self, overlap_ms: _Optional[int] = ...) -> None: ...

class ChangeCluster(_message.Message):
    __slots__ = ("drain", "remove", "replace", "replicas", "start_rebalance", "cancel_rebalance", "rotate_key")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    START_REBALANCE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REBALANCE_FIELD_NUMBER: _ClassVar[int]
    ROTATE_KEY_FIELD_NUMBER: _ClassVar[int]
    drain: DrainNode
    remove: str
    replace: ReplaceNode
    replicas: int
    start_rebalance: StartRebalance
    cancel_rebalance: CancelRebalance
    rotate_key: RotateKey
    def __init__(self, drain: _Optional[_Union[DrainNode, _Mapping]] = ..., remove: _Optional[str] = ..., replace: _Optional[_Union[ReplaceNode, _Mapping]] = ..., replicas: _Optional[int] = ..., start_rebalance: _Optional[_Union[StartRebalance, _Mapping]] = ..., cancel_rebalance: _Optional[_Union[CancelRebalance, _Mapping]] = ..., rotate_key: _Optional[_Union[RotateKey, _Mapping]] = ...) -> None: ...

class ChangeClusterAnswer(_message.Message):
    __slots__ = ("commits",)
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    commits: int
    def __init__(self, commits: _Optional[int] = ...) -> None: ...

class SegmentMove(_message.Message):
    __slots__ = ("segment", "owners", "target", "bytes", "copied")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    segment: int
    owners: _containers.RepeatedScalarFieldContainer[str]
    target: _containers.RepeatedScalarFieldContainer[str]
    bytes: int
    copied: int
    def __init__(self, segment: _Optional[int] = ..., owners: _Optional[_Iterable[str]] = ..., target: _Optional[_Iterable[str]] = ..., bytes: _Optional[int] = ..., copied: _Optional[int] = ...) -> None: ...

class PlanRebalance(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlanRebalanceAnswer(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[SegmentMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[SegmentMove, _Mapping]]] = ...) -> None: ...

class RebalanceStatus(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: bool = ...) -> None: ...

class RebalanceStatusAnswer(_message.Message):
    __slots__ = ("state", "moves_total", "moves_done", "bytes_total", "bytes_done", "throttle_bytes", "started_ms", "moving")
    STATE_FIELD_NUMBER: _ClassVar[int]
    MOVES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MOVES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    state: str
    moves_total: int
    moves_done: int
    bytes_total: int
    bytes_done: int
    throttle_bytes: int
    started_ms: int
    moving: _containers.RepeatedCompositeFieldContainer[SegmentMove]
    def __init__(self, state: _Optional[str] = ..., moves_total: _Optional[int] = ..., moves_done: _Optional[int] = ..., bytes_total: _Optional[int] = ..., bytes_done: _Optional[int] = ..., throttle_bytes: _Optional[int] = ..., started_ms: _Optional[int] = ..., moving: _Optional[_Iterable[_Union[SegmentMove, _Mapping]]] = ...) -> None: ...

class CacheBound(_message.Message):
    __slots__ = ("cache", "id")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    cache: int
    id: int
    def __init__(self, cache: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class DigestSegments(_message.Message):
    __slots__ = ("segments", "upto", "after", "bounds_only", "state_pin", "state_from", "state_upto")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_ONLY_FIELD_NUMBER: _ClassVar[int]
    STATE_PIN_FIELD_NUMBER: _ClassVar[int]
    STATE_FROM_FIELD_NUMBER: _ClassVar[int]
    STATE_UPTO_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    upto: int
    after: _containers.RepeatedCompositeFieldContainer[CacheBound]
    bounds_only: bool
    state_pin: int
    state_from: int
    state_upto: int
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., upto: _Optional[int] = ..., after: _Optional[_Iterable[_Union[CacheBound, _Mapping]]] = ..., bounds_only: bool = ..., state_pin: _Optional[int] = ..., state_from: _Optional[int] = ..., state_upto: _Optional[int] = ...) -> None: ...

class SegmentDigest(_message.Message):
    __slots__ = ("segment", "node", "events", "last_id", "digest", "high_watermark", "trimmed", "state_pin", "entries", "state_digest")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    STATE_PIN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    segment: int
    node: str
    events: int
    last_id: int
    digest: int
    high_watermark: int
    trimmed: _containers.RepeatedCompositeFieldContainer[CacheBound]
    state_pin: int
    entries: int
    state_digest: int
    def __init__(self, segment: _Optional[int] = ..., node: _Optional[str] = ..., events: _Optional[int] = ..., last_id: _Optional[int] = ..., digest: _Optional[int] = ..., high_watermark: _Optional[int] = ..., trimmed: _Optional[_Iterable[_Union[CacheBound, _Mapping]]] = ..., state_pin: _Optional[int] = ..., entries: _Optional[int] = ..., state_digest: _Optional[int] = ...) -> None: ...

class DigestSegmentsAnswer(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedCompositeFieldContainer[SegmentDigest]
    def __init__(self, digests: _Optional[_Iterable[_Union[SegmentDigest, _Mapping]]] = ...) -> None: ...

class CompareCopies(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segments: _Optional[_Iterable[int]] = ...) -> None: ...

class ForcePrimary(_message.Message):
    __slots__ = ("segments", "all_lost", "node", "dry_run", "accept_data_loss")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    ALL_LOST_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_DATA_LOSS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    all_lost: bool
    node: str
    dry_run: bool
    accept_data_loss: bool
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., all_lost: bool = ..., node: _Optional[str] = ..., dry_run: bool = ..., accept_data_loss: bool = ...) -> None: ...

class ForcedReplica(_message.Message):
    __slots__ = ("segment", "node", "last_id", "upto", "chosen", "why_not", "committed", "longer")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    LONGER_FIELD_NUMBER: _ClassVar[int]
    segment: int
    node: str
    last_id: int
    upto: int
    chosen: bool
    why_not: str
    committed: int
    longer: str
    def __init__(self, segment: _Optional[int] = ..., node: _Optional[str] = ..., last_id: _Optional[int] = ..., upto: _Optional[int] = ..., chosen: bool = ..., why_not: _Optional[str] = ..., committed: _Optional[int] = ..., longer: _Optional[str] = ...) -> None: ...

class ForcePrimaryAnswer(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[ForcedReplica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[ForcedReplica, _Mapping]]] = ...) -> None: ...

class CheckData(_message.Message):
    __slots__ = ("cache",)
    CACHE_FIELD_NUMBER: _ClassVar[int]
    cache: str
    def __init__(self, cache: _Optional[str] = ...) -> None: ...

class CheckDataAnswer(_message.Message):
    __slots__ = ("values", "events", "problems", "entries")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    values: int
    events: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    entries: int
    def __init__(self, values: _Optional[int] = ..., events: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., entries: _Optional[int] = ...) -> None: ...

class PeerHello(_message.Message):
    __slots__ = ("cluster", "number", "incarnation", "version", "nonce")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    number: int
    incarnation: str
    version: int
    nonce: bytes
    def __init__(self, cluster: _Optional[str] = ..., number: _Optional[int] = ..., incarnation: _Optional[str] = ..., version: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class PeerHelloAnswer(_message.Message):
    __slots__ = ("number", "incarnation", "version", "nonce", "proofs", "revision")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    number: int
    incarnation: str
    version: int
    nonce: bytes
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    revision: int
    def __init__(self, number: _Optional[int] = ..., incarnation: _Optional[str] = ..., version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., proofs: _Optional[_Iterable[bytes]] = ..., revision: _Optional[int] = ...) -> None: ...

class PeerProof(_message.Message):
    __slots__ = ("proofs", "revision")
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    revision: int
    def __init__(self, proofs: _Optional[_Iterable[bytes]] = ..., revision: _Optional[int] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("revision", "now_ms")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    now_ms: int
    def __init__(self, revision: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class BeatAnswer(_message.Message):
    __slots__ = ("revision", "now_ms")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    now_ms: int
    def __init__(self, revision: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class SeeRevision(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class Replicate(_message.Message):
    __slots__ = ("correlation", "rows", "recipient")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    rows: int
    recipient: str
    def __init__(self, correlation: _Optional[int] = ..., rows: _Optional[int] = ..., recipient: _Optional[str] = ...) -> None: ...

class ReplicateAnswer(_message.Message):
    __slots__ = ("correlation",)
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    def __init__(self, correlation: _Optional[int] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("correlation", "recipient")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    recipient: str
    def __init__(self, correlation: _Optional[int] = ..., recipient: _Optional[str] = ...) -> None: ...

class ClusterInfo(_message.Message):
    __slots__ = ("version", "token_proof", "file")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_PROOF_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    version: int
    token_proof: bytes
    file: str
    def __init__(self, version: _Optional[int] = ..., token_proof: _Optional[bytes] = ..., file: _Optional[str] = ...) -> None: ...

class ClusterInfoAnswer(_message.Message):
    __slots__ = ("cluster", "segments", "metastore", "host", "file", "nonce")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    METASTORE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    segments: int
    metastore: str
    host: str
    file: str
    nonce: bytes
    def __init__(self, cluster: _Optional[str] = ..., segments: _Optional[int] = ..., metastore: _Optional[str] = ..., host: _Optional[str] = ..., file: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class ConfirmEpochs(_message.Message):
    __slots__ = ("segments", "epochs")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segments: _Optional[_Iterable[int]] = ..., epochs: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfirmEpochsAnswer(_message.Message):
    __slots__ = ("fenced",)
    FENCED_FIELD_NUMBER: _ClassVar[int]
    fenced: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, fenced: _Optional[_Iterable[int]] = ...) -> None: ...

class StateCursor(_message.Message):
    __slots__ = ("segment", "key", "pin", "finished")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    segment: int
    key: bytes
    pin: int
    finished: bool
    def __init__(self, segment: _Optional[int] = ..., key: _Optional[bytes] = ..., pin: _Optional[int] = ..., finished: bool = ...) -> None: ...

class IterationStart(_message.Message):
    __slots__ = ("cache_id", "segments", "filter", "batch_entries", "batch_bytes", "scope", "scope_parameters", "metadata", "cursors", "prefix", "without")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    BATCH_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    segments: bytes
    filter: Filter
    batch_entries: int
    batch_bytes: int
    scope: str
    scope_parameters: bytes
    metadata: bool
    cursors: _containers.RepeatedCompositeFieldContainer[StateCursor]
    prefix: bytes
    without: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cache_id: _Optional[int] = ..., segments: _Optional[bytes] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., batch_entries: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., scope: _Optional[str] = ..., scope_parameters: _Optional[bytes] = ..., metadata: bool = ..., cursors: _Optional[_Iterable[_Union[StateCursor, _Mapping]]] = ..., prefix: _Optional[bytes] = ..., without: _Optional[_Iterable[str]] = ...) -> None: ...

class IterationStartAnswer(_message.Message):
    __slots__ = ("iteration_id", "segments")
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    iteration_id: bytes
    segments: bytes
    def __init__(self, iteration_id: _Optional[bytes] = ..., segments: _Optional[bytes] = ...) -> None: ...

class IterationNext(_message.Message):
    __slots__ = ("iteration_id", "batches", "batch_entries", "batch_bytes", "credit")
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BATCH_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    iteration_id: bytes
    batches: int
    batch_entries: int
    batch_bytes: int
    credit: int
    def __init__(self, iteration_id: _Optional[bytes] = ..., batches: _Optional[int] = ..., batch_entries: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., credit: _Optional[int] = ...) -> None: ...

class IterationBatch(_message.Message):
    __slots__ = ("parts", "entries", "cursors", "end", "result")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    entries: int
    cursors: _containers.RepeatedCompositeFieldContainer[StateCursor]
    end: bool
    result: bytes
    def __init__(self, parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., entries: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[StateCursor, _Mapping]]] = ..., end: bool = ..., result: _Optional[bytes] = ...) -> None: ...

class IterationEnd(_message.Message):
    __slots__ = ("iteration_id",)
    ITERATION_ID_FIELD_NUMBER: _ClassVar[int]
    iteration_id: bytes
    def __init__(self, iteration_id: _Optional[bytes] = ...) -> None: ...

class ForEach(_message.Message):
    __slots__ = ("cache_id", "task", "parameters", "filter", "segments", "batch_entries", "batch_bytes", "cursors", "credit", "batches")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    task: str
    parameters: bytes
    filter: Filter
    segments: bytes
    batch_entries: int
    batch_bytes: int
    cursors: _containers.RepeatedCompositeFieldContainer[StateCursor]
    credit: int
    batches: int
    def __init__(self, cache_id: _Optional[int] = ..., task: _Optional[str] = ..., parameters: _Optional[bytes] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., segments: _Optional[bytes] = ..., batch_entries: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[StateCursor, _Mapping]]] = ..., credit: _Optional[int] = ..., batches: _Optional[int] = ...) -> None: ...

class ReadState(_message.Message):
    __slots__ = ("cache_id", "segments", "after", "pin", "filter", "max_entries", "max_bytes", "metadata", "prefix", "without")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    after: bytes
    pin: int
    filter: Filter
    max_entries: int
    max_bytes: int
    metadata: bool
    prefix: bytes
    without: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cache_id: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ..., after: _Optional[bytes] = ..., pin: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., max_entries: _Optional[int] = ..., max_bytes: _Optional[int] = ..., metadata: bool = ..., prefix: _Optional[bytes] = ..., without: _Optional[_Iterable[str]] = ...) -> None: ...

class ReadStateAnswer(_message.Message):
    __slots__ = ("parts", "entries", "cursors")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    entries: int
    cursors: _containers.RepeatedCompositeFieldContainer[StateCursor]
    def __init__(self, parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., entries: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[StateCursor, _Mapping]]] = ...) -> None: ...

class GroupBeat(_message.Message):
    __slots__ = ("group", "cache_id", "member", "instance", "client", "epoch", "owned", "session_timeout_ms", "assignor", "mode", "start_id", "wait_ms", "deliveries_max", "dead_letters", "via_node", "via_connection", "filter", "ack_timeout_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    VIA_NODE_FIELD_NUMBER: _ClassVar[int]
    VIA_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    member: str
    instance: str
    client: str
    epoch: int
    owned: bytes
    session_timeout_ms: int
    assignor: str
    mode: str
    start_id: int
    wait_ms: int
    deliveries_max: int
    dead_letters: str
    via_node: int
    via_connection: int
    filter: Filter
    ack_timeout_ms: int
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., member: _Optional[str] = ..., instance: _Optional[str] = ..., client: _Optional[str] = ..., epoch: _Optional[int] = ..., owned: _Optional[bytes] = ..., session_timeout_ms: _Optional[int] = ..., assignor: _Optional[str] = ..., mode: _Optional[str] = ..., start_id: _Optional[int] = ..., wait_ms: _Optional[int] = ..., deliveries_max: _Optional[int] = ..., dead_letters: _Optional[str] = ..., via_node: _Optional[int] = ..., via_connection: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., ack_timeout_ms: _Optional[int] = ...) -> None: ...

class GroupBeatAnswer(_message.Message):
    __slots__ = ("epoch", "assigned", "places")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    assigned: bytes
    places: int
    def __init__(self, epoch: _Optional[int] = ..., assigned: _Optional[bytes] = ..., places: _Optional[int] = ...) -> None: ...

class LeaveGroup(_message.Message):
    __slots__ = ("group", "cache_id", "member")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    member: str
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., member: _Optional[str] = ...) -> None: ...

class CommitGroup(_message.Message):
    __slots__ = ("group", "cache_id", "member", "epoch", "places", "metadata")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    member: str
    epoch: int
    places: int
    metadata: str
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., member: _Optional[str] = ..., epoch: _Optional[int] = ..., places: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class DescribeGroup(_message.Message):
    __slots__ = ("group", "lag")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    group: str
    lag: bool
    def __init__(self, group: _Optional[str] = ..., lag: bool = ...) -> None: ...

class DescribeGroupAnswer(_message.Message):
    __slots__ = ("caches",)
    CACHES_FIELD_NUMBER: _ClassVar[int]
    caches: int
    def __init__(self, caches: _Optional[int] = ...) -> None: ...

class ListGroups(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsAnswer(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: int
    def __init__(self, groups: _Optional[int] = ...) -> None: ...

class ResetGroup(_message.Message):
    __slots__ = ("group", "cache_id", "earliest", "latest", "id", "time_ms", "shift_by", "dry_run", "segments")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SHIFT_BY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    earliest: bool
    latest: bool
    id: int
    time_ms: int
    shift_by: int
    dry_run: bool
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., earliest: bool = ..., latest: bool = ..., id: _Optional[int] = ..., time_ms: _Optional[int] = ..., shift_by: _Optional[int] = ..., dry_run: bool = ..., segments: _Optional[_Iterable[int]] = ...) -> None: ...

class ResetGroupAnswer(_message.Message):
    __slots__ = ("places",)
    PLACES_FIELD_NUMBER: _ClassVar[int]
    places: int
    def __init__(self, places: _Optional[int] = ...) -> None: ...

class DeleteGroup(_message.Message):
    __slots__ = ("group", "cache_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ...) -> None: ...

class TakeTasks(_message.Message):
    __slots__ = ("group", "cache_id", "member", "max_events", "wait_ms", "earliest", "holding", "sequence")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    member: str
    max_events: int
    wait_ms: int
    earliest: bool
    holding: int
    sequence: int
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., member: _Optional[str] = ..., max_events: _Optional[int] = ..., wait_ms: _Optional[int] = ..., earliest: bool = ..., holding: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class TakeTasksAnswer(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    def __init__(self, tasks: _Optional[int] = ...) -> None: ...

class SettleTasks(_message.Message):
    __slots__ = ("group", "cache_id", "member", "tasks")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    member: str
    tasks: int
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., member: _Optional[str] = ..., tasks: _Optional[int] = ...) -> None: ...

class MemberClosed(_message.Message):
    __slots__ = ("group", "cache_id", "member", "via_node", "via_connection")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    VIA_NODE_FIELD_NUMBER: _ClassVar[int]
    VIA_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    group: str
    cache_id: int
    member: str
    via_node: int
    via_connection: int
    def __init__(self, group: _Optional[str] = ..., cache_id: _Optional[int] = ..., member: _Optional[str] = ..., via_node: _Optional[int] = ..., via_connection: _Optional[int] = ...) -> None: ...

class ShiftPlaces(_message.Message):
    __slots__ = ("cache_id", "ids", "by", "upto")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    ids: _containers.RepeatedScalarFieldContainer[int]
    by: int
    upto: int
    def __init__(self, cache_id: _Optional[int] = ..., ids: _Optional[_Iterable[int]] = ..., by: _Optional[int] = ..., upto: _Optional[int] = ...) -> None: ...

class ShiftPlacesAnswer(_message.Message):
    __slots__ = ("ids", "events")
    IDS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    events: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., events: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupLag(_message.Message):
    __slots__ = ("cache_id", "places")
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    cache_id: int
    places: int
    def __init__(self, cache_id: _Optional[int] = ..., places: _Optional[int] = ...) -> None: ...

class GroupLagAnswer(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class Mirror(_message.Message):
    __slots__ = ("name", "cache", "cache_id", "kafka", "topic", "prefix", "progress_topic", "partitions", "shards", "format", "encoding", "key_field", "no_tombstones", "filter", "interval_ms", "from_id", "state", "hold_bytes", "topic_settings", "snapshot", "schema", "schema_type", "schema_subject", "on_too_large", "registry")
    class TopicSettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_ID_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_FIELD_NUMBER: _ClassVar[int]
    NO_TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ON_TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    name: str
    cache: str
    cache_id: int
    kafka: str
    topic: str
    prefix: str
    progress_topic: str
    partitions: int
    shards: int
    format: str
    encoding: str
    key_field: str
    no_tombstones: bool
    filter: Filter
    interval_ms: int
    from_id: int
    state: str
    hold_bytes: int
    topic_settings: _containers.ScalarMap[str, str]
    snapshot: bool
    schema: str
    schema_type: str
    schema_subject: str
    on_too_large: str
    registry: str
    def __init__(self, name: _Optional[str] = ..., cache: _Optional[str] = ..., cache_id: _Optional[int] = ..., kafka: _Optional[str] = ..., topic: _Optional[str] = ..., prefix: _Optional[str] = ..., progress_topic: _Optional[str] = ..., partitions: _Optional[int] = ..., shards: _Optional[int] = ..., format: _Optional[str] = ..., encoding: _Optional[str] = ..., key_field: _Optional[str] = ..., no_tombstones: bool = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., interval_ms: _Optional[int] = ..., from_id: _Optional[int] = ..., state: _Optional[str] = ..., hold_bytes: _Optional[int] = ..., topic_settings: _Optional[_Mapping[str, str]] = ..., snapshot: bool = ..., schema: _Optional[str] = ..., schema_type: _Optional[str] = ..., schema_subject: _Optional[str] = ..., on_too_large: _Optional[str] = ..., registry: _Optional[str] = ...) -> None: ...

class AddMirror(_message.Message):
    __slots__ = ("mirror", "earliest", "latest", "id", "snapshot", "dry_run")
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    mirror: Mirror
    earliest: bool
    latest: bool
    id: int
    snapshot: bool
    dry_run: bool
    def __init__(self, mirror: _Optional[_Union[Mirror, _Mapping]] = ..., earliest: bool = ..., latest: bool = ..., id: _Optional[int] = ..., snapshot: bool = ..., dry_run: bool = ...) -> None: ...

class AddMirrorAnswer(_message.Message):
    __slots__ = ("mirror", "why_format", "nodes")
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    WHY_FORMAT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    mirror: Mirror
    why_format: str
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mirror: _Optional[_Union[Mirror, _Mapping]] = ..., why_format: _Optional[str] = ..., nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class ListMirrors(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListMirrorsAnswer(_message.Message):
    __slots__ = ("mirrors",)
    MIRRORS_FIELD_NUMBER: _ClassVar[int]
    mirrors: _containers.RepeatedCompositeFieldContainer[Mirror]
    def __init__(self, mirrors: _Optional[_Iterable[_Union[Mirror, _Mapping]]] = ...) -> None: ...

class MirrorStatus(_message.Message):
    __slots__ = ("name", "upto", "wait_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    upto: int
    wait_ms: int
    def __init__(self, name: _Optional[str] = ..., upto: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class MirrorShard(_message.Message):
    __slots__ = ("mirror", "shard", "node", "term", "state", "since_ms", "why", "position", "position_id", "lag_events", "lag_ms", "events_per_second", "events", "transactions", "aborts", "dead_letters")
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_ID_FIELD_NUMBER: _ClassVar[int]
    LAG_EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ABORTS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    mirror: str
    shard: int
    node: str
    term: int
    state: str
    since_ms: int
    why: str
    position: bytes
    position_id: int
    lag_events: int
    lag_ms: int
    events_per_second: float
    events: int
    transactions: int
    aborts: int
    dead_letters: int
    def __init__(self, mirror: _Optional[str] = ..., shard: _Optional[int] = ..., node: _Optional[str] = ..., term: _Optional[int] = ..., state: _Optional[str] = ..., since_ms: _Optional[int] = ..., why: _Optional[str] = ..., position: _Optional[bytes] = ..., position_id: _Optional[int] = ..., lag_events: _Optional[int] = ..., lag_ms: _Optional[int] = ..., events_per_second: _Optional[float] = ..., events: _Optional[int] = ..., transactions: _Optional[int] = ..., aborts: _Optional[int] = ..., dead_letters: _Optional[int] = ...) -> None: ...

class MirrorStatusAnswer(_message.Message):
    __slots__ = ("shards", "behind")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[MirrorShard]
    behind: bool
    def __init__(self, shards: _Optional[_Iterable[_Union[MirrorShard, _Mapping]]] = ..., behind: bool = ...) -> None: ...

class VerifyMirror(_message.Message):
    __slots__ = ("name", "from_id", "until_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_ID_FIELD_NUMBER: _ClassVar[int]
    UNTIL_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    from_id: int
    until_id: int
    def __init__(self, name: _Optional[str] = ..., from_id: _Optional[int] = ..., until_id: _Optional[int] = ...) -> None: ...

class MirrorDifference(_message.Message):
    __slots__ = ("segment", "offset", "id", "in_log", "in_topic")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    IN_LOG_FIELD_NUMBER: _ClassVar[int]
    IN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    segment: int
    offset: int
    id: int
    in_log: int
    in_topic: int
    def __init__(self, segment: _Optional[int] = ..., offset: _Optional[int] = ..., id: _Optional[int] = ..., in_log: _Optional[int] = ..., in_topic: _Optional[int] = ...) -> None: ...

class VerifyMirrorAnswer(_message.Message):
    __slots__ = ("events", "records", "foreign", "stretches", "differences")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    STRETCHES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    events: int
    records: int
    foreign: int
    stretches: int
    differences: _containers.RepeatedCompositeFieldContainer[MirrorDifference]
    def __init__(self, events: _Optional[int] = ..., records: _Optional[int] = ..., foreign: _Optional[int] = ..., stretches: _Optional[int] = ..., differences: _Optional[_Iterable[_Union[MirrorDifference, _Mapping]]] = ...) -> None: ...

class ResumeMirror(_message.Message):
    __slots__ = ("accept_diverged",)
    ACCEPT_DIVERGED_FIELD_NUMBER: _ClassVar[int]
    accept_diverged: bool
    def __init__(self, accept_diverged: bool = ...) -> None: ...

class ResetMirror(_message.Message):
    __slots__ = ("earliest", "latest", "id", "snapshot", "dry_run")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    id: int
    snapshot: bool
    dry_run: bool
    def __init__(self, earliest: bool = ..., latest: bool = ..., id: _Optional[int] = ..., snapshot: bool = ..., dry_run: bool = ...) -> None: ...

class AlterMirror(_message.Message):
    __slots__ = ("interval_ms", "hold_bytes", "on_too_large")
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    HOLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    ON_TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    hold_bytes: int
    on_too_large: str
    def __init__(self, interval_ms: _Optional[int] = ..., hold_bytes: _Optional[int] = ..., on_too_large: _Optional[str] = ...) -> None: ...

class RemoveMirror(_message.Message):
    __slots__ = ("delete_topics",)
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    delete_topics: bool
    def __init__(self, delete_topics: bool = ...) -> None: ...

class ChangeMirror(_message.Message):
    __slots__ = ("name", "pause", "resume", "reset", "remove", "alter")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    ALTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    pause: Done
    resume: ResumeMirror
    reset: ResetMirror
    remove: RemoveMirror
    alter: AlterMirror
    def __init__(self, name: _Optional[str] = ..., pause: _Optional[_Union[Done, _Mapping]] = ..., resume: _Optional[_Union[ResumeMirror, _Mapping]] = ..., reset: _Optional[_Union[ResetMirror, _Mapping]] = ..., remove: _Optional[_Union[RemoveMirror, _Mapping]] = ..., alter: _Optional[_Union[AlterMirror, _Mapping]] = ...) -> None: ...
