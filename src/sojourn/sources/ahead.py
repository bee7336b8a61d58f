"""Reading ahead in a background thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
R = TypeVar("R")

DEPTH = 8
_PATIENCE = 0.05  # seconds between checks whether the items are still wanted


class _End(NamedTuple):
    error: BaseException | None


def read_ahead(items: Iterator[T], depth: int = DEPTH) -> Generator[T, None, None]:
    """Yield the same items, made in a background thread that is at most `depth` items ahead.

    Exceptions in the thread are raised here.  The thread ends with this generator, even if the
    generator is closed early.

    Examples
    --------
    >>> list(read_ahead(iter([1, 2, 3])))
    [1, 2, 3]
    """
    waiting: Queue[Any] = Queue(depth)
    unwanted = Event()
    thread = Thread(target=_work, args=(items, waiting, unwanted), name="read ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        unwanted.set()
        _empty(waiting)
        thread.join()


def map_ahead(function: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Yield the results for all items in their order, computed in threads that run a little ahead.

    Examples
    --------
    >>> list(map_ahead(abs, [-1, 2, -3], 2))
    [1, 2, 3]
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _work(items: Iterator[Any], waiting: Queue[Any], unwanted: Event) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if not _put(waiting, item, unwanted):
                break
    except BaseException as raised:
        error = raised
    finally:
        if isinstance(items, Generator):
            items.close()  # files are closed in the thread that opened them
    _put(waiting, _End(error), unwanted)


def _put(waiting: Queue[Any], item: Any, unwanted: Event) -> bool:
    while not unwanted.is_set():
        try:
            waiting.put(item, timeout=_PATIENCE)
            return True
        except Full:
            continue
    return False


def _empty(waiting: Queue[Any]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except Empty:
        return
