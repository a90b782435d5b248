"""Runs and sweeps from Python are those of the program, byte for byte, on a cluster too."""

import json
import os
import pickle
import signal
import subprocess
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import schedlab
from schedlab import Folder, Sweep
from schedlab.dask import run as run_on

# Three applications of five points of the tree: enough that a worker can die in between.
WORKLOADS = ["cpu:duration=50ms", "chat:rooms=1,messages=20", "pipe:loops=500"]
ASKED = {"sample": 15, "machine": "laptop", "cpus": 4, "seed": 3}


def program(*arguments: str) -> str:
    """The program, which the caller of these tests has built."""
    return subprocess.run(
        [os.environ["SCHEDLAB"], *arguments], check=True, capture_output=True, text=True
    ).stdout


def files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a sweep's folder, without locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".lock")}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that the program writes."""
    out = tmp_path_factory.mktemp("program") / "out"
    program(
        "sweep", *WORKLOADS, "--space", "feature", "--sample", "15", "-m", "laptop", "-c", "4",
        "--seed", "3", "--out", str(out),
    )  # fmt: skip
    found = files(out)
    assert len(found) == 2 and "sweep.json" in found, found.keys()
    return found


def test_a_run_is_the_programs() -> None:
    theirs = json.loads(
        program("sim", "chat:rooms=1", "-s", "dss", "-m", "netfinity-8500r", "-c", "2", "--seed", "7", "--json", "-", "--series")
    )
    ours = schedlab.simulate("chat:rooms=1", "dss", machine="netfinity-8500r", cpus=2, seed=7)
    assert ours == theirs["results"][0]
    assert ours["measures"]["score"] > 0


def test_what_is_wrong_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="unknown scheduler `nobody`"):
        schedlab.simulate("cpu", "nobody")
    with pytest.raises(ValueError, match="has no option `nothing`"):
        Sweep(["cpu"], fix={"nothing": "x"})
    with pytest.raises(ValueError, match="must be a list"):
        Sweep("cpu")
    with pytest.raises(ValueError, match="needs a workload"):
        Sweep([])
    with pytest.raises(ValueError, match="kernel `5.0` is not simulated"):
        schedlab.simulate("cpu", "fifo", kernel="5.0")
    with pytest.raises(ValueError, match="write kernel or policy"):
        Sweep(["cpu"], rt="nobody")
    with pytest.raises(ValueError, match="at most 1000000"):
        Sweep(["cpu"], time_limit=0)
    with pytest.raises(IndexError, match="there is no job 1"):
        Sweep(["cpu:duration=1ms"], sample=1).rows([1])


def test_a_sweep_can_be_sent_elsewhere() -> None:
    sweep = Sweep(WORKLOADS, **ASKED)
    assert len(sweep) == 45
    other = pickle.loads(pickle.dumps(sweep))
    assert other.to_json() == sweep.to_json()
    assert other.rows([4, 2]) == sweep.rows([4, 2])
    assert [row["job"] for row in sweep.rows([4, 2])] == [4, 2]


def test_arguments_are_those_of_the_program(tmp_path: Path) -> None:
    program(
        "sweep", "cpu:duration=5ms", "--space", "feature", "--sample", "2", "--rt", "policy", "--kernel", "6.18",
        "--time-limit", "7", "--check", "--out", str(tmp_path),
    )  # fmt: skip
    sweep = Sweep(["cpu:duration=5ms"], sample=2, rt="policy", kernel="6.18", time_limit=7, check=True)
    assert sweep.to_json() == (tmp_path / "sweep.json").read_text()
    replay = schedlab.simulate("cpu:duration=1ms", "fifo", rt="policy", kernel="6.18", time_limit=7, check=True)["replay"]
    assert replay.endswith("--rt policy --kernel 6.18 --time-limit 7s --check")


def test_an_interrupt_keeps_what_was_done(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep = Sweep([*WORKLOADS, "cpu:duration=100s"], **ASKED)
    # The folder is begun before the first run, so that this process is interrupted in the middle of one.
    interrupt = f"until [ -e '{out}/sweep.json' ]; do sleep 0.01; done; sleep 0.3; kill -INT {os.getpid()}"
    # Where this test is started in the background, Python finds the signal ignored, and leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(["sh", "-c", interrupt]):
        with pytest.raises(KeyboardInterrupt):
            sweep.run(out)
    signal.signal(signal.SIGINT, before)
    with Folder(sweep, out) as folder:
        assert 0 < folder.left() < len(sweep)
    sweep.run(out)
    assert len(files(out)) == 2


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ["file", "file/below"]:
        with pytest.raises(OSError, match="cannot keep results"):
            Sweep(["cpu:duration=1ms"], sample=1).run(tmp_path / path)


def test_rows_that_are_not_the_sweeps_are_refused(tmp_path: Path) -> None:
    sweep = Sweep(["cpu:duration=1ms"], sample=1)
    with Folder(sweep, tmp_path) as folder:
        rows = json.loads(sweep.results(folder.missing()))
        wrong = [{**rows[0], "choices": rows[0]["choices"][1:]}]
        with pytest.raises(ValueError, match="8 choices of 9"):
            folder.keep(json.dumps(wrong))
        with pytest.raises(ValueError, match="^1 job is not done$"):
            folder.finish()
        folder.keep(json.dumps(rows))
        folder.finish()


def test_a_worker_of_another_build_or_file_refuses(tmp_path: Path) -> None:
    task_set = tmp_path / "tasks.json"
    task_set.write_text('{"tasks": {"a": {"loop": 3, "run": 1000}}}')
    document = Sweep([str(task_set)], sample=1).to_json()
    task_set.write_text('{"tasks": {"a": {"loop": 4, "run": 1000}}}')
    with pytest.raises(ValueError, match="tasks.json, or what it includes, is not what"):
        Sweep.from_json(document).results([0])
    build = json.loads(document)["build"]
    with pytest.raises(ValueError, match="another build"):
        Sweep.from_json(document.replace(build, "crc32 x")).results([0])


def test_here_it_is_the_programs(tmp_path: Path, wanted: dict[str, bytes]) -> None:
    out = tmp_path / "out"
    sweep = Sweep(WORKLOADS, **ASKED)
    # As if a call had been killed after a few.
    with Folder(sweep, out) as folder:
        folder.keep(sweep.results([7, 3]))
        left = folder.left()
        assert left <= 43
        with pytest.raises(ValueError, match=f"{left} jobs are not done"):
            folder.finish()
    sweep.run(out)
    assert files(out) == wanted


def test_a_folder_belongs_to_one(tmp_path: Path) -> None:
    sweep = Sweep(WORKLOADS, **ASKED)
    with Folder(sweep, tmp_path):
        with pytest.raises(ValueError):
            Folder(sweep, tmp_path)
    with pytest.raises(ValueError, match="another sweep"):
        Folder(Sweep(WORKLOADS, **{**ASKED, "seed": 4}), tmp_path)


def test_on_a_cluster_it_is_the_programs_though_a_worker_is_killed(
    tmp_path: Path, wanted: dict[str, bytes]
) -> None:
    out = tmp_path / "out"
    sweep = Sweep(WORKLOADS, **ASKED)
    told: list[tuple[int, int]] = []
    killed: list[int] = []
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster, Client(cluster) as client:  # fmt: skip
        workers = list(client.run(os.getpid).values())
        assert len(set(workers)) == 2 and os.getpid() not in workers

        def progress(done: int, jobs: int) -> None:
            told.append((done, jobs))
            if not killed:
                os.kill(workers[0], signal.SIGKILL)
                killed.append(done)

        run_on(client, sweep, out, chunk=1, progress=progress)
    assert killed[0] < 45, "the worker was killed before the end"
    assert told == sorted(set(told)) and told[-1] == (45, 45)
    assert files(out) == wanted


def test_a_search_is_the_programs_here_and_on_a_cluster(tmp_path: Path) -> None:
    program(
        "sweep", "cpu:duration=20ms", "--space", "feature", "--budget", "40", "--repeat", "3", "-c", "2",
        "--out", str(tmp_path / "program"),
    )  # fmt: skip
    sweep = Sweep(["cpu:duration=20ms"], budget=40, repeat=3, cpus=2)
    sweep.run(tmp_path / "here")
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster, Client(cluster) as client:  # fmt: skip
        run_on(client, sweep, tmp_path / "cluster", chunk=3)
    wanted = files(tmp_path / "program")
    assert len(wanted) == 2
    assert files(tmp_path / "here") == wanted
    assert files(tmp_path / "cluster") == wanted
    with pytest.raises(ValueError, match="at least 16 runs"):
        Sweep(["cpu"], budget=3)


def test_events_are_a_table_of_arrow(tmp_path: Path) -> None:
    path = tmp_path / "pipe.events"
    result = json.loads(
        program("sim", "pipe:loops=100", "-s", "fifo", "-c", "2", "--events", str(path), "--json", "-")
    )["results"][0]
    table = schedlab.events(path).read_all()
    switches = [row for row in table.to_pylist() if row["kind"] == "switch"]
    # Task 0 is the one that only starts the others.
    starter = {row["task"] for row in table.to_pylist() if row["kind"] == "define_starter"}
    starts = [row for row in switches if row["other"] is not None and row["other"] not in starter]
    assert len(starts) == result["measures"]["switches.total"]
    assert table.column("at_ns").to_pylist()[-1] > 0
