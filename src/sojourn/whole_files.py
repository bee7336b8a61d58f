"""Files and folders that are written whole or not at all.

They are written under a temporary name, ``.NAME.xxxx.part`` in the same folder, and get their own
name when they are complete.  A writer holds a lock on what it writes, so that leftovers of a writer
that was killed can be told from the work of one that is alive, and are removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked, and no leftovers are removed
    fcntl = None  # type: ignore[assignment]


def locked(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; return whether nobody else holds the lock.

    True too where the file system has no locks.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def part_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which takes its place if the block ends without error.

    An existing file keeps its mode; a new one has that of any new file.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with part_file(Path(folder) / "a.txt") as part:
    ...         _ = part.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text()
    'whole'
    """
    with naming(path):
        remove_leftovers(path)
        descriptor, part = _new_part(path, folder=False)
    try:
        yield part
        with naming(path):
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.chmod(part, _mode_of(path, 0o666))
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def part_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, which replaces it if the block ends without error.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as here:
    ...     with part_folder(Path(here) / "results") as folder:
    ...         _ = (folder / "part").write_text("a")
    ...     [path.name for path in (Path(here) / "results").iterdir()]
    ['part']
    """
    with naming(path):
        remove_leftovers(path)
        descriptor, part = _new_part(path, folder=True)
    try:
        os.chmod(part, _mode_of(path, 0o777))
        yield part
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once."""
    with part_file(path) as part, naming(path):
        part.write_bytes(content)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add to an error of the system which file was being written: it knows the temporary name."""
    try:
        yield
    except OSError as error:
        # Under no name but the user's, and without the number in the text.
        named = type(error)(f"{path} cannot be written: {error.strerror or error}")
        named.errno = error.errno
        raise named from error


def remove_leftovers(path: Path) -> None:
    """Remove what writers of `path` left that were killed; those that are alive hold a lock."""
    prefix = f".{path.name}."
    for name in os.listdir(path.parent):
        if name.startswith(prefix) and name.endswith(".part"):
            remove_unlocked(path.parent / name)


def check_target(path: Path, overwrite: bool, inputs: Iterable[Path] = ()) -> None:
    """Raise an error if a file exists, if its folder does not, or if it is one of the inputs."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    if not path.exists():
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"{path} cannot be written: no permission in its folder")
        return
    for source in inputs:
        if source.exists() and source.samefile(path):
            raise ValueError(f"{path} is the input file: choose another name")
        if path.is_dir() and path.resolve() in source.resolve().parents:
            raise ValueError(f"{path} contains the input {source}: choose another name")
    if not overwrite:
        raise FileExistsError(f"{path} exists already")


def _new_part(path: Path, *, folder: bool) -> tuple[int, Path]:
    """Make a temporary file or folder, and lock it."""
    while True:
        names = (".part", f".{path.name}.", path.parent)
        if folder:
            part = Path(tempfile.mkdtemp(*names))
            descriptor = os.open(part, os.O_RDONLY)
        else:
            descriptor, name = tempfile.mkstemp(*names)
            part = Path(name)
        if locked(descriptor) and part.exists():
            return descriptor, part
        os.close(descriptor)  # another writer took it for a leftover before it was locked


def remove_unlocked(part: Path) -> None:
    """Remove a temporary file or folder unless its writer is alive."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):  # it was removed or renamed in the meantime
        descriptor = os.open(part, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink()
        finally:
            os.close(descriptor)


def _mode_of(path: Path, usual: int) -> int:
    """Return the mode of an existing file, or what any new file has."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)  # it can only be read by setting it
        os.umask(mask)
        return usual & ~mask
