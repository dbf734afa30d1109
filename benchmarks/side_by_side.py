"""Timing of several functions in one run, interleaved, so that a noisy machine is noisy to all.

Every benchmark here uses this: a case is a function without arguments that returns when
its work is done, the figure is the median of its rounds, and a claim is a ratio of two
medians of the same run, never a time of its own.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """A line of the table: a figure of ours beside a peer's, and what was asked for.

    Attributes:
      what: the work.
      ours: median milliseconds, or megabytes, of ours.
      peer: of the peer.
      ratio: the number that `target` is about.
      target: such as ">= 10"; empty where nothing was asked.
    """

    what: str
    ours: float
    peer: float
    ratio: float
    target: str = ""

    @property
    def met(self) -> bool:
        sign, _, bound = self.target.partition(" ")
        return {">=": self.ratio >= float(bound), "<=": self.ratio <= float(bound)}[sign]


def medians(cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each case, all of them run in turn, `rounds` times."""
    for case in cases.values():
        case()
        case()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(spent) * 1e3 for name, spent in times.items()}


def show(title: str, rows: Sequence[Row]) -> None:
    """Prints the rows as a table; a ratio that misses its target is marked."""
    table = Table("work", "ours", "peer", "ratio", "asked for", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        mark = "" if not row.target else "" if row.met else "  [red]missed[/red]"
        table.add_row(
            row.what,
            f"{row.ours:.3g}",
            f"{row.peer:.3g}",
            f"{row.ratio:.2f}",
            row.target.replace(">=", "at least").replace("<=", "at most") + mark,
        )
    Console(width=110).print(table)


def arguments(description: str | None) -> argparse.Namespace:
    """`--rounds`, how often each case runs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each case, interleaved")
    return parser.parse_args()
