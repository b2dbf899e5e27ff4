import inspect

import pytest

from eventlog.segment.memory import MemoryStore
from eventlog.segment.port import Store
from eventlog.segment.rocks.store import RocksStore


@pytest.mark.parametrize("adapter", [RocksStore, MemoryStore])
def test_adapters_have_the_methods_of_the_port_with_its_parameters(adapter):
    for name, method in inspect.getmembers(Store, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert inspect.signature(getattr(adapter, name)) == inspect.signature(method), name
