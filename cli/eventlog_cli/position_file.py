"""A file that remembers where a consumer is: one line with a position token, replaced as a whole."""

import os
from pathlib import Path

from eventlog.client.reading.wanted import start_of
from eventlog.errors import InvalidArgument


class PositionFile:
    """The file at `path`. Its directory must exist; the file need not."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._draft = self._path.with_name(self._path.name + ".new")

    def read(self) -> str | None:
        """Return the token, None if there is no file yet.

        Raises:
            InvalidArgument: the file holds anything but a position, or could not be replaced: found out before anything is printed.
            OSError: it cannot be read.
        """
        if not os.access(self._path.parent, os.W_OK | os.X_OK):
            raise InvalidArgument(why=f"{self._path} cannot be written: {self._path.parent} is no directory that can be written to")
        try:
            words = self._path.read_bytes().split()
        except FileNotFoundError:
            return None
        try:
            (word,) = (word.decode("ascii") for word in words)
            start_of(from_id=word, from_time=None, position=None)
        except (ValueError, InvalidArgument) as error:  # not one word, not ASCII, or no position
            raise InvalidArgument(why=f"{self._path} holds no position; remove it to begin anew") from error
        return word

    def write(self, token: str) -> None:
        """Replace the file: whoever reads it, also after a crash of this process, finds the old token or the new one."""
        with self._draft.open("w") as draft:
            draft.write(token + "\n")
            draft.flush()
            os.fsync(draft.fileno())
        self._draft.replace(self._path)
