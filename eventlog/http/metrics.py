"""The Prometheus text format, version 0.0.4. Pure."""

from collections.abc import Iterable

Counter = tuple[str, str, str, float, str]  # name, help, kind, value, labels
Bounded = tuple[str, int, int, int | None]  # name, used, limit (0: none), peak (None: nobody keeps it)

_BOUNDED_HELP = {
    "eventlog_used": "What is used of a bounded thing.",
    "eventlog_limit": "The limit of a bounded thing, 0 for none.",
    "eventlog_peak": "The most of a bounded thing that was used since start.",
}


def render(counters: Iterable[Counter], bounded: Iterable[Bounded]) -> str:
    """Return the page; the samples of one name stand together, as the format asks for."""
    families: dict[str, list[str]] = {}
    for name, help_text, kind, value, labels in counters:
        _sample(families, (name, help_text, kind), labels=labels, value=value)
    things = list(bounded)
    for index, (name, help_text) in enumerate(_BOUNDED_HELP.items()):
        for thing, *figures in things:
            if (figure := figures[index]) is not None:
                _sample(families, (name, help_text, "gauge"), labels=f'thing="{thing}"', value=float(figure))
    return "\n".join(line for lines in families.values() for line in lines) + "\n"


def _sample(families: dict[str, list[str]], family: tuple[str, str, str], *, labels: str, value: float) -> None:
    name, help_text, kind = family
    lines = families.setdefault(name, [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"])
    lines.append(f"{name}{{{labels}}} {value:.17g}" if labels else f"{name} {value:.17g}")
