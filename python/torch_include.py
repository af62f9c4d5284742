"""Prints the folder of torch's headers, without importing torch. Exits with 1 where this Python has no torch.

Also inside of an isolated build, whose own folders come first on the path, and where torch is beside pip, or where a
virtual environment sees that of the Python that it was made from."""

import site
import sys
import sysconfig
from pathlib import Path


def find() -> "Path | None":
    folders = [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders += site.getsitepackages([sys.base_prefix])
    for folder in folders:
        include = Path(folder or ".") / "torch" / "include"
        if (include / "torch" / "csrc" / "stable" / "library.h").is_file():
            return include.resolve()
    return None


if __name__ == "__main__":
    found = find()
    if found is None:
        sys.exit(1)
    print(found)
