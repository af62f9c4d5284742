"""The devices that tests run on: the host device of ce always, and a GPU where there is one.

CE_REQUIRE_GPU=1 makes a missing GPU a failure instead of a test less. CE_TEST_SEED sets the seed, which every failure
prints.

Every kernel that a test asks for is compiled, which takes most of the time on the host device. So without a GPU a test
of several parameters runs with as many of their combinations as its longest list has values, chosen to show every
value and as many pairs of values as they can; CE_FULL_TESTS=1 runs all.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
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


def _values(item: pytest.Item) -> frozenset[tuple[str, str]]:
    """Each parameter with its value."""
    if not hasattr(item, "callspec"):
        return frozenset()
    return frozenset((name, repr(value)) for name, value in item.callspec.params.items())


def _some(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of the combinations of a test those that show the most, until every value is shown."""
    missing = set().union(*map(_values, items))
    seen: set[frozenset[tuple[str, str]]] = set()
    chosen: set[pytest.Item] = set()

    def pairs(item: pytest.Item) -> set[frozenset[tuple[str, str]]]:
        return {frozenset(pair) for pair in combinations(sorted(_values(item)), 2)}

    while missing:
        best = max(items, key=lambda item: (len(_values(item) & missing), len(pairs(item) - seen)))
        chosen.add(best)
        missing -= _values(best)
        seen |= pairs(best)
    return chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if HAS_GPU or os.environ.get("CE_FULL_TESTS") == "1":
        return
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    chosen = {item for combined in tests.values() for item in (_some(combined) if len(combined) > 1 else combined)}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


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
