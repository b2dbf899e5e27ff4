from importlib.metadata import EntryPoint, EntryPoints

import pytest

from eventlog.errors import InvalidArgument, TaskNotFound
from eventlog.node.state import iterations as module
from eventlog.node.state.iterations import scope_of
from eventlog.node.state.tasks import make_task
from eventlog.query import iterate


@pytest.fixture
def lookups(monkeypatch):
    """Two packages that offer the same name, and the groups that were looked up."""
    asked = []

    def entry_points(*, group, **_):
        asked.append(group)
        return EntryPoints([EntryPoint("own", "json:loads", group), EntryPoint("own", "json:dumps", group)])

    monkeypatch.setattr(module, "entry_points", entry_points)
    module.installed.cache_clear()
    yield asked
    module.installed.cache_clear()


def test_names_that_nobody_has_installed_cost_no_look_at_the_packages(lookups):
    for name in ("a", "b", "c"):
        with pytest.raises(TaskNotFound, match="count, own, remove"):
            make_task(name, {})
        assert scope_of(name) is None
    assert lookups == ["eventlog.tasks", iterate.GROUP]


def test_of_two_with_one_name_the_first_is_called(lookups):
    with pytest.raises(InvalidArgument, match="the JSON object must be str, bytes or bytearray"):
        make_task("own", {})
    assert lookups == ["eventlog.tasks"]
