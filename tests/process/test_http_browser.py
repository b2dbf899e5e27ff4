"""A browser's own `EventSource` follows a cache through the death of the node that it reads from."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.process.nodes import NodeProcess
from tests.process.test_http_events import put
from tests.process.waiting import until

pytestmark = [pytest.mark.needs_program("chromium"), pytest.mark.timeout(180)]
READY_S = 60
PORT = "DevToolsActivePort"
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)
FOLLOW = """
window.told = [];
window.source = new EventSource("/v1/caches/told/events?after=earliest");
source.onmessage = event => told.push([event.lastEventId, JSON.parse(event.data).value]);
"""


@contextmanager
def browser(folder: Path) -> Iterator[str]:
    """Yield where a browser with a page of its own is controlled."""
    words = ["chromium", *QUIET, f"--user-data-dir={folder}", "about:blank"]
    with (folder.parent / "browser.log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as running:
        try:
            until((folder / PORT).exists, within_s=READY_S)
            yield f"127.0.0.1:{(folder / PORT).read_text().splitlines()[0]}"
        finally:
            running.terminate()


class Page:
    """The browser's page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)

    async def ask(self, method: str, **params: object) -> Any:
        """Return what the browser answers."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async for message in self._socket:
            answer = json.loads(message.data)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError("the browser has ended")

    async def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript is on the page."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str, holds: Callable[[Any], bool]) -> Any:
        """Return what an expression is once it is as it has to be."""
        async with asyncio.timeout(READY_S):
            while not holds(found := await self.value(expression)):  # noqa: ASYNC110 -- only asking tells what is on a page
                await asyncio.sleep(0.05)
        return found


@asynccontextmanager
async def page_of(control: str) -> AsyncIterator[Page]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{control}/json/list") as answer:
            (found,) = [one for one in await answer.json() if one["type"] == "page"]
        async with session.ws_connect(found["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            yield Page(socket)


def test_a_browser_follows_through_the_death_of_the_node(tmp_path: Path) -> None:
    async def act(node: NodeProcess, control: str) -> None:
        async with page_of(control) as page:

            async def told(events: int) -> list[tuple[str, int]]:
                return [(id_, value) for id_, value in await page.until("told", lambda found: len(found) >= events)]

            wanted = [(put(node, f"k{number}", number, "told"), number) for number in range(5)]
            await page.ask("Page.navigate", url=f"http://{node.http}/health/live")
            await page.until("location.host", lambda found: found == node.http)
            await page.value(FOLLOW)
            assert await told(5) == wanted
            for round_ in range(1, 3):
                node.kill()
                node.start()
                wanted += [(put(node, f"l{number}", 5 * round_ + number, "told"), 5 * round_ + number) for number in range(5)]
                assert await told(len(wanted)) == wanted, "nothing lost, nothing twice"

    (tmp_path / "browser").mkdir()
    with NodeProcess(tmp_path / "node") as node, browser(tmp_path / "browser") as control:
        node.command("cache", "create", "told")
        asyncio.run(act(node, control))
