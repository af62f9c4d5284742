"""Ranks that share the classes, as processes: gloo on the host device, NCCL on GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ce import _files

ALL = (
    "results",
    "refusals",
    "dtensor",
    "integrations",
    "compiled",
    "exchange",
    "decided",
    "frozen",
    "compared",
    "ended",
)
SCRIPT = Path(__file__).with_name("vocab_parallel_rank.py")
TIMEOUT_S = 10  # of torch.distributed, in check_death()
MARGIN_S = 80  # torch's watchdog of NCCL looks now and then, writes down what it saw, and ends the process


def environment_of(kind, ranks, folder):
    if kind == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip("torch sees too few GPUs")
    environment = {**os.environ, "PYTHONPATH": str(Path(_files.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    environment["CE_DB"] = str(folder / "ce.db")
    if kind == "host":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


@pytest.mark.parametrize(
    "kind, ranks, checks",
    [
        ("host", 1, ("exchange",)),
        ("host", 2, ALL),
        ("host", 3, ("results", "late", "decided")),
        ("host", 8, ("results", "late")),
        ("cuda", 2, (*ALL, "late")),
        ("cuda", 2, ("missing",)),
        ("cuda", 4, (*ALL, "late")),
        ("cuda", 4, ("missing",)),
    ],
)
def test_ranks_have_the_results_of_one(kind, ranks, checks, tmp_path):
    if kind == "host" and ranks > 3 and os.environ.get("CE_FULL_TESTS") != "1":
        pytest.skip("so many processes take minutes: CE_FULL_TESTS=1 runs them")
    launch = ("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d")
    done = subprocess.run(
        [sys.executable, *launch, "--rdzv-endpoint=localhost:0", str(SCRIPT), kind, *checks],
        capture_output=True,
        text=True,
        env=environment_of(kind, ranks, tmp_path),
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("kind, ranks", [("host", 2), ("cuda", 2), ("cuda", 4)])
def test_the_end_of_a_rank_ends_the_others(kind, ranks, tmp_path):
    """Within the group's timeout and a margin; a launcher, which would end them itself, is not there."""
    environment = environment_of(kind, ranks, tmp_path)
    environment.update(WORLD_SIZE=str(ranks), CE_TEST_STORE=f"file://{tmp_path / 'store'}")
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), kind, "death"],
            stdout=subprocess.PIPE,
            stderr=(tmp_path / f"{rank}.log").open("w"),
            text=True,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    try:
        assert processes[-1].wait(timeout=200) == 0, (tmp_path / f"{ranks - 1}.log").read_text()[-4000:]
        death = time.monotonic()
        for process in processes[:-1]:
            process.wait(timeout=max(1.0, TIMEOUT_S + MARGIN_S - (time.monotonic() - death)))
            print(f"ended {time.monotonic() - death:.1f} s after the last rank")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, process in enumerate(processes):
        lines = process.stdout.readlines()
        said = "".join(line for line in lines if not line.startswith("[Gloo]"))  # as torch 2.9 does
        assert said == "all ranks called once\n", said + (tmp_path / f"{rank}.log").read_text()[-4000:]
        assert (process.returncode != 0) == (rank < ranks - 1)


def test_the_bench_of_ranks_compares_with_torch(tmp_path):
    bench = Path(__file__).parents[2] / "bench" / "ranks.py"
    launch = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    words = ("--check", "--shapes", "8x101", "--only", "torch-loss-parallel", "--out", str(tmp_path / "ranks.json"))
    done = subprocess.run(
        [sys.executable, *launch, str(bench), *words],
        capture_output=True,
        text=True,
        env=environment_of("host", 2, tmp_path),
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (result,) = json.loads((tmp_path / "ranks.json").read_text())["results"]
    assert (result["classes"], result["asked_classes"]) == (100, 101)
    assert result["against_ce"]["torch-loss-parallel"]["agrees"]
