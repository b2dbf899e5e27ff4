"""The program that the lane of types checks does what its types say."""

import asyncio

import pytest

from tests import user_program
from tests.process.nodes import NodeProcess


@pytest.mark.smoke
def test_what_type_checkers_were_told_is_so(node: NodeProcess) -> None:
    asyncio.run(user_program.use(node.address))
    user_program.use_blocking(node.address)
