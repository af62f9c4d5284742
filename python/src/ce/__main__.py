"""``python -m ce`` and the console script ``ce-tune``: the command of the package."""

from __future__ import annotations

import os
import sys

from ce import _files


def main() -> None:
    """Replaces this process by ``ce-tune`` with the same arguments."""
    command = str(_files.command())
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
