"""A node for the tests of a module, and its client."""

from tests.process.module_node import client, node

__all__ = ["client", "node"]
