import pytest

from eventlog.client.reading.iterating import deal

MANY = 1 << 62  # more than there are moments to look at each


@pytest.mark.parametrize(
    ("owners", "parallel", "groups"),
    [
        ([[0, 1, 2], [3]], 1, [[0, 1, 2, 3]]),
        ([[0, 1, 2], [3]], 2, [[0, 1, 2], [3]]),
        ([[0, 1, 2], [3]], 3, [[0, 2], [1], [3]]),
        ([[0, 1, 2], [3]], MANY, [[0], [1], [2], [3]]),
        ([], MANY, [[]]),
    ],
)
def test_segments_are_dealt_to_as_many_streams_as_there_can_be(owners, parallel, groups):
    assert deal(owners, parallel) == groups
