"""The call of ce::run() in docs/python.md, in a C++ extension of torch that links ce."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from conftest import HAS_GPU

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
STREAM = "at::cuda::getCurrentCUDAStream()"
# The document's call as it is, and, where there is no GPU, without a stream.
SOURCE = """
#include <ATen/ATen.h>
{include}
#include <torch/library.h>

#include <ce/ce.hpp>

std::tuple<at::Tensor, at::Tensor> loss_and_gradient(const at::Tensor& logits, const at::Tensor& target) {{
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  {call}
  return {{loss, grad}};
}}
TORCH_LIBRARY(ce_{place}_extension, library) {{ library.def("loss_and_gradient", loss_and_gradient); }}
"""
PROGRAM = """
    import sys
    import torch

    library, place, seed = sys.argv[1:]
    torch.ops.load_library(library)
    torch.manual_seed(int(seed))
    logits = torch.randn(6, 50).to(place, torch.bfloat16)
    target = torch.randint(0, 50, (6,)).to(place)
    wide = logits.double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(wide, target)
    expected.backward()
    loss, grad = getattr(torch.ops, f"ce_{place}_extension").loss_and_gradient(logits, target)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad.double(), wide.grad, rtol=1e-2, atol=1e-5)
"""


def binaries() -> Path:
    """The build that has a shared ce, which the tests of C++ have."""
    build = Path(os.environ.get("CE_PYTHON_BINARIES", "")).parent
    if not (build / "tests" / "packaging" / "libce_shared.so").is_file():
        pytest.skip("CE_PYTHON_BINARIES is not of a build with tests")
    return build


def nvidia_headers() -> list[Path]:
    """What torch's headers of CUDA include comes with torch, or with a toolkit."""
    packages = [folder for path in sys.path for folder in Path(path).glob("nvidia/*/include")]
    toolkits = [Path(folder) / "include" for folder in (cpp_extension.CUDA_HOME,) if folder]
    return [folder for folder in (*packages, *toolkits) if folder.is_dir()]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_the_call_of_the_document(place, seed, tmp_path):
    build = binaries()
    (call,) = (code for code in re.findall(r"```cpp\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "ce::run(" in code)
    assert STREAM in call
    include, headers, libraries = "", cpp_extension.include_paths(), ["c10", "torch", "torch_cpu"]
    if place == "cuda":
        headers += map(str, nvidia_headers())
        if not any((Path(folder) / "cuda_runtime_api.h").is_file() for folder in headers):
            pytest.skip("cuda_runtime_api.h is not there")
        if not any(Path(folder, "libc10_cuda.so").is_file() for folder in cpp_extension.library_paths()):
            pytest.skip("this torch has no CUDA")
        include, libraries = "#include <ATen/cuda/CUDAContext.h>", [*libraries, "c10_cuda", "torch_cuda"]
    source, library = tmp_path / "extension.cpp", tmp_path / f"{place}.so"
    body = call if place == "cuda" else call.replace(STREAM, "nullptr")
    source.write_text(SOURCE.format(include=include, place=place, call=body))
    shared = build / "tests" / "packaging"
    command = [
        os.environ.get("CXX", "c++"),
        *("-std=c++20", "-O0", "-fPIC", "-shared", "-o", library, source, f"-I{build / 'public'}"),
        *(flag for folder in headers for flag in ("-isystem", folder)),
        *(f"-L{folder}" for folder in (shared, *cpp_extension.library_paths())),
        *("-lce_shared", f"-Wl,-rpath,{shared}"),
        *(f"-l{name}" for name in libraries),
    ]
    made = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-4000:]
    if place == "cuda" and not HAS_GPU:
        return  # it compiles
    environment = {**os.environ, "CE_POLICY": "lookup", "CE_DB": str(tmp_path / "ce.db")}
    if place == "cpu":
        environment["CE_DEVICE"] = "host"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(library), place, str(seed)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
