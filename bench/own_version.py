"""Which ce a script measures: what documents of figures keep."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent


def own_version(tree: Path = TREE) -> str:
    """Of the installed package; of work on ce itself VERSION with the commit, where git knows one, as in
    "0.1.0+g4f5ae0123456", and ".dirty" behind it where tracked files differ from it."""
    try:
        return importlib.metadata.version("ce-kernels")
    except importlib.metadata.PackageNotFoundError:
        pass
    version = (tree / "VERSION").read_text(encoding="utf-8").strip()
    commit = _git(tree, "rev-parse", "--short=12", "HEAD")
    # A tree that was copied without its own repository may lie in another one.
    if commit is None or _git(tree, "ls-files", "VERSION") != "VERSION":
        return version
    return f"{version}+g{commit}{'.dirty' if _git(tree, 'status', '--porcelain', '-uno') else ''}"


def _git(tree: Path, *words: str) -> str | None:
    """What git prints; None where there is none, or it knows nothing."""
    try:
        done = subprocess.run(["git", "-C", str(tree), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
