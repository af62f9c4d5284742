"""What all tables of the pages are made with: the page that they are for, and text."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable

from documents import Cells, Document, Key, Results


@dataclass(frozen=True)
class Page:
    results: Results
    folder: Path  # of the page, from which its links lead

    def path(self, file: Path) -> str:
        return Path(os.path.relpath(file.resolve(), self.folder.resolve())).as_posix()

    def link(self, document: Document) -> str:
        return f"[{document.task}]({self.path(document.path)}) {document.begun[:16].replace('T', ' ')}"

    def sources(self, cells: Cells, by: Callable[[Key], str]) -> str:
        """What cells are of: the machine and, of each group by(), its documents, that of the most cells first, and the
        columns of the others."""
        groups: dict[str, dict[Path, list[str]]] = {}
        documents = {cell.document.path: cell.document for cell in cells.values()}
        for key, cell in cells.items():
            groups.setdefault(by(key), {}).setdefault(cell.document.path, []).append(str(key[2]))
        alike: dict[str, list[str]] = {}  # groups by what is said of them
        for group, places in groups.items():
            paths = sorted(places, key=lambda path: (-len(places[path]), documents[path].begun))
            texts = [self.link(documents[paths[0]])]
            texts += [f"{self.link(documents[path])} ({', '.join(dict.fromkeys(places[path]))})" for path in paths[1:]]
            alike.setdefault(", ".join(texts), []).append(group)
        parts = [f"{', '.join(names)}: {text}" if any(names) else text for text, names in alike.items()]
        return wrapped(f"{machines_of(cells)}. {'; '.join(parts)}.")

    def dates(self, cells: Cells) -> str:
        return f"{machines_of(cells)}, {span([cell.document.begun[:10] for cell in cells.values()], str)}."


def machines_of(cells: Cells) -> str:
    if not cells:
        raise ValueError("no document has such figures")
    return "; ".join(dict.fromkeys(cell.document.machine for cell in cells.values()))


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def span(values: Iterable[Any], text: Callable[[Any], str]) -> str:
    least, most = (text(choose(values)) for choose in (min, max))
    return least if least == most else f"{least} to {most}"
