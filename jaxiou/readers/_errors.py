"""The error of all readers."""

from pathlib import Path


class FileError(ValueError):
    """A file or folder that cannot be used; its text names the file and gives the reason.

    Attributes:
      path: the file or folder.
      reason: what is wrong with it.
    """

    def __init__(self, path: str | Path, reason: str):
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason
