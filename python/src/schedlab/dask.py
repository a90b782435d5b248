"""Sweeps on a Dask cluster, of any kind that `dask.distributed` has a client for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING

from distributed import as_completed

from . import Folder, Sweep

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["run"]


def run(
    client: Client,
    sweep: Sweep,
    out: str | PathLike[str],
    *,
    chunk: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run what the folder `out` does not hold yet on the workers of `client`, `chunk` runs to a task.

    The folder is written here; the workers need schedlab, but no common file system. A task whose worker dies
    runs on another one; a call that was killed goes on where it was. `progress` gets (done, all) after each
    task. An error in a job, which can only be one of the sweep itself, is raised here.
    """
    if chunk < 1:
        raise ValueError("chunk must be at least 1")
    definition = sweep.to_json()
    with Folder(sweep, out) as folder:
        # Of a search one stage after another, of any other sweep all at once.
        while missing := folder.missing():
            _make(client, definition, folder, missing, chunk, progress)
        folder.finish()


def _make(
    client: Client,
    definition: str,
    folder: Folder,
    missing: list[int],
    chunk: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Make these runs on the workers and keep their rows."""
    chunks = iter([missing[i : i + chunk] for i in range(0, len(missing), chunk)])
    jobs = len(Sweep.from_json(definition))

    def submit(count: int) -> list[Future]:
        # Not pure: the scheduler would keep results to answer the same call again.
        return [
            client.submit(_rows, definition, part, pure=False, retries=3)
            for part in islice(chunks, count)
        ]

    # Enough that no worker waits, and no more than fits into the scheduler.
    workers = max(1, sum(client.nthreads().values()))
    running = as_completed(submit(4 * workers), with_results=True)
    for future, rows in running:
        folder.keep(rows)
        future.release()
        for more in submit(1):
            running.add(more)
        if progress is not None:
            progress(jobs - folder.left(), jobs)


def _rows(definition: str, runs: list[int]) -> str:
    """Runs a chunk of jobs on a worker."""
    return Sweep.from_json(definition).results(runs)
