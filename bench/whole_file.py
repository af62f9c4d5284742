"""Files that are written whole, in the place of what was there, or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Until all of it is written, what was there stays. A pipe or a device is written as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = Path(os.path.realpath(path))  # a link stays one
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
