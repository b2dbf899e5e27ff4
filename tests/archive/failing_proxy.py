"""Passes requests on to a store and answers each third with an error of a store's own: `python -m tests.archive.failing_proxy HOST:PORT`.

It prints its port, and `failed` for each. A process of its own: who asks it may hold Python's lock meanwhile.
"""

import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

NOT_PASSED_ON = {"connection", "content-length", "transfer-encoding"}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    numbers = count(1)

    def pass_on(self) -> None:
        """Answer as the store does, or fail."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if next(self.numbers) % 3 == 0:
            print("failed", flush=True)
            self.say(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        connection = HTTPConnection(sys.argv[1], timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        self.say(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()

    def say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in NOT_PASSED_ON:
                self.send_header(name, value)
        size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815 -- as http.server looks for them

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        print(proxy.server_port, flush=True)
        proxy.serve_forever()
