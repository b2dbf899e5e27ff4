"""The process of `serve`: the one place that knows node and HTTP together."""

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from eventlog.clock import Clock, SystemClock, SystemEntropy
from eventlog.control.metastores.location import Location, open_metastore, parse_location
from eventlog.control.metastores.resolving import ResolvingStore
from eventlog.control.moving import MovedStore, move_records, put_rebuilt
from eventlog.control.rebuilding import RebuiltRecords, decode_kept, rebuild
from eventlog.errors import BadConfig, EventLogError, NoConnection, Stopping
from eventlog.http.server import Api, ApiOptions, HttpServer, Probes, render
from eventlog.ids import id_before
from eventlog.integrations.kafka.mirrors import Mirrors
from eventlog.integrations.kafka.shared_reads import SharedReads
from eventlog.integrations.kafka.source import Inside
from eventlog.limits import CLOCK_AHEAD_MS_MAX, CONNECTION_BYTES_IN_FLIGHT_MAX, FRAME_BYTES_MAX, LEASE_MS, MIB
from eventlog.mirror.broker import Kafka
from eventlog.node.cluster.peers import is_of_member
from eventlog.node.cluster.supervisor import Supervisor, check, check_alone
from eventlog.node.config import NodeConfig, load_config, split_address
from eventlog.node.figures import metrics_page
from eventlog.node.freed_memory import keep_freed_memory
from eventlog.node.handlers import TABLE, operators_of
from eventlog.node.home import RECORDS, Home
from eventlog.node.led import Services
from eventlog.node.node import dispatcher
from eventlog.node.offline import DirectoryReport
from eventlog.node.offline import check_directory as check_stored
from eventlog.node.outbound import Outbound
from eventlog.node.start import Started, open_node
from eventlog.transport.loops import run
from eventlog.transport.server import Server, ServerOptions, bind
from eventlog.wire.session import SessionOptions

__all__ = ["NodeConfig", "load_config", "move_metadata", "rebuild_metadata", "serve", "supervise"]

log = logging.getLogger("eventlog")
STOP_GRACE_MS = 10_000
_STOPPING = (signal.SIGTERM, signal.SIGINT)
SWITCH_INTERVAL_S = 0.0005  # how long the storage thread may keep the loop from the GIL; the default of 5 ms shows in every latency
FILES_PER_CONNECTION = 4  # of those that the process may have open: half are for the store's tables, the rest for everything else
GC_OBJECTS = 50_000  # a request makes a dozen objects and no cycles; the default of 700 costs a tenth of all CPU under single puts


def serve(config: NodeConfig, *, clock: Clock | None = None, on_ready: Callable[[str], None] = lambda _address: None) -> None:
    """Run a node until SIGTERM or SIGINT; returns when everything is closed. `clock` is the machine's unless given.

    `on_ready` is told where clients connect once they can.

    Raises:
        EventLogError: it could not start, or had to stop: the sentence says why.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if is_unoptimized(sysconfig.get_config_vars()):
        log.warning(
            "python_not_optimized python=%s advice=%s",
            sys.executable,
            "use one built with --enable-optimizations: puts take a quarter less",
        )
    check_alone(config)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    os.umask(0o077)  # the engine's files as well are the owner's alone
    keep_freed_memory()
    _leave_out_pandas()
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))  # segments have files of their own
    gc.freeze()  # what is loaded stays, no collection looks at it again
    gc.set_threshold(GC_OBJECTS, 20, 100)
    run(_serve(config, clock, on_ready))


def _leave_out_pandas() -> None:
    """Have pyarrow look for pandas now and not find it. Its first array loads it where it is installed: 0.2 s of the loop, and 40 MB."""
    hidden = _Hidden("pandas")
    sys.meta_path.insert(0, hidden)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(hidden)


class _Hidden(MetaPathFinder):
    """Finds a package nowhere."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /) -> None:
        if fullname == self._name:
            raise ModuleNotFoundError(name=fullname)


def supervise(config: NodeConfig, *, command: Sequence[str]) -> int:
    """Run `config.processes` nodes, each started by `command`, until SIGTERM or SIGINT; return the exit code.

    Raises:
        BadConfig: they cannot be run.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    check(config)
    return asyncio.run(_supervise(config, command))


async def _supervise(config: NodeConfig, command: Sequence[str]) -> int:
    supervisor = Supervisor(config, command=command)
    with _stopped_by_signals(supervisor.stop):
        return await supervisor.run()


def move_metadata(source: str, target: str, *, on_progress: Callable[[int, int], None]) -> MovedStore:
    """Move a stopped cluster's records between stores, named as `--meta` takes them.

    Raises:
        EventLogError: it could not, or must not: the sentence says why.
    """

    async def move() -> MovedStore:
        names = parse_location(source), parse_location(target)
        async with AsyncExitStack() as stack:

            async def opened(location: Location, *, create: bool) -> ResolvingStore:
                store = await open_metastore(location, create=create)
                stack.push_async_callback(store.close)
                return ResolvingStore(store, writer=f"move-{os.getpid()}", entropy=SystemEntropy())

            return await move_records(
                await opened(names[0], create=False),
                partial(opened, names[1], create=True),
                names=(str(names[0]), str(names[1])),
                wait=lambda ms: asyncio.sleep(ms / 1000),
                on_progress=on_progress,
            )

    return asyncio.run(move())


def rebuild_metadata(directories: Sequence[Path], target: str) -> RebuiltRecords:
    """Make the records of a stopped cluster again, from what the nodes with these data directories keep, in an empty store.

    Raises:
        EventLogError: it could not, or must not: the sentence says why.
    """
    location = parse_location(target)

    async def put() -> RebuiltRecords:
        async with AsyncExitStack() as stack:
            copies = {}
            for directory in directories:
                copies[str(directory)] = decode_kept(_kept_records(directory), where=str(directory / RECORDS))
                stack.callback(Home.open(directory).close)  # nobody runs on it meanwhile
            rebuilt = rebuild(copies, ceiling=id_before(SystemClock().wall_ms() + CLOCK_AHEAD_MS_MAX + LEASE_MS))
            store = await open_metastore(location, create=True)
            stack.push_async_callback(store.close)
            await put_rebuilt(ResolvingStore(store, writer=f"rebuild-{os.getpid()}", entropy=SystemEntropy()), rebuilt, name=str(location))
            return rebuilt

    return asyncio.run(put())


def check_directory(path: Path) -> DirectoryReport:
    """Read everything in the data directory of a node that does not run.

    Raises:
        EventLogError: it runs, or has no data there.
    """
    return check_stored(path)


def _kept_records(directory: Path) -> bytes:
    try:
        return (directory / RECORDS).read_bytes()
    except OSError as error:
        raise BadConfig(option="data", why=f"{directory} keeps no copy of the records: {error.strerror}") from error


async def _serve(config: NodeConfig, clock: Clock | None, on_ready: Callable[[str], None]) -> None:
    stop: asyncio.Future[EventLogError | None] = asyncio.get_running_loop().create_future()

    def end(error: EventLogError | None = None) -> None:
        if not stop.done():
            stop.set_result(error)

    with _stopped_by_signals(end):
        await _serve_until(stop, config, clock=clock, on_fatal=end, on_ready=on_ready)


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM and SIGINT call `stop` on the loop, and do nothing from the end on.

    They are not the loop's own, which gives them back when it is closed: one that is sent again a moment later would kill the process.
    """
    loop = asyncio.get_running_loop()

    def call(*_: object) -> None:
        loop.call_soon_threadsafe(stop)

    for number in _STOPPING:
        signal.signal(number, call)
    try:
        yield
    finally:
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)


async def _serve_until(
    stop: "asyncio.Future[EventLogError | None]",
    config: NodeConfig,
    *,
    clock: Clock | None,
    on_fatal: Callable[[EventLogError], None],
    on_ready: Callable[[str], None],
) -> None:
    with ExitStack() as sockets:
        bound = sockets.enter_context(_bind(config.listen, option="listen"))
        pages = sockets.enter_context(_bind(config.http, option="http"))
        if pages.getsockname() == bound.getsockname():  # neither listens yet, so the system lets both have it
            raise BadConfig(option="http", why=f"{config.http} is where clients connect; give it a port of its own")
        listens = _with_port(config.listen, bound.getsockname()[1])
        try:
            started = await open_node(config, listens=listens, on_fatal=on_fatal, stop=stop, clock=clock)
        except Stopping:
            log.info("stopped before=ready")
            return
        sockets.pop_all()  # they are the servers' from here on
    node = started.node
    # an event may carry its value, the one before it, and fields set apart: its writer can read it
    frame_bytes_max = max(FRAME_BYTES_MAX, 3 * config.value_bytes_max + MIB)
    options = ServerOptions(
        connections_max=_connections_max(config, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        bytes_in_flight_max=max(CONNECTION_BYTES_IN_FLIGHT_MAX, frame_bytes_max),  # one frame never blocks its own connection
        session=SessionOptions(frame_bytes_max=frame_bytes_max),
    )
    outbound = Outbound(node=node.name, kafka=config.kafka, registry=config.registry, allow=config.allow_outbound)
    inside = Inside(dispatcher(node, TABLE), options.session)
    mirrors = Mirrors(node, inside, outbound=outbound, open_kafka=partial(_open_kafka, outbound, SharedReads()))
    services = Services(node, [mirrors])
    table = TABLE | mirrors.table()
    dispatch = dispatcher(node, table)
    server = Server(dispatch, options, is_member=is_of_member, operators=operators_of(table))
    own_names = {address.rpartition(":")[0] for address in (config.http, config.advertise)}
    api = Api(dispatch, ApiOptions(body_bytes_max=config.value_bytes_max, session=options.session, own_names=own_names))
    probes = Probes(ready=node.why_not_ready, metrics=lambda: metrics_page(node, (server, http, mirrors), render, more=mirrors.counters()))
    http = HttpServer(probes, pages, api=api, registry=started.node.schemas)
    error: EventLogError | None = None
    node.own(asyncio.create_task(mirrors.follow(), name="mirrors"))
    node.own(asyncio.create_task(mirrors.signals.follow(), name="signals"))
    node.own(asyncio.create_task(services.run(), name="services"))
    try:
        await _listen(config, bound, server, http)
        log.info("ready name=%s data=%s", node.name, config.data)
        on_ready(listens)
        error = await stop
    finally:
        await services.stop()
        await _stop(started, server, http, clean=error is None)
    if error is not None:
        raise error


def _open_kafka(outbound: Outbound, reads: SharedReads[Mapping[bytes, bytes]], name: str) -> Kafka:
    """Return Kafka as a node reaches it. Raises NoConnection: it has no such connection, or lacks the client."""
    try:
        from eventlog.integrations.kafka.broker import AioKafka  # noqa: PLC0415 -- an extra, and loaded where something is mirrored
    except ModuleNotFoundError as error:
        raise NoConnection(node=outbound.node, why=f"lacks {error.name}: pip install 'eventlog[kafka]' there") from error
    return AioKafka(name, outbound, reads)


def is_unoptimized(built: Mapping[str, object]) -> bool:
    """Return whether the variables of a build (`sysconfig.get_config_vars`) say that the interpreter was compiled without a profile.

    Distributions that profile by rules of their own clear PGO_PROF_USE_FLAG, so an unknown build counts as optimized.
    """
    return bool(built.get("Py_DEBUG")) or (
        bool(built.get("PGO_PROF_USE_FLAG")) and "--enable-optimizations" not in str(built.get("CONFIG_ARGS"))
    )


def _connections_max(config: NodeConfig, files_max: int) -> int:
    """Return how many connections are accepted where the process may have `files_max` files open, -1 for any number."""
    if files_max < 0 or config.connections_max * FILES_PER_CONNECTION <= files_max:
        return config.connections_max
    limited = max(files_max // FILES_PER_CONNECTION, 1)
    log.warning("connections_limited asked=%d max=%d open_files=%d", config.connections_max, limited, files_max)
    return limited


def _bind(address: str, *, option: str) -> socket.socket:
    """Take an address before anything else: a node that cannot have it becomes no member. It is refused until the node can be served."""
    try:
        return bind(*split_address(address, option=option))
    except OSError as error:
        raise BadConfig(option=option, why=f"cannot listen on {address}: {error.strerror}") from error


def _with_port(address: str, port: int) -> str:
    """Return an address with the port that was taken for it."""
    return f"{address.rpartition(':')[0]}:{port}"


async def _listen(config: NodeConfig, bound: socket.socket, server: Server, http: HttpServer) -> None:
    address = _with_port(config.listen, bound.getsockname()[1])
    try:
        await server.start_at(bound)
    except OSError as error:
        raise BadConfig(option="listen", why=f"cannot listen on {address}: {error.strerror}") from error
    http_address = _with_port(config.http, await http.start())
    log.info("listening address=%s http=%s", address, http_address)
    if config.ready_file:
        try:
            _write_ready(Path(config.ready_file), {"listen": address, "http": http_address, "pid": os.getpid()})
        except OSError as error:
            raise BadConfig(option="ready_file", why=f"{config.ready_file}: {error.strerror}") from error


def _write_ready(path: Path, content: dict[str, object]) -> None:
    """Put the file there as a new one, whatever is there: nothing is written through a link."""
    new = path.with_name(f"{path.name}.new-{os.getpid()}")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o644)  # what waits for the node may be another user's
        file.write(json.dumps(content))
    new.replace(path)


async def _stop(started: Started, server: Server, http: HttpServer, *, clean: bool) -> None:
    """What is led is handed over, no new requests, answers in flight, storage closed.

    Other members are let go of first: they must not wait for the acknowledgements of a backup that takes nothing any more. A fenced
    store is left as it is, without the mark of a clean stop.
    """
    if clean:
        await started.node.leaving.hand_over()
    started.node.is_stopping = True
    await server.stop(grace_ms=STOP_GRACE_MS if clean else 0, at_once=is_of_member)
    await http.stop()
    await started.close(clean=clean)
    log.info("stopped clean=%s", clean)
