"""The Prometheus text format: gauges and counters of a node, every bounded thing as used, limit and peak. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Something with a limit: what of it is used now, and the most that ever was. `limit` 0: no limit."""

    name: str
    used: int
    limit: int
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure. `kind` is gauge or counter; `labels` are the label set without braces."""

    name: str
    help: str
    kind: str
    value: float
    labels: str = ""


def render(metrics: Iterable[Metric], bounded: Iterable[Bounded]) -> str:
    """Return one page in text format 0.0.4; metrics of one name stand together."""
    rows = list(metrics)
    for thing in bounded:
        label = f'thing="{thing.name}"'
        rows.append(Metric(name="eventlog_used", help="What is used of a bounded thing.", kind="gauge", value=thing.used, labels=label))
        limit_help = "The limit of a bounded thing, 0 for none."
        rows.append(Metric(name="eventlog_limit", help=limit_help, kind="gauge", value=thing.limit, labels=label))
        rows.append(Metric(name="eventlog_peak", help="The most that was used since start.", kind="gauge", value=thing.peak, labels=label))
    by_name: dict[str, list[Metric]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    lines = []
    for name, own in by_name.items():
        lines += [f"# HELP {name} {own[0].help}", f"# TYPE {name} {own[0].kind}"]
        lines += [f"{name}{{{row.labels}}} {row.value:g}" if row.labels else f"{name} {row.value:.17g}" for row in own]
    return "\n".join(lines) + "\n"
