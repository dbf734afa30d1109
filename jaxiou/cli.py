"""The command `jaxiou`: scores of files, as a table, JSON and a picture.

    jaxiou coco TARGETS.json RESULTS.json --per-class
    jaxiou lvis, voc, open-images, kitti: likewise
    jaxiou segmentation TARGETS PREDICTIONS --classes 19 --ignore 255
    jaxiou mot TARGETS PREDICTIONS --benchmark MOT17

The ground truth comes first, as in the tools that this replaces. A file that is missing,
unreadable or of another size ends the command with exit code 2 and a line that says which
file it is and why. Scores are computed in float64 from exact counts.
"""

import argparse
import sys
from collections.abc import Sequence

from jaxiou._commands import detection, kitti, mot, segmentation
from jaxiou.readers import FileError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: those of the command line; None takes them from `sys.argv`.

    Returns:
      The exit code: 0, or 2 if a file or an argument is bad.

    Example:
      >>> main(["segmentation", "no_folder", "no_folder", "--classes", "2"])
      2
    """
    parser = argparse.ArgumentParser(prog="jaxiou", description="Scores of files.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (detection, kitti, segmentation, mot):
        command.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
        return 0
    except (FileError, ImportError, ValueError) as error:
        message = str(error)
    # Only now is the progress bar gone, which the error kept alive.
    print(f"jaxiou: {message}", file=sys.stderr)
    return 2
