#!/usr/bin/env python3
"""Writes docs/comparison.svg: the speed of ce and of other libraries over the columns, beside the ceiling.

    bench/comparison_plot.py --update
    bench/comparison_plot.py --check      exit status 1 where the file differs from what the results give

The figures are those of bench/results. The speed of ce and the ceiling are those of its own run over all widths.
Another library's speed is that of ce divided by their ratio in the run that timed both.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from documents import Results
from pages import machines_of

SOURCE = Path(__file__).resolve().parent.parent
PLOT = SOURCE / "docs" / "comparison.svg"
DTYPE = "bf16"
PANELS = {"softmax": "softmax", "cross_entropy loss+grad": "loss and gradient"}
PEERS = {"torch": "PyTorch", "torch.compile": "torch.compile", "triton (one block a row)": "Triton, one block a row",
         "liger": "Liger-Kernel"}
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 13px }
.grid { stroke: #d0d7de }
.line { fill: none; stroke-width: 2 }
.ceiling { stroke: #57606a; stroke-dasharray: 5 4; stroke-width: 1.5 }
.c0 { stroke: #0969da; color: #0969da; stroke-width: 3 } .c1 { stroke: #cf222e; color: #cf222e }
.c2 { stroke: #bf8700; color: #bf8700 } .c3 { stroke: #1a7f37; color: #1a7f37 } .c4 { stroke: #8250df; color: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .grid { stroke: #30363d } .ceiling { stroke: #8b949e } .c0 { stroke: #58a6ff; color: #58a6ff }
.c1 { stroke: #ff7b72; color: #ff7b72 } .c2 { stroke: #e3b341; color: #e3b341 } .c3 { stroke: #56d364; color: #56d364 }
.c4 { stroke: #bc8cff; color: #bc8cff }
}
"""

Points = list[tuple[int, float]]

WIDTH, HEIGHT, LEFT, TOP, GAP, HEAD = 380, 240, 52, 34, 60, 62  # of a panel's frame; before it; above; between; legend
STEP = 1000  # GB/s between two lines of the grid


def speeds(results: Results, kind: str) -> tuple[Points, dict[str, Points]]:
    """The ceiling, and by their labels the lines, in GB/s over columns; only columns of at least 1024."""
    cells = {key[2]: cell.value for key, cell in sorted(results.widths.items(), key=lambda item: item[0][2])
             if key[:2] == (kind, DTYPE) and key[2] >= 1024}
    if not cells:
        raise ValueError(f"no document has widths of {kind} {DTYPE}")
    lines = {"ce": [(columns, value["gbs"]) for columns, value in cells.items()]}
    for peer, label in PEERS.items():
        ratios = {key[2]: cell.value["ratio"] for key, cell in results.peers.items()
                  if key[:2] == (kind, DTYPE) and key[3] == peer}
        lines[label] = [(columns, value["gbs"] / ratios[columns]) for columns, value in cells.items()
                        if columns in ratios]
    return [(columns, value["ceiling"]["gbs"]) for columns, value in cells.items()], lines


class Frame:
    """One panel: its place in the drawing, and where a point of it lies."""

    def __init__(self, index: int, columns: list[int], most: float) -> None:
        self.x, self.y = LEFT + index * (WIDTH + GAP), HEAD + TOP
        self.least, self.widest, self.most = min(columns), max(columns), most

    def at(self, columns: float, speed: float) -> str:
        along = math.log(columns / self.least) / math.log(self.widest / self.least)
        return f"{self.x + along * WIDTH:.1f},{self.y + HEIGHT * (1 - speed / self.most):.1f}"

    def text(self, title: str) -> list[str]:
        drawn = [f'<text class="title" x="{self.x}" y="{self.y - 12}">{title}, {DTYPE}: GB/s over columns</text>']
        for speed in range(0, int(self.most) + 1, STEP):
            y = self.at(self.least, speed).split(",")[1]
            drawn.append(f'<line class="grid" x1="{self.x}" x2="{self.x + WIDTH}" y1="{y}" y2="{y}"/>')
            drawn.append(f'<text x="{self.x - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{speed}</text>')
        columns = self.least
        while columns <= self.widest:
            x = self.at(columns, 0).split(",")[0]
            drawn.append(f'<text x="{x}" y="{self.y + HEIGHT + 18}" text-anchor="middle">{columns}</text>')
            columns *= 4
        return drawn


def drawing(results: Results) -> str:
    panels = {kind: speeds(results, kind) for kind in PANELS}
    fastest = max(speed for ceiling, _ in panels.values() for _, speed in ceiling)
    most = STEP * math.ceil(fastest / STEP)
    size = LEFT + len(PANELS) * (WIDTH + GAP) - GAP + 28, HEAD + TOP + HEIGHT + 58
    drawn = {key: cell for key, cell in results.widths.items() if key[0] in PANELS and key[1] == DTYPE}
    body = [f'<text x="{LEFT}" y="{size[1] - 12}">{machines_of(drawn)}</text>']
    labels = ["ce", *PEERS.values()]
    for place, label in enumerate([*labels, "ceiling of the memory"]):
        left, base = LEFT + place % 3 * 200, 22 + place // 3 * 22
        style = f"line c{place}" if label in labels else "line ceiling"
        body.append(f'<path class="{style}" d="M{left},{base - 4} h26"/>'
                    f'<text x="{left + 34}" y="{base}">{label}</text>')
    for index, (kind, (ceiling, lines)) in enumerate(panels.items()):
        frame = Frame(index, [columns for columns, _ in ceiling], most)
        body += frame.text(PANELS[kind])
        body.append(f'<path class="line ceiling" d="M{" L".join(frame.at(*point) for point in ceiling)}"/>')
        for place, label in reversed([*enumerate(labels)]):  # ce on top
            points = lines[label]
            if not points:
                continue
            body.append(f'<path class="line c{place}" d="M{" L".join(frame.at(*point) for point in points)}"/>')
            for point in points:
                x, y = frame.at(*point).split(",")
                body.append(f'<circle class="c{place}" fill="currentColor" cx="{x}" cy="{y}" r="2.5">'
                            f"<title>{label}, {point[0]} columns: {point[1]:.0f} GB/s</title></circle>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" '
            f'height="{size[1]}" role="img">\n<style>\n{STYLE}</style>\n' + "\n".join(body) + "\n</svg>\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--update", action="store_true", help="rewrite the file")
    what.add_argument("--check", action="store_true", help="check that the file matches the results")
    parser.add_argument("--results", type=Path, default=SOURCE / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--file", type=Path, default=PLOT)
    arguments = parser.parse_args()
    wanted = drawing(Results(arguments.results))
    if arguments.update:
        arguments.file.write_text(wanted, encoding="utf-8")
        return 0
    if arguments.file.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{arguments.file} does not match {arguments.results}: bench/comparison_plot.py --update", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
