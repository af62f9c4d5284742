"""Builds the wheel once, against the oldest torch of the trials, and tries that one with each torch and Python.

Each trial is a fresh virtual environment with a torch of the index that pip asks, 3 to 6 GB on disk, which is deleted
once the tests of the package have run there against the installed wheel, on the host device. In the folder python:

    python -B tests/try_wheel.py --work ../build/wheels python3.10:2.9.0 python3.13:2.15.0 python3.9:none

A trial without torch runs an example of ce.array. A later run takes the wheel that an earlier one built in that folder,
unless --build is given, and adds its trials to those of that wheel. It exits with 1 where a test fails.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
BESIDE_TORCH = ("pytest", "numpy", "expecttest")
OF_OTHERS = ("test_bench_linear.py", "test_extension.py", "test_peers.py")
"""Tests of what is not in the wheel, or needs packages that are in no trial."""

NOTES = "notes.json"
EXAMPLE = """
    import numpy as np
    import ce.array

    context = ce.array.Context("host", policy="lookup", database="example.db")
    x = np.random.randn(4, 100).astype(np.float32)
    made = ce.array.softmax(x, out=np.empty_like(x), context=context)
    exponentials = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(made, exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5)
    target, loss, grad = np.array([1, 5, 7, 99]), np.empty((), np.float32), np.empty_like(x)
    ce.array.cross_entropy(x, target, loss=loss, grad=grad, context=context)
    lse = np.log(exponentials.sum(1)) + x.max(1)
    np.testing.assert_allclose(loss, (lse - x[np.arange(4), target]).mean(), rtol=1e-5)
"""


class Trial(NamedTuple):
    python: str
    torch: str | None

    @property
    def name(self) -> str:
        return f"{Path(self.python).name}-torch-{self.torch or 'none'}"


def trial_of(text: str) -> Trial:
    python, separator, torch = text.rpartition(":")
    if not separator or not python or not torch:
        raise argparse.ArgumentTypeError(f"{text!r}; expected PYTHON:TORCH, such as python3.11:2.9.0")
    return Trial(python, None if torch == "none" else torch)


def age(trial: Trial) -> tuple[int, ...]:
    return tuple(int(part) for part in (trial.torch or "").split(".") if part.isdigit())


def run(*command: str | Path, **options: Any) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}\nexited with {done.returncode}")
    return str(done.stdout)


def environment_of(trial: Trial, folder: Path, *more: str | Path) -> Path:
    """A fresh one. Returns its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    run(trial.python, "-m", "venv", folder)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")
    run(*pip, "--upgrade", "pip")  # that of Python 3.9 and 3.10 has no option -C
    if trial.torch is not None:
        run(*pip, f"torch=={trial.torch}")
    run(*pip, *(BESIDE_TORCH if trial.torch is not None else ("numpy",)), *more)
    return python


def build(python: Path, work: Path, torch: str | None, defines: list[str]) -> None:
    """Builds the wheel, looks at it as tests do, and notes what it was built of."""
    commit = run("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*", cwd=ROOT).strip()
    words = [word for define in defines for word in ("--define", define)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CE_", "PYTHON"))}
    run(python, "-B", "tests/check_wheel.py", "--work", work, *words, cwd=ROOT / "python", env=clean)
    wheel = wheel_of(work)
    assert wheel is not None
    notes = {
        "wheel": wheel.name,
        "bytes": wheel.stat().st_size,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "commit": commit,
        "built against torch": torch,
        "trials": [],
    }
    (work / NOTES).write_text(json.dumps(notes))


def wheel_of(work: Path) -> Path | None:
    found = list((work / "repaired").glob("*.whl"))
    return found[0] if found else None


def test(python: Path, work: Path, selected: list[str]) -> dict[str, Any]:
    """Runs a copy of the tests, from where the sources of the package are out of sight."""
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("python/tests", "bench", "docs", "include"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("results", "lab", "__pycache__"))
    for file in ("README.md", "python/torch_include.py"):  # of which tests run programs and functions
        shutil.copy(ROOT / file, tree / file)
    tests = tree / "python" / "tests"
    for name in OF_OTHERS:
        (tests / name).unlink()
    (tests / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CE_", "PYTHON"))}
    # torch.compile and the host device call compilers; what scripts of the environment offer comes first.
    clean["PATH"] = f"{python.parent}:{clean['PATH']}"
    clean["CUDA_VISIBLE_DEVICES"] = ""
    clean["OMP_NUM_THREADS"] = "1"
    where = run(python, "-c", "import ce; print(ce.__file__)", cwd=tests, env=clean).strip()
    assert Path(where).is_relative_to(python.parents[1].resolve()), where
    results = work / "results.xml"
    words = [str(python), "-m", "pytest", "-q", "-p", "no:logging", f"--junit-xml={results}", *selected]
    done = subprocess.run(words, cwd=tests, env=clean, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}\nexited with {done.returncode}")
    if done.returncode == 1:
        print(done.stdout[-20000:])
    (suite,) = xml.parse(results).getroot().iter("testsuite")
    number = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    reasons = Counter(skipped.attrib.get("message", "") for skipped in suite.iter("skipped"))
    failed = number["failures"] + number["errors"]
    assert (failed == 0) == (done.returncode == 0), (number, done.returncode)
    return {
        "passed": number["tests"] - failed - number["skipped"],
        "failed": failed,
        "skipped": number["skipped"],
        "reasons of the skipped": dict(reasons),
        "seconds": round(float(suite.attrib["time"])),
    }


def example(python: Path, work: Path) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CE_", "PYTHON"))}
    run(python, "-c", textwrap.dedent(EXAMPLE), cwd=work, env={**clean, "CE_SYSTEM_DB": "none"})
    run(python, "-m", "ce", "--version", cwd=work, env=clean)
    return {"passed": "an example of ce.array", "failed": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=trial_of, nargs="+", metavar="PYTHON:TORCH")
    parser.add_argument("--work", type=Path, required=True, help="a folder for all that is made")
    parser.add_argument("--define", action="append", default=[], help="NAME=VALUE for CMake: CE_CUDA_INCLUDE_DIR")
    parser.add_argument("--build", action="store_true", help="build the wheel anew")
    parser.add_argument("--select", action="append", default=[], help="a file of tests or an option of pytest")
    parser.add_argument("--result", type=Path, help="a file for the results, as JSON")
    parser.add_argument("--keep", action="store_true", help="leave the environments")
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    trials = sorted(arguments.trials, key=age)
    first = next((trial for trial in trials if trial.torch is not None), None)
    if (wheel_of(work / "wheel") is None or arguments.build) and first is None:
        parser.error("a wheel is built against torch: name a trial with one")
    # The oldest first: its torch is what the wheel is built against.
    trials = [trial for trial in (first, *(one for one in trials if one is not first)) if trial is not None]
    builds = arguments.build or wheel_of(work / "wheel") is None
    made: list[dict[str, Any]] = []
    for trial in trials:
        folder = work / trial.name
        requirements = ("-r", ROOT / "python" / "requirements-test.txt") if builds else ()
        python = environment_of(trial, folder, *requirements)
        if builds:
            build(python, work / "wheel", trial.torch, arguments.define)
            builds = False
        wheel = wheel_of(work / "wheel")
        assert wheel is not None
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps", wheel)
        own = work / "trial"
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        versions = "import platform, numpy; print(platform.python_version(), numpy.__version__)"
        of_python, of_numpy = run(python, "-c", versions).split()
        torch = None if trial.torch is None else run(python, "-c", "import torch; print(torch.__version__)").strip()
        counted = example(python, own) if torch is None else test(python, own, arguments.select)
        today = datetime.date.today().isoformat()
        made.append({"python": of_python, "torch": torch, "numpy": of_numpy, "date": today, **counted})
        print(", ".join(f"{key} {value}" for key, value in made[-1].items()), flush=True)
        if not arguments.keep:
            shutil.rmtree(folder)
        notes = json.loads((work / "wheel" / NOTES).read_text())
        notes["trials"].append(made[-1])
        (work / "wheel" / NOTES).write_text(json.dumps(notes))
        if arguments.result is not None:
            arguments.result.write_text(json.dumps(notes, indent=2) + "\n")
    sys.exit(any(one["failed"] for one in made))


if __name__ == "__main__":
    main()
