"""What the commands share: a console, a progress bar, files to write."""

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from jaxiou.readers import FileError

Item = TypeVar("Item")


def add_outputs(command: argparse.ArgumentParser, json_help: str, plot_help: str) -> None:
    command.add_argument("--json", type=Path, metavar="FILE", help=json_help)
    command.add_argument("--plot", type=Path, metavar="FILE", help=plot_help)


def check_outputs(options: argparse.Namespace) -> None:
    """Raises FileError before the work is done, not after."""
    outputs = [path for path in (options.json, options.plot) if path]
    inputs = [
        x
        for name, x in vars(options).items()
        if isinstance(x, Path) and name not in ("json", "plot")
    ]
    for path in outputs:
        if not os.path.isdir(path.parent):
            raise FileError(path, "cannot be written: its folder does not exist")
        if os.path.isdir(path):
            raise FileError(path, "cannot be written: it is a folder")
        try:
            path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:  # a name that is too long, for one
            raise FileError(path, f"cannot be written: {error.strerror}") from error
        if any(os.path.exists(x) and path.samefile(x) for x in inputs):
            raise FileError(path, "cannot be written: it is read")
    if options.plot:
        known = figure().canvas.get_supported_filetypes()
        if _kind(options.plot) not in known:
            raise FileError(options.plot, f"must end in one of {', '.join(sorted(known))}")


def write_json(path: Path, report: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from error


def number(x: Any) -> float | None:
    """For JSON, which has no NaN."""
    return None if math.isnan(x) else float(x)


def percent(x: Any) -> str:
    return "-" if x is None or math.isnan(x) else f"{100 * x:.2f}"


def printable(text: Any) -> str:
    """As standard output can encode it: what it cannot becomes an escape such as `\\xe9`."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return str(text).encode(encoding, "backslashreplace").decode(encoding)


def console() -> Any:
    """Where tables go: standard output, in lines as long as the widest table needs."""
    return _rich().Console(width=400)


def progress(items: Sequence[Item], what: str) -> Any:
    """The items, one after the other, with a bar on standard error that goes away in the end."""
    aside = _rich().Console(stderr=True)
    from rich.progress import track

    return track(items, what, console=aside, transient=True)


def _rich() -> Any:
    try:
        import rich.console
    except ImportError as error:
        raise ImportError("the command needs rich: pip install 'jaxiou[cli]'") from error
    return rich.console


def figure(**options: Any) -> Any:
    """An empty picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'jaxiou[plot]'") from error
    return Figure(layout="constrained", **options)


def save(picture: Any, path: Path) -> None:
    try:
        with warnings.catch_warnings():
            # A letter that the font lacks is a box in the picture, and no news.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            picture.savefig(path, dpi=150, format=_kind(path))
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be written: {error}") from error


def _kind(path: Path) -> str:
    """Of a picture, by the end of its name."""
    return path.suffix[1:].lower()
