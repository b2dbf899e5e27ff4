"""Seeds that failed once, on code that was not meant to: run with every run, for ever."""

from typing import Final

FAILED_ONCE: Final = (
    1,
    55,
    277,
    475,
    691,
    712,
    1023,
    1069,
    1146,
    1247,
    1328,
    1346,
    1363,
    1403,
    1442,
    1468,
    843,
    200055,
    200026,
    100422,
    100038,
    701421,
    703122,
    704312,
    704952,
    716523,
    717151,
    725962,
    742812,
    1000209,
    1000915,
    1002878,
)
"""A change of the simulator gives a seed another run; then it is an ordinary one, which does no harm."""

CONSUMERS_FAILED_ONCE: Final = (725186, 1_030_073)
"""The same for the simulator of consumers, which runs every kind on each."""
