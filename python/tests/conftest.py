"""The devices that tests run on: the host device of ce always, and a GPU where there is one.

CE_REQUIRE_GPU=1 makes a missing GPU a failure instead of a test less. CE_TEST_SEED sets the seed, which every failure
prints.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

_folder = tempfile.TemporaryDirectory(prefix="ce-python-test-")
os.environ["CE_DB"] = str(Path(_folder.name) / "ce.db")
os.environ.setdefault("CE_SYSTEM_DB", "none")
os.environ.setdefault("CE_POLICY", "lookup")

import pytest  # noqa: E402
import torch  # noqa: E402

import ce.torch as ct  # noqa: E402

HAS_GPU = torch.cuda.is_available()
if os.environ.get("CE_REQUIRE_GPU") == "1" and not HAS_GPU:
    raise RuntimeError("CE_REQUIRE_GPU is 1, and torch sees no GPU")

needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="torch sees no GPU")


def pytest_report_header() -> str:
    return f"torch {torch.__version__}, " + (torch.cuda.get_device_name() if HAS_GPU else "without a GPU")


@pytest.fixture(params=["host", "cuda"] if HAS_GPU else ["host"])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where tensors lie: the CPU, with the host device of ce behind it, or a GPU."""
    if request.param == "cuda":
        yield torch.device("cuda")
        return
    before = ct.configure(cpu="host")
    yield torch.device("cpu")
    ct.restore(before)


@pytest.fixture
def seed() -> Iterator[int]:
    """Seeds torch; is shown where the test fails."""
    value = int(os.environ.get("CE_TEST_SEED") or random.SystemRandom().randrange(2**31))
    print(f"CE_TEST_SEED={value}")
    torch.manual_seed(value)
    yield value
