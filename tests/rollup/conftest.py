"""The node and the client that tests of archives have, too."""

from tests.archive.conftest import SEGMENTS, client, node

__all__ = ["SEGMENTS", "client", "node"]
