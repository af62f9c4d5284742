"""Ranks that share the classes, as processes: gloo on the host device, NCCL on GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ce import _files

ALL = ("results", "refusals", "dtensor", "integrations", "compiled")


@pytest.mark.parametrize("kind, ranks, checks", [("host", 2, ALL), ("host", 3, ("results",)), ("cuda", 2, ALL)])
def test_ranks_have_the_results_of_one(kind, ranks, checks, tmp_path):
    if kind == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip("torch sees too few GPUs")
    environment = {**os.environ, "PYTHONPATH": str(Path(_files.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    environment["CE_DB"] = str(tmp_path / "ce.db")
    if kind == "host":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    launch = ("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d")
    script = Path(__file__).with_name("vocab_parallel_rank.py")
    done = subprocess.run(
        [sys.executable, *launch, "--rdzv-endpoint=localhost:0", str(script), kind, *checks],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
