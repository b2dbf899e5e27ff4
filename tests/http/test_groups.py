"""What one node takes of polls. What members do stands in `tests/process/test_http_groups.py`."""

import asyncio

import pytest
from aiohttp.test_utils import make_mocked_request

from eventlog.errors import InvalidArgument, Overloaded
from eventlog.http.calls import BodyBounds, Call
from eventlog.http.groups import GroupRoutes
from eventlog.http.local import InsideRoads, LocalCore
from eventlog.http.members import HttpMember, MemberWords
from eventlog.http.shared import SharedAnswers
from eventlog.wire.session import SessionOptions

MEMBER = HttpMember(
    group="g/ä", name="one", words=MemberWords(cache="c", cache_id=3, session_timeout_ms=5_000, where="value.n < ?", parameters=[7])
)


def test_a_path_stands_for_its_member():
    path = MEMBER.path
    assert path.startswith("/v1/groups/g%2F%C3%A4/members/one.")
    assert HttpMember.of_path("g/ä", path.rpartition("/")[2]) == MEMBER


def test_a_member_whose_condition_no_path_can_hold_is_refused():
    words = MemberWords(cache="c", cache_id=3, session_timeout_ms=5_000, where="value.n < 1 and " * 1_000)
    with pytest.raises(InvalidArgument, match="at most 8192"):
        _ = HttpMember(group="g", name="one", words=words).path


def test_one_poll_more_than_there_may_be_is_refused_before_anything_is_asked():
    def dispatch(exchange):
        raise AssertionError(exchange.kind)

    async def main() -> None:
        routes = GroupRoutes(LocalCore(InsideRoads(dispatch, SessionOptions()), SharedAnswers()), polls_max=0)
        call = Call(
            request=make_mocked_request("GET", "/"),
            names={"group": "g", "member": MEMBER.path.rpartition("/")[2]},
            parameters={"generation": "1"},
            bounds=BodyBounds(bytes_max=1, all_bytes_max=1, timeout_ms=1),
        )
        with pytest.raises(Overloaded):
            await routes.poll(call)
        assert routes.figures() == {"http_group_polls": (0, 0, 0)}

    asyncio.run(main())
