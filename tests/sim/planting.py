"""Planted bugs: what one is, and how it is put in place of a method for a while.

The product has no hook for this. A bug is told by a name, the method that it replaces, what makes the replacement out of the original,
and a seed that finds it. Where two rules guard against the same damage, one takes both away: with either of them left, nothing goes wrong.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import getattr_static
from typing import Any

from tests.sim.kinds import Kind

Make = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`target` is `module:Class.method` or `module:function`; `make` gets the original and returns what stands in its place.

    `also` are further targets that are replaced along with it. `world`: the runs that are to find it, of them those for whose seeds `among`
    holds: they have what the bug needs.
    """

    name: str
    target: str
    make: Make
    seed: int
    also: tuple[tuple[str, Make], ...] = ()
    world: Kind = "clusters"
    among: Callable[[int], bool] | None = None


def instead(replacement: Callable[..., Any]) -> Make:
    """Return what puts a replacement in place of any original."""
    return lambda _original: replacement


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Have the methods of a mutant replaced for a while.

    Raises:
        LookupError: one of them is not there any more.
    """
    with ExitStack() as stack:
        for target, make in ((mutant.target, mutant.make), *mutant.also):
            stack.enter_context(_replaced(mutant.name, target, make))
        yield


@contextmanager
def _replaced(name: str, target: str, make: Make) -> Iterator[None]:
    module_name, _, path = target.partition(":")
    class_name, _, method = path.rpartition(".")
    module = import_module(module_name)
    holder: Any = getattr(module, class_name, None) if class_name else module
    if holder is None or method not in vars(holder):
        raise LookupError(f"mutant {name}: there is no {target} to replace")
    original = getattr_static(holder, method)
    replaced: Any = make(original.__func__ if isinstance(original, staticmethod) else original)
    setattr(holder, method, staticmethod(replaced) if isinstance(original, staticmethod) else replaced)
    try:
        yield
    finally:
        setattr(holder, method, original)
