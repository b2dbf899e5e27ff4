"""`eventlog schema`: the schemas that a cluster's registry keeps, asked for over HTTP as all clients of a registry do.

So it works with any registry of that kind. A refusal is said with the registry's own words and code.
"""

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import click
import orjson

from eventlog.errors import ConnectionLost, OperationRefused, TimedOut, Unavailable
from eventlog_cli.conventions import answers_by_exit_code, common_options, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import note, print_row, print_text, stdin, stdout

REGISTRY_VARIABLE = "EVENTLOG_REGISTRY"
HTTP_PORT_DEFAULT = 7480
ANSWER_BYTES_MAX = 64 << 20  # all subjects of a full registry are less
EXIT_INCOMPATIBLE = 1
_TYPES = {".avsc": "avro", ".json": "json", ".proto": "protobuf"}
_LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
_MODES = ("READWRITE", "READONLY", "IMPORT")

SUBJECT = click.argument("subject", metavar="SUBJECT")
FILE = click.argument("file", metavar="FILE")
TYPE = click.option(
    "--type",
    "type",
    type=click.Choice(["avro", "json", "protobuf"]),
    help="What FILE holds.  [default: by .avsc, .json or .proto, else avro]",
)
REFERENCES = click.option(
    "--reference", "references", multiple=True, metavar="NAME=SUBJECT:VERSION", help="A schema that FILE needs; again for more."
)
REGISTRY = click.option(
    "--registry",
    metavar="URL",
    help=f"Registry to ask.  [default: ${REGISTRY_VARIABLE}, else port {HTTP_PORT_DEFAULT} of the node that --server names]",
)


def _options(function: Any) -> Any:
    return REGISTRY(common_options(function))


@click.group("schema", cls=SynonymGroup, synonyms={"remove": "delete", "drop": "delete", "show": "get", "ls": "list", "test": "check"})
@common_options
def command() -> None:
    """Register, list, print, check and delete schemas, and set what they have to be compatible with."""


@command.command("register")
@SUBJECT
@FILE
@TYPE
@REFERENCES
@_options
def register(subject: str, file: str, *, registry: str | None, **given: Any) -> None:
    """Register the schema in FILE, or in stdin for -, as the next version of SUBJECT, unless it is one already."""
    found = _Registry(registry).ask(
        "POST", f"subjects/{_part(subject)}/versions", _body(file, **given), doing=f"registering under {subject}"
    )
    if "version" not in found:  # other registries may answer with the id alone
        found = {"subject": subject, **found}
    if settings().is_json:
        print_row({name: found[name] for name in ("subject", "version", "id") if name in found})
    else:
        version = f"version {found['version']} of " if "version" in found else ""
        print_text(f"{version}{subject} has schema id {found['id']}")


@command.command("list")
@click.argument("subject", metavar="[SUBJECT]", required=False)
@click.option("--deleted", is_flag=True, help="Those that are deleted, too.")
@_options
def list_(subject: str | None, *, deleted: bool, registry: str | None) -> None:
    """Print all subjects, or the versions of SUBJECT."""
    asked = "subjects" if subject is None else f"subjects/{_part(subject)}/versions"
    found = _Registry(registry).ask("GET", asked + _query(deleted=deleted), doing=f"listing {subject or 'subjects'}")
    for one in found:
        if settings().is_json:
            print_row({"subject": one} if subject is None else {"subject": subject, "version": one})
        else:
            print_text(str(one))


@command.command("get")
@click.argument("subject", metavar="[SUBJECT]", required=False)
@click.option("--version", metavar="N|latest", default="latest", show_default=True, help="Which version of SUBJECT.")
@click.option("--id", "schema_id", type=int, metavar="ID", help="The schema with this id instead.")
@_options
def get(subject: str | None, *, version: str, schema_id: int | None, registry: str | None) -> None:
    """Print a schema: its text alone, or with --json what is known of it."""
    if (subject is None) == (schema_id is None):
        raise click.UsageError("name a SUBJECT, or --id")
    asked = f"schemas/ids/{schema_id}" if subject is None else f"subjects/{_part(subject)}/versions/{_part(version)}"
    found = _Registry(registry).ask("GET", asked, doing=f"reading {subject or f'schema {schema_id}'}")
    if settings().is_json:
        print_row(found)
    else:
        stdout().write(found["schema"].rstrip("\n").encode() + b"\n")


@command.command("check")
@SUBJECT
@FILE
@TYPE
@REFERENCES
@click.option("--version", metavar="N|latest", help="Against this version.  [default: those that the level of SUBJECT asks for]")
@_options
def check(subject: str, file: str, *, version: str | None, registry: str | None, **given: Any) -> None:
    """Say whether the schema in FILE could be the next version of SUBJECT; exit with 1 and the reasons when it could not."""
    answers_by_exit_code()
    asked = f"compatibility/subjects/{_part(subject)}/versions" + (f"/{_part(version)}" if version else "")
    found = _Registry(registry).ask("POST", asked + _query(verbose=True), _body(file, **given), doing=f"checking against {subject}")
    is_compatible, messages = bool(found["is_compatible"]), list(found.get("messages") or ())
    if settings().is_json:
        print_row({"subject": subject, "is_compatible": is_compatible, "messages": messages})
    else:
        print_text("compatible" if is_compatible else "\n".join(["not compatible", *messages]))
    if not is_compatible:
        click.get_current_context().exit(EXIT_INCOMPATIBLE)


@command.command("config")
@click.argument("subject", metavar="[SUBJECT]", required=False)
@click.option("--level", type=click.Choice(_LEVELS, case_sensitive=False), help="What a new version has to be compatible with.")
@click.option("--mode", type=click.Choice(_MODES, case_sensitive=False), help="Whether versions may be added, or are imported with ids.")
@click.option("--reset", is_flag=True, help="Remove what is set for SUBJECT, or for all.")
@click.option("--force", is_flag=True, help="Import beside what is there.")
@_options
def config(subject: str | None, *, level: str | None, mode: str | None, reset: bool, force: bool, registry: str | None) -> None:
    """Print, set or reset the level of compatibility and the mode, of SUBJECT or of all that have none of their own."""
    if reset and (level or mode):
        raise click.UsageError("--reset and what is to be set exclude each other")
    asked = _Registry(registry)
    place = f"/{_part(subject)}" if subject else ""
    doing = f"configuring {subject or 'the registry'}"
    if level:
        asked.ask("PUT", f"config{place}", {"compatibility": level.upper()}, doing=doing)
    if mode:
        asked.ask("PUT", f"mode{place}" + _query(force=force), {"mode": mode.upper()}, doing=doing)
    if reset:
        for kind in ("config", "mode"):
            asked.ask("DELETE", f"{kind}{place}", doing=doing, may_lack=True)
    found = {
        "level": asked.ask("GET", f"config{place}{_query(defaultToGlobal=True)}", doing=doing)["compatibilityLevel"],
        "mode": asked.ask("GET", f"mode{place}{_query(defaultToGlobal=True)}", doing=doing)["mode"],
    }
    if settings().is_json:
        print_row({"subject": subject, **found})
    else:
        print_text("\n".join(f"{name:<8}{value}" for name, value in found.items()))


@command.command("delete")
@SUBJECT
@click.option("--version", metavar="N|latest", help="This version alone.")
@click.option("--permanent", is_flag=True, help="Remove for good what was deleted before: its ids can be read no longer.")
@click.option("--yes", is_flag=True, help="Do it.")
@_options
def delete(subject: str, *, version: str | None, permanent: bool, yes: bool, registry: str | None) -> None:
    """Delete SUBJECT or a version of it. Ids stay readable until it is deleted once more with --permanent."""
    if permanent and not yes:
        raise click.UsageError(f"values written with schemas of {subject} may become unreadable; say --yes to do it")
    asked = f"subjects/{_part(subject)}" + (f"/versions/{_part(version)}" if version else "")
    found = _Registry(registry).ask("DELETE", asked + _query(permanent=permanent), doing=f"deleting {subject}")
    versions = found if isinstance(found, list) else [found]
    if settings().is_json:
        print_row({"subject": subject, "versions": versions, "permanent": permanent})
    else:
        word = "removed" if permanent else "deleted"
        note(f"{word} {'version' if len(versions) == 1 else 'versions'} {', '.join(map(str, versions))} of {subject}")


# ---------------------------------------------------------------- the registry


def latest_text(subject: str, *, types: Sequence[str]) -> str:
    """Return the latest schema of a subject of the cluster's registry, or of the one that the environment names.

    Raises:
        OperationRefused: there is none, or it is of none of these `types`, or refers to others.
    """
    found = _Registry(None).ask("GET", f"subjects/{_part(subject)}/versions/latest", doing=f"reading the schema of {subject}")
    if found.get("schemaType", "AVRO") not in types or found.get("references"):
        taken = " or ".join("an Avro schema" if one == "AVRO" else "a JSON Schema" for one in types)
        raise OperationRefused(what=f"a cache of subject {subject}", why=f"such a cache takes {taken} that refers to no other")
    return str(found["schema"])


class _Registry:
    """A registry by its URL; every call is a connection of its own."""

    def __init__(self, url: str | None) -> None:
        named = url or os.environ.get(REGISTRY_VARIABLE)
        self._url = (named or _url_of_node()).rstrip("/")
        self._hint = "" if named else f" (a node serves it where its --http is: name that with --registry or {REGISTRY_VARIABLE})"
        parts = urlsplit(self._url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise click.BadParameter(f"{self._url!r} is no URL of a registry: write http://HOST:PORT", param_hint="--registry")

    def ask(self, method: str, path: str, body: Any = None, *, doing: str, may_lack: bool = False) -> Any:
        """Return the answer to a request; None where there is nothing of that name and there `may_lack`.

        Raises:
            OperationRefused: the registry says why.
            Unavailable: it does not answer now.
        """
        from http.client import HTTPException  # noqa: PLC0415 -- `--help` does without
        from urllib.error import HTTPError, URLError  # noqa: PLC0415
        from urllib.request import Request, urlopen  # noqa: PLC0415

        data = None if body is None else orjson.dumps(body)
        headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        request = Request(f"{self._url}/{path}", data=data, headers=headers, method=method)  # noqa: S310 -- its scheme was checked
        seconds = settings().timeout_ms / 1000
        try:
            with urlopen(request, timeout=seconds) as answer:  # noqa: S310
                return orjson.loads(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            with error:
                content = error.read(ANSWER_BYTES_MAX)
            if may_lack and error.code == 404:
                return None
            raise _refusal(error.code, content, doing=doing) from error
        except TimeoutError as error:
            raise TimedOut(what=self._url, timeout_ms=settings().timeout_ms) from error
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise TimedOut(what=self._url, timeout_ms=settings().timeout_ms) from error
            raise ConnectionLost(address=self._url, why=f"{error.reason}{self._hint}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise ConnectionLost(address=self._url, why=f"no answer of a registry: {error}{self._hint}") from error


_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


def _url_of_node() -> str:
    host, _, _ = settings().addresses[0].rpartition(":")
    return f"http://{host or settings().addresses[0]}:{HTTP_PORT_DEFAULT}"


def _refusal(status: int, content: bytes, *, doing: str) -> OperationRefused | Unavailable:
    try:
        said = orjson.loads(content)
        why = f"{said['message']} ({said['error_code']})"
    except (ValueError, KeyError, TypeError):
        why = f"HTTP status {status}, and no word of a registry"
    return Unavailable(why=f"{doing}: {why}") if status >= 500 else OperationRefused(what=doing, why=why)


def _part(name: str) -> str:
    return quote(name, safe="")


def _query(**flags: bool) -> str:
    words = "&".join(f"{name}=true" for name, is_set in flags.items() if is_set)
    return f"?{words}" if words else ""


def _body(file: str, *, type: str | None, references: tuple[str, ...]) -> dict[str, Any]:
    from pathlib import Path  # noqa: PLC0415 -- only where there is a file

    data = stdin().read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{file} is not UTF-8", param_hint="FILE") from error
    found = {"schema": text, "schemaType": (type or _TYPES.get(Path(file).suffix, "avro")).upper()}
    return found | ({"references": [_reference(one) for one in references]} if references else {})


def _reference(text: str) -> dict[str, Any]:
    name, _, place = text.partition("=")
    subject, _, version = place.rpartition(":")
    if not (name and subject and version.isascii() and version.isdigit()):
        raise click.BadParameter(f"{text!r}: write NAME=SUBJECT:VERSION", param_hint="--reference")
    return {"name": name, "subject": subject, "version": int(version)}
