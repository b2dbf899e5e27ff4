"""Node processes whose files were damaged while they were down: a few of the trials that `python -m tests.process.damage` makes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.process.damage import SCENES, Scene, scratch

pytestmark = pytest.mark.timeout(300)
CORRUPT, LOST, REFILLED, WHOLE = "refused CORRUPT_DATA", "refused LOST_DISK", "refilled", "whole"
TRIALS = [
    ("one-kill", "journal", "without its last 100 bytes", LOST),
    ("one-kill", "journal", "lengthened", CORRUPT),
    ("one-kill", "MANIFEST", "of the generation before", LOST),
    ("one-kill", "CURRENT", "of the generation before", LOST),
    ("one-kill", "log table", "removed", CORRUPT),
    ("one-kill", "state table", "halved", CORRUPT),
    ("one-kill", "ends", "removed", LOST),
    ("one-kill", "ends", "of the generation before", WHOLE),
    ("one-kill", "settled", "emptied", WHOLE),
    ("one-stop", "MANIFEST", "without its last 100 bytes", LOST),
    ("one-stop", "log table", "halved", CORRUPT),
    ("one-stop", "journal", "removed", WHOLE),
    ("three-kill", "journal", "halved", REFILLED),
    ("three-kill", "MANIFEST", "without its last 100 bytes", REFILLED),
    ("three-stop", "log table", "flipped near its end", REFILLED),
    ("three-stop", "ends", "removed", REFILLED),
]


@pytest.fixture(scope="module")
def scene_of() -> Iterator[Callable[[str], Scene]]:
    """Give a scene by its name; making one takes long, so the last is kept until another is asked for."""
    with ExitStack() as opened:
        made: dict[str, Scene] = {}

        def give(name: str) -> Scene:
            if name not in made:
                opened.close()
                made.clear()
                count, end = SCENES[name]
                made[name] = opened.enter_context(Scene(opened.enter_context(scratch()), count=count, end=end))
            return made[name]

        yield give


@pytest.mark.parametrize(("name", "kind", "act", "outcome"), TRIALS, ids=lambda part: part.replace(" ", "-"))
def test_damage_is_named_or_mended_and_nothing_is_left_out(
    scene_of: Callable[[str], Scene], name: str, kind: str, act: str, outcome: str
) -> None:
    scene = scene_of(name)
    assert scene.trial(scene.largest(kind), act) == outcome


def test_every_kind_of_file_is_there_to_be_damaged(scene_of: Callable[[str], Scene]) -> None:
    kinds = {"log table", "state table", "meta table", "journal", "MANIFEST", "CURRENT", "OPTIONS", "IDENTITY", "rocksdict-config.json"}
    kinds |= {"ends", "settled", "identity", "clean", "member.json", "records.json"}
    files = scene_of("three-stop").files
    assert {kind for kind in kinds if not any(file.startswith(kind) for file in files)} == set()
