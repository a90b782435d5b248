"""The laboratory for CPU schedulers: simulations and sweeps in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from . import _engine

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Sweep", "events", "simulate"]


def simulate(
    workload: str,
    scheduler: str,
    *,
    machine: str = "laptop",
    cpus: int | None = None,
    seed: int = 1,
    rt: str = "kernel",
    kernel: str | None = None,
    time_limit: float | None = None,
    check: bool = False,
) -> dict[str, Any]:
    """Simulate one run and return its result, as `schedlab sim --json` writes it.

    Arguments are those of `schedlab sim`, and so are their defaults. Raises ValueError where a name or an option is
    wrong. A run that failed is no error: its `exit` says so. A run cannot be interrupted: Ctrl-C takes effect at its
    end.
    """
    options = _options(cpus, seed, rt, kernel, time_limit, check)
    return json.loads(_engine.simulate(workload, scheduler, machine, options))


def events(path: str | PathLike[str]) -> pyarrow.RecordBatchReader:
    """Read a file of events that `schedlab sim --events` or `schedlab run --events` wrote, piece by piece.

    A row is an event or a definition; docs/events.md describes the columns. Needs pyarrow. `events(path).read_all()` is
    the whole file as a table. Raises pyarrow.ArrowInvalid where the file was cut off.
    """
    import pyarrow
    from pyarrow import parquet

    file = parquet.ParquetFile(path, read_dictionary=["kind", "detail"])
    return pyarrow.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _options(
    cpus: int | None, seed: int, rt: str, kernel: str | None, time_limit: float | None, check: bool
) -> dict[str, Any]:
    """The inputs of a run besides its workload, scheduler and machine."""
    return {"cpus": cpus, "seed": seed, "rt": rt, "kernel": kernel, "time_limit": time_limit, "check": check}


class Sweep:
    """Every combination of a scheduler's options on some workloads: a list of jobs, numbered from 0.

    Arguments are those of `schedlab sweep`, and so are their defaults. Two sweeps of the same arguments are the same, wherever they are
    made, so a sweep can be pickled and its jobs run anywhere. With a `budget` of runs it is a search: which jobs are run is
    chosen as results come.
    """

    def __init__(
        self,
        workloads: Iterable[str],
        *,
        space: str = "feature",
        fix: Mapping[str, str] | None = None,
        sample: int | None = None,
        repeat: int = 1,
        machine: str = "laptop",
        cpus: int | None = None,
        seed: int = 1,
        rt: str = "kernel",
        kernel: str | None = None,
        time_limit: float | None = None,
        check: bool = False,
        each: bool = False,
        budget: int | None = None,
    ) -> None:
        if isinstance(workloads, str):
            raise ValueError(f"workloads must be a list: write [{workloads!r}]")
        self._definition = _engine.Definition(
            list(workloads), space, dict(fix or {}), sample, repeat, each, budget, machine,
            _options(cpus, seed, rt, kernel, time_limit, check),
        )  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Sweep:
        """The sweep of a folder's `sweep.json`."""
        sweep = cls.__new__(cls)
        sweep._definition = _engine.Definition.from_json(text)
        return sweep

    def to_json(self) -> str:
        """Returns the contents of a folder's `sweep.json`."""
        return self._definition.to_json()

    def __reduce__(self) -> tuple[Callable[[str], Sweep], tuple[str]]:
        return Sweep.from_json, (self.to_json(),)

    def __len__(self) -> int:
        """Number of jobs."""
        return len(self._definition)

    def scheduler(self, job: int) -> str:
        """The scheduler of a job, with its options."""
        return self._definition.scheduler(job)

    def rows(self, jobs: Iterable[int]) -> list[dict[str, Any]]:
        """Run jobs here and return their rows. Ctrl-C takes effect between two runs."""
        return json.loads(self._definition.rows(list(jobs)))

    def run(self, out: str | PathLike[str]) -> None:
        """Run here, one after another, what the folder `out` does not hold yet.

        Ctrl-C takes effect at the end of the run that is under way; what was done until then is kept. After a kill at
        most what was done in the last ten seconds is done again.
        """
        self._definition.run_into(out)

    def results(self, runs: Iterable[int]) -> str:
        """Make runs that `Folder.missing` named; the rows of their jobs as `Folder.keep` takes them.

        Ctrl-C takes effect between two runs, and costs all of this call.
        """
        return self._definition.run(list(runs))


class Folder:
    """A sweep's folder while results are put into it; nobody else can use it meanwhile."""

    def __init__(self, sweep: Sweep, path: str | PathLike[str]) -> None:
        self._folder = _engine.Folder(sweep._definition, path)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.close()

    def missing(self) -> list[int]:
        """The runs to be made next, for `Sweep.results`. A run gives the rows of all jobs whose schedulers are the same.

        Of a search these are the rest of a stage; the next stage is known when all of them are kept. None: it is over.
        """
        return self._folder.missing()

    def left(self) -> int:
        """Number of jobs whose rows are not there; of a search the runs that its stage still needs."""
        return self._folder.left()

    def keep(self, rows: str) -> None:
        """Put rows in, on the disk when this returns. Raises ValueError if they are not the sweep's."""
        self._folder.keep(rows)

    def finish(self) -> None:
        """Make one file of all parts. Raises ValueError if jobs are missing."""
        self._folder.finish()
