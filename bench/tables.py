#!/usr/bin/env python3
"""Writes the figures of the README and of some pages in docs/ and bench/results from the documents in bench/results.

    bench/tables.py --update
    bench/tables.py --check     exit status 1 where a page says something else

What stands between <!-- tables: NAME --> and <!-- end --> is written anew; --list tells the names. All else of a page
stays as it is.

The documents are those that documents.py reads. One that was begun later replaces what earlier ones say of the same
problem, cell by cell; under each table stands what its cells are of.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

from documents import Results
from figures import BLOCKS, INLINE, Page

SOURCE = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"(?P<begin><!-- tables: (?P<name>[^ ]*) -->)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)
BEGIN = "<!-- tables:"
RESULTS = SOURCE / "bench" / "results"
# Pages of other GPUs, and the folders of their documents.
OF_OTHER_GPUS = {RESULTS / "h100" / "README.md": RESULTS / "h100"}
PAGES = [*(SOURCE / page for page in (
    "README.md", "docs/performance.md", "docs/tuning.md", "docs/ranking.md", "docs/linear.md", "docs/python.md",
    "docs/ranks.md", "bench/results/planted.md",
    "bench/results/linear.md", "bench/results/ranks.md", "bench/results/python.md", "bench/results/widths.md",
    "bench/results/libraries.md", "bench/results/few-rows.md",
    "bench/results/row-options.md")), *OF_OTHER_GPUS]


def rewritten(text: str, page: Page) -> str:
    """The text of a page with all that is marked written anew."""

    def write(match: "re.Match[str]") -> str:
        name = match["name"]
        if BEGIN in match["text"]:
            raise ValueError(f'"{name}" does not end before the next begins')
        if name not in BLOCKS and name not in INLINE:
            raise ValueError(f'"{name}" is no table; --list names them')
        if name in INLINE and not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip():
            raise ValueError(f'"{name}" begins a line: to Markdown, that is no part of a sentence')
        try:
            written = f"\n\n{BLOCKS[name](page)}\n\n" if name in BLOCKS else INLINE[name](page)
        except (KeyError, ValueError) as error:
            raise ValueError(f'"{name}": {error!r}') from error
        return f"{match['begin']}{written}{match['end']}"

    if text.count(BEGIN) == 0:
        raise ValueError(f"nothing is marked with {BEGIN} NAME -->")
    result = MARKED.sub(write, text)
    if len(MARKED.findall(text)) != text.count(BEGIN):
        raise ValueError("a mark is not closed with <!-- end -->, or not written as <!-- tables: NAME -->")
    return result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--update", nargs="*", type=Path, metavar="FILE",
                      help="update the figures of these pages (default: of all pages with figures)")
    what.add_argument("--check", nargs="*", type=Path, metavar="FILE",
                        help="report where these pages differ from the documents")
    what.add_argument("--list", action="store_true", help="name the tables and the figures")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER",
                        help="folder of the documents (default: bench/results)")
    parser.add_argument("--gpu", help="beginning of the names of the documents to use, if there are several GPUs")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.list:
        print("\n".join([*BLOCKS, *INLINE]))
        return 0
    stale = False
    path = arguments.results
    try:
        known = {arguments.results: Results(arguments.results, arguments.gpu)}
        for path in arguments.update or arguments.check or PAGES:
            text = path.read_text(encoding="utf-8")
            folder = OF_OTHER_GPUS.get(path.resolve(), arguments.results)
            if folder not in known:
                known[folder] = Results(folder)
            wanted = rewritten(text, Page(known[folder], path.parent))
            if arguments.update is not None:
                path.write_text(wanted, encoding="utf-8")
            elif text != wanted:
                stale = True
                sys.stdout.writelines(difflib.unified_diff(
                    text.splitlines(keepends=True), wanted.splitlines(keepends=True), str(path), "bench/results"))
    except (OSError, ValueError) as error:
        print(f"tables.py: {path}: {error}", file=sys.stderr)
        return 2
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
