"""A progress bar on standard error for work that takes over a second, on a terminal only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int, str], None]
"""Called with what is done, of how much, and what comes next."""

DELAY_S = 1.0


@contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """Give a callback that moves the bar, or None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)
    timer = threading.Timer(DELAY_S, bar.start)
    timer.daemon = True
    timer.start()

    def update(done: int, total: int, what: str) -> None:
        bar.update(task, completed=done, total=total, description=f"{title} {escape(what)}")

    try:
        yield update
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
