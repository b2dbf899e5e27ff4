"""By which schemas a mirror's events are told, and where these have ids: in the cluster's own registry, or in another one by HTTP.

The other one has the paths of Confluent's. Each request is a connection of its own, and its name is resolved then: what `allow_outbound`
says is held against what is connected to. Nothing is followed elsewhere, so a redirect leads nowhere. What comes back is bounded in bytes
and time.
"""

import asyncio
import ssl
from base64 import b64encode
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from socket import AF_INET, AddressFamily
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec
from aiohttp import ClientConnectorError, ClientError, ClientSession, DummyCookieJar, TCPConnector, ThreadedResolver
from aiohttp.abc import ResolveResult
from yarl import URL

from eventlog.errors import InvalidArgument, RegistryFailed, SchemaRefused
from eventlog.kafka.declared import Declared, avro_of_json_schema
from eventlog.kafka.shape import Shape
from eventlog.limits import SCHEMA_BYTES_MAX
from eventlog.mirror.book import Mirror
from eventlog.node.outbound import Outbound, secret
from eventlog.node.schemas import Schemas
from eventlog.schema import requests
from eventlog.schema.requests import Given, Refusal
from eventlog.state.caches import CacheState

INTERNAL: Final = "internal"
WAIT_S: Final = 5.0  # for one answer: whoever adds a mirror hears within a client's ten seconds what is wrong
_ANSWER_BYTES_MAX: Final = 7 * SCHEMA_BYTES_MAX  # a schema in JSON, each of its characters escaped
_WORDS_MAX: Final = 500  # of what a registry says
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TYPES: Final = ("avro", "json")
_ABSENT: Final = (40401, 40402)  # a subject, or a version of one: whatever comes is its first


class MirrorRegistry(Protocol):
    """A registry as mirrors need it."""

    async def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema, which becomes a version of a subject unless it is one.

        Raises:
            SchemaRefused: the registry does not take it, as one that cannot follow the subject's last.
            Unavailable: it does not answer.
        """
        ...

    async def check(self, subject: str, schema: str) -> None:
        """Refuse an Avro schema that cannot follow the last one of a subject, if there is one. Raises what `register` does."""
        ...

    async def latest(self, subject: str) -> tuple[str, str]:
        """Return the latest schema of a subject, and its type.

        Raises:
            SchemaRefused: there is none, or it is of a type that values cannot be told by.
            Unavailable: the registry does not answer.
        """
        ...


def shape_of(mirror: Mirror, cache: CacheState, *, cluster: str) -> Shape:
    """Return how the events of a cache are told.

    Raises:
        InvalidArgument: the mirror's schema is none, or says of a place not one type.
    """
    options = cache.options
    if options.format == "avro":
        if mirror.schema:
            raise InvalidArgument(why="an Avro cache has a schema; a mirror of it takes no other")
        declared: Declared | None = Declared(msgspec.json.decode(options.schema), is_stored=True)
    else:
        declared = _declared(mirror)
    if declared is not None and options.format == "bytes":
        raise InvalidArgument(why="values of a bytes cache are bytes, whatever a schema says")
    return Shape(
        cache=mirror.cache,
        cluster=cluster,
        prefix=mirror.prefix,
        topic=mirror.topic,
        version=version("eventlog"),
        is_json=options.format == "json",
        has_text_keys=not options.bytes_keys,
        form=mirror.format,
        encoding=mirror.encoding,
        declared=declared,
        key_field=mirror.key_field,
        has_tombstones=mirror.has_tombstones,
    )


def _declared(mirror: Mirror) -> Declared | None:
    if not mirror.schema:
        return None
    try:
        schema: Any = msgspec.json.decode(mirror.schema)
    except msgspec.DecodeError as error:
        raise InvalidArgument(why=f"the schema is no JSON: {error}") from error
    return Declared(schema if mirror.schema_type == "avro" else avro_of_json_schema(schema))


def _subjects(shape: Shape) -> tuple[tuple[str, str], ...]:
    """Return the subjects of a shape, that of keys first, and the schema of each."""
    if shape.encoding != "avro":
        return ()
    return (f"{shape.topic}-key", shape.key_schema.decode()), (f"{shape.topic}-value", shape.value_schema.decode())


async def registered(shape: Shape, registry: MirrorRegistry) -> Shape:
    """Return a shape with the ids by which a registry knows its schemas; they are registered if need be. Raises as `register` does."""
    ids = [await registry.register(subject, text) for subject, text in _subjects(shape)]
    return replace(shape, schema_ids=(ids[0], ids[1])) if ids else shape


async def compatible(shape: Shape, registry: MirrorRegistry) -> None:
    """Refuse schemas that cannot follow the last ones of their subjects; nothing is registered. Raises as `check` does."""
    for subject, text in _subjects(shape):
        await registry.check(subject, text)


class OwnRegistry:
    """The cluster's."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    async def register(self, subject: str, schema: str) -> int:
        try:
            found = await self._schemas.change(partial(requests.register, subject=subject, given=Given(schema=schema)))
        except Refusal as refusal:
            raise SchemaRefused(subject=subject, why=refusal.message) from refusal
        return int(found["id"])

    async def check(self, subject: str, schema: str) -> None:
        asked = partial(requests.compatibility, subject=subject, word="latest", given=Given(schema=schema))
        try:
            found = await self._schemas.judge(asked, await self._schemas.read())
        except Refusal as refusal:
            raise SchemaRefused(subject=subject, why=refusal.message) from refusal
        if found:
            raise SchemaRefused(subject=subject, why=_cannot_follow(found))

    async def latest(self, subject: str) -> tuple[str, str]:
        try:
            found = requests.version(await self._schemas.read(), subject, "latest")
        except Refusal as refusal:
            raise SchemaRefused(subject=subject, why=refusal.message) from refusal
        return _told(subject, found)


class HttpRegistry:
    """One elsewhere, as one node reaches it."""

    def __init__(self, name: str, outbound: Outbound) -> None:
        """Take the name of a table, or a URL. Raises NoConnection, InvalidArgument: it is neither."""
        self._connection = outbound.registry_at(name)
        self._outbound = outbound
        self.name = name

    async def register(self, subject: str, schema: str) -> int:
        found = await self._ask("POST", subject, "/subjects/{}/versions", schema=schema)
        if type(number := found.get("id")) is not int or not 0 <= number < 1 << 31:
            raise self._failed("answers a registration without an id: it is no registry")
        return number

    async def check(self, subject: str, schema: str) -> None:
        found = await self._ask("POST", subject, "/compatibility/subjects/{}/versions/latest?verbose=true", schema=schema)
        if found.get("is_compatible") is False:
            raise SchemaRefused(subject=subject, why=_cannot_follow(found.get("messages")))
        if found.get("is_compatible") is not True and found.get("error_code") not in _ABSENT:
            raise self._failed("answers without a judgement: it is no registry")

    async def latest(self, subject: str) -> tuple[str, str]:
        found = await self._ask("GET", subject, "/subjects/{}/versions/latest")
        if not isinstance(found.get("schema"), str):
            raise self._failed("answers without a schema: it is no registry")
        return _told(subject, found)

    async def _ask(self, method: str, subject: str, path: str, *, schema: str | None = None) -> dict[str, Any]:
        """Return what is answered about a subject. `path` has `{}` where it stands.

        Raises:
            SchemaRefused: the registry says no.
            RegistryFailed: it is away, or no registry.
            OutboundRefused: this node may not connect to it.
            BadConfig: a file with a secret cannot be read.
        """
        url = URL(self._connection.url.rstrip("/") + path.format(quote(subject, safe="")), encoded=True)
        secrets, context = await asyncio.to_thread(self._secrets)
        if url.host is None or url.port is None:
            raise self._failed("has a URL without a host")
        try:
            if _is_address(url.host):
                self._outbound.check_found(url.host, url.port, [url.host])
            connector = TCPConnector(resolver=_CheckedResolver(self._outbound), use_dns_cache=False, ssl=context)
            async with asyncio.timeout(WAIT_S), ClientSession(connector=connector, cookie_jar=DummyCookieJar()) as session:
                body = None if schema is None else msgspec.json.encode({"schema": schema, "schemaType": "AVRO"})
                headers = {"Accept": f"{_TYPE}, application/json"} | ({"Content-Type": _TYPE} if body else {}) | secrets
                async with session.request(method, url, data=body, headers=headers, allow_redirects=False) as answer:
                    content = bytearray()
                    async for piece in answer.content.iter_any():
                        content += piece
                        if len(content) > _ANSWER_BYTES_MAX:
                            raise self._failed("answers without an end: it is no registry")
                    status = answer.status
        except TimeoutError as error:
            raise self._failed("does not answer in time") from error
        except ClientConnectorError as error:
            raise self._failed(f"does not answer: {_line(str(error.os_error))}") from error
        except (ClientError, OSError, ValueError) as error:
            raise self._failed(f"does not answer as one: {type(error).__name__} {_line(str(error))}") from error
        return self._judged(status, bytes(content), subject=subject, is_check=path.startswith("/compatibility"))

    def _judged(self, status: int, content: bytes, *, subject: str, is_check: bool) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(content)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and (status == 200 or (is_check and found.get("error_code") in _ABSENT)):
            return found
        if status in {401, 403}:
            raise SchemaRefused(subject=subject, why=f"{self.name} answers {status}: it does not take this node's user and password")
        if not isinstance(found, dict) or not isinstance(message := found.get("message"), str):
            raise self._failed(f"answers {status} to what a registry knows: it is none")
        if status < 500 and status != 429:
            raise SchemaRefused(subject=subject, why=f"{self.name} says {_line(message)}")
        raise self._failed(f"answers {status}: {_line(message)}")

    def _failed(self, why: str) -> RegistryFailed:
        return RegistryFailed(registry=self.name, why=why)

    def _secrets(self) -> tuple[dict[str, str], ssl.SSLContext | bool]:
        """Return the headers and the certificates that a connection proves itself by, as the files have them now."""
        found = self._connection
        headers: dict[str, str] = {}
        if found.user:
            words = f"{found.user}:{secret(found.password_file, option='password_file')}"
            headers["Authorization"] = f"Basic {b64encode(words.encode()).decode()}"
        if not found.url.startswith("https:"):
            return headers, True
        try:
            context = ssl.create_default_context(cafile=found.ca_file or None)
            if found.cert_file:
                context.load_cert_chain(found.cert_file, found.key_file)
        except (OSError, ssl.SSLError) as error:
            raise self._failed(f"cannot be asked, its certificates cannot be used: {error}") from error
        return headers, context


class _CheckedResolver(ThreadedResolver):
    """Resolves names to addresses that may be connected to."""

    def __init__(self, outbound: Outbound) -> None:
        super().__init__()
        self._outbound = outbound

    async def resolve(self, host: str, port: int = 0, family: AddressFamily = AF_INET) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        self._outbound.check_found(host, port, [one["host"] for one in found])
        return found


def _is_address(host: str) -> bool:
    """Return whether aiohttp takes a host for an address, and so resolves nothing."""
    return ":" in host or host.replace(".", "").isdigit()


def _line(text: str) -> str:
    return " ".join(text.split())[:_WORDS_MAX]


def _cannot_follow(messages: object) -> str:
    """Return why a schema is refused, with what a registry says of it."""
    words = "; ".join(map(str, messages)) if isinstance(messages, list) else ""
    return f"it is incompatible with an earlier schema{': ' if words else ''}{_line(words)}"


def _told(subject: str, found: dict[str, Any]) -> tuple[str, str]:
    kind = str(found.get("schemaType") or "AVRO").lower()
    if kind not in _TYPES or found.get("references"):
        raise SchemaRefused(subject=subject, why="a mirror takes a schema of Avro or JSON Schema that refers to no other")
    return str(found["schema"]), kind
