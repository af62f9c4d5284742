"""The tables and figures of the pages, from the documents in bench/results: BLOCKS and INLINE by their names."""

from __future__ import annotations

import re
import statistics
from typing import Any, Callable, Iterable

from documents import CallCost, Cell, Cells, Key, Results
from pages import Page, span, table, wrapped
from linear_tables import linear, linear_summary
from python_tables import head, python_calls, python_gradient, python_rl, python_training, python_transformers
from rank_tables import ranks, ranks_linear, ranks_summary
from regret import quantiles

# As the pages name the kinds of problems, in their order there.
KINDS = {
    "softmax": "softmax",
    "log_softmax": "log_softmax",
    "softmax_backward": "softmax_backward",
    "log_softmax_backward": "log_softmax_backward",
    "cross_entropy loss": "loss (mean)",
    "cross_entropy loss+grad": "loss and gradient (mean, in place)",
    "cross_entropy_backward": "gradient from logsumexp (in place)",
}
DTYPES = ("bf16", "f16", "f32")
OVERVIEW_COLUMNS = (1024, 4096, 32768, 128256, 262144)
SUMMARY_PEERS = {"torch": "PyTorch", "torch.compile": "torch.compile", "triton (one block a row)": "Triton",
                 "liger": "Liger"}
CALLS = {"softmax": "softmax, 64 rows", "cross_entropy": "loss and gradient, 64 rows",
         "cross_entropy of more rows": "loss and gradient, 256 rows"}
AIM = 0.96  # of the ceiling, for wide rows


def variant(problem: dict[str, Any]) -> str:
    return str(problem["config"].split("/")[0])


def percent(share: float) -> str:
    return f"{share:.0%}"


def tenths(share: float) -> str:
    return f"{100 * share:.1f}%"


def terabytes(figure: float) -> str:
    return f"{figure / 1e3:.2f}"


def own(cells: Cells, *first: Any) -> Cells:
    """Those whose keys begin so."""
    return {key: cell for key, cell in cells.items() if key[: len(first)] == first}


def columns_of(cells: Cells) -> list[int]:
    return sorted({key[2] for key in cells})


def grouped(cells: Cells) -> list[tuple[str, str]]:
    """Kinds and dtypes that there are, in the order of the pages."""
    there = {key[:2] for key in cells}
    return [(kind, dtype) for kind in KINDS for dtype in DTYPES if (kind, dtype) in there]


def in_order(cells: Cells) -> Cells:
    """By kind and dtype in the order of the pages, then by columns and what follows them."""
    return dict(sorted(cells.items(), key=lambda item: (list(KINDS).index(item[0][0]), item[0][1:])))


def plot(page: Page) -> str:
    if page.results.plot is None:
        raise ValueError("there is no drawing of the widths")
    return f"![GB/s over columns, bf16]({page.path(page.results.plot)})"


def ceilings(page: Page) -> str:
    traffic = {"softmax": "one read, one written", "softmax_backward": "two read, one written",
               "cross_entropy loss": "one read", "cross_entropy loss+grad": "one read, written over"}
    rows = [["matrices", "TB/s: median", "least", "most"]]
    cells: Cells = {}
    for kind, text in traffic.items():
        found = own(page.results.widths, kind)
        figures = [cell.value["ceiling"]["gbs"] for cell in found.values()]
        rows.append([text, *(terabytes(choose(figures)) for choose in (statistics.median, min, max))])
        cells.update(found)
    return f"{table(rows)}\n\n{page.dates(cells)}"


def shares(kinds: Iterable[str], dtypes: Iterable[str]) -> Callable[[Page], str]:
    """Of the ceiling, at some widths."""

    def write(page: Page) -> str:
        cells = {key: cell for key, cell in page.results.widths.items()
                 if key[0] in kinds and key[1] in dtypes and key[2] in OVERVIEW_COLUMNS}
        rows = [["columns", *map(str, OVERVIEW_COLUMNS)]]
        for kind, dtype in grouped(cells):
            found = [cells.get((kind, dtype, columns)) for columns in OVERVIEW_COLUMNS]
            rows.append([f"{KINDS[kind]} {dtype}", *(
                f"{percent(cell.value['share_of_ceiling'])} {variant(cell.value)}" if cell else "-" for cell in found)])
        return f"{table(rows)}\n\n{page.dates(cells)}"

    return write


def summary(page: Page) -> str:
    """Of each operation the share of the ceiling, and what other libraries take, over the columns of these."""
    results = page.results
    rows = [["operation", "share of the ceiling", *SUMMARY_PEERS.values()]]
    cells: Cells = {}
    for kind, title in KINDS.items():
        compared = {key: cell for key, cell in results.peers.items() if key[0] == kind and key[3] in SUMMARY_PEERS}
        found = {key: results.widths[key] for key in {key[:3] for key in compared} if key in results.widths}
        if not found:
            continue
        ratios = [[cell.value["ratio"] for key, cell in compared.items() if key[3] == peer] for peer in SUMMARY_PEERS]
        rows.append([title, span([cell.value["share_of_ceiling"] for cell in found.values()], percent),
                     *(span(times, "{:.1f}".format) if times else "-" for times in ratios)])
        cells.update(compared)
        cells.update(found)
    return f"{table(rows)}\n\n{page.dates(cells)}"


def call_cost(page: Page) -> str:
    """What a warm call takes of the host: medians over processes."""
    cost = known_call_cost(page)
    rows = [["median of the host's time, us", "launches alone", "`run()` adds", "a `Plan` adds"]]
    for name, title in CALLS.items():
        figures = cost.calls[name]
        rows.append([title, *(f"{statistics.median(each[column] for each in figures):.{digits}f}"
                              for column, digits in (("bare", 1), ("run", 2), ("plan", 2)))])
    processes = len(cost.calls["softmax"])
    return f"{table(rows)}\n\n[{cost.path.name}]({page.path(cost.path)}), {processes} processes, {cost.date}."


def known_call_cost(page: Page) -> CallCost:
    if page.results.call_cost is None:
        raise ValueError("there is no record of what a call costs")
    return page.results.call_cost


def beyond_the_launch(page: Page) -> str:
    cost = known_call_cost(page)
    medians = [statistics.median(figures["run"] for figures in cost.calls[name]) for name in CALLS]
    return span(medians, "{:.2f}".format) + " us"


def first_launch(how: str, digits: int) -> Callable[[Page], str]:
    return lambda page: span(known_call_cost(page).first_launch_ms[how], f"{{:.{digits}f}}".format) + " ms"


def widths(page: Page) -> str:
    """A section for each operation, with all widths and dtypes."""
    sections = []
    for kind, title in KINDS.items():
        cells = in_order(own(page.results.widths, kind))
        if not cells:
            continue
        dtypes = [dtype for dtype in DTYPES if own(cells, kind, dtype)]
        rows = [["columns", *(title for dtype in dtypes for title in (dtype, "TB/s", "kernel"))]]
        for columns in columns_of(cells):
            row = [str(columns)]
            for dtype in dtypes:
                cell = cells.get((kind, dtype, columns))
                row += ["-", "-", "-"] if cell is None else [
                    tenths(cell.value["share_of_ceiling"]), terabytes(cell.value["gbs"]), variant(cell.value)]
            rows.append(row)
        sections.append(f"### {title}\n\n{table(rows)}\n\n{page.sources(cells, by=lambda key: str(key[1]))}")
    return "\n\n".join(sections)


def below_the_aim(page: Page) -> str:
    rows = [["operation", "dtype", f"columns: share, where it is below {percent(AIM)}"]]
    for kind, dtype in grouped(page.results.widths):
        cells = in_order(own(page.results.widths, kind, dtype))
        text = ", ".join(f"{key[2]}: {tenths(cell.value['share_of_ceiling'])}" for key, cell in cells.items()
                         if round(cell.value["share_of_ceiling"], 3) < AIM)
        if text:
            rows.append([KINDS[kind], dtype, text])
    return table(rows) if len(rows) > 1 else "Nothing."


def peers(page: Page) -> str:
    """A section for each dtype."""
    sections = []
    for dtype in DTYPES:
        cells = in_order({key: cell for key, cell in page.results.peers.items() if key[1] == dtype})
        if not cells:
            continue
        columns = columns_of(cells)
        rows = [[dtype, *map(str, columns)]]
        for kind, _ in grouped(cells):
            for peer in page.results.peer_names():
                found = [cells.get((kind, dtype, width, peer)) for width in columns]
                if any(found):
                    rows.append([f"{KINDS[kind]}: {peer}", *(
                        "-" if cell is None else f"{cell.value['ratio']:.2f}" + ("" if on_graph(cell) else " \\*")
                        for cell in found)])
        sections.append(f"{table(rows)}\n\n{page.sources(cells, by=lambda key: str(key[3]))}")
    return "\n\n".join([*sections, peer_notes(page.results)])


def on_graph(cell: Cell) -> bool:
    return bool(cell.value["method"] == "graph")


def peer_notes(results: Results) -> str:
    """Versions, and why a figure is missing or starred."""
    versions: dict[str, dict[str, None]] = {}
    for cell in results.peers.values():
        for name, version in cell.document.content["versions"].items():
            versions.setdefault(name, {})[version] = None
    lines = ["- " + ", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items()) + "."]
    for reason in dict.fromkeys(cell.value["method"] for cell in results.peers.values() if not on_graph(cell)):
        names = dict.fromkeys(f"{KINDS[key[0]]}, {key[3]}" for key, cell in results.peers.items()
                              if cell.value["method"] == reason)
        lines.append(f"- \\* {'; '.join(names)}: timed with `{reason}`.")
    for reason in dict.fromkeys(results.failures.values()):
        keys = [key for key, text in results.failures.items() if text == reason and key not in results.peers]
        if reason != "has no such operation" and keys:
            lines.append(f"- {'; '.join(f'{KINDS[key[0]]} {key[1]} of {key[2]} columns, {key[3]}' for key in keys)}: "
                         f"`{reason}`")
    lines += [f"- {peer} was not there: `{reason}`." for peer, reason in results.missing.items()
              if peer not in results.peer_names()]
    return "\n".join(wrapped(line, indent="  ") for line in lines)


def peer_ranges(page: Page) -> str:
    """Least and most over widths and dtypes."""
    rows = [["", *page.results.peer_names()]]
    for kind in KINDS:
        cells = own(page.results.peers, kind)
        if cells:
            ratios = [[cell.value["ratio"] for key, cell in cells.items() if key[3] == peer] for peer in rows[0][1:]]
            rows.append([KINDS[kind], *(span(found, "{:.1f}".format) if found else "-" for found in ratios)])
    return f"{table(rows)}\n\n{page.dates(page.results.peers)}"


def memory(page: Page) -> str:
    """Beside the inputs, over widths and dtypes."""
    results = page.results
    rows = [["", "ce", *results.peer_names()]]
    for kind in KINDS:
        cells = own(results.peers, kind)
        if not cells:
            continue
        row = [KINDS[kind], sizes([(cell.value["extra_of_ce"], cell) for cell in cells.values()])]
        for peer in results.peer_names():
            found = [(cell.value["peak_bytes"], cell) for key, cell in cells.items() if key[3] == peer]
            row.append(sizes(found) if found else "-")
        rows.append(row)
    return f"{table(rows)}\n\n{page.dates(results.peers)}"


def sizes(found: list[tuple[float, Cell]]) -> str:
    """In matrices of the size of the logits, or in bytes a row."""
    matrices = [size / cell.value["matrix"] for size, cell in found]
    if max(matrices) < 0.01:
        return span([size / cell.value["rows"] for size, cell in found], "{:.0f}".format) + " bytes a row"
    return span(matrices, "{:.2f}".format)


def options(page: Page) -> str:
    cells = page.results.options
    places = sorted({key[1:] for key in cells})
    rows = [["", *(f"{dtype} {columns}" for dtype, columns in places)]]
    for named in sorted({key[0] for key in cells}, key=lambda named: (len(named), named)):
        row = [", ".join(named) or "no options"]
        for place in places:
            cell = cells.get((named, *place))
            if cell is None:
                row.append("-")
            else:
                more = f", {added_by_options(cells, (named, *place)):+.1%}" if named else ""
                row.append(f"{cell.value['median_us']:.0f} us{more}")
        rows.append(row)
    return f"{table(rows)}\n\n{page.dates(cells)}"


ROWS = {
    "rows-entropy-gradient": ("gradient of the entropy", "rows-base"),
    "rows-lse-gradient": ("logsumexp and its gradient", "rows-base"),
    "rows-weights": ("weights of rows", "rows-base"),
    "rows-scales": ("scales of rows (temperature)", "rows-base"),
    "rows-divisor": ("divisor on the device", "rows-base"),
    "rows-token-scaling": ("token scaling", "rows-base"),
    "rows-loss-entropy": ("log-probability and entropy, no gradient", "rows-loss-base"),
    "rows-backward-saved": ("backward, as exact as one pass", "rows-backward-base"),
    "rows-backward-entropy": ("backward of entropy and logsumexp", "rows-backward-base"),
}


def points_lost(page: Page, task: str, place: Key) -> float:
    """Of the share of the ceiling, to the same without what rows are asked for."""
    share, without = (page.results.rows[one][place].value["share_of_ceiling"] for one in (task, ROWS[task][1]))
    return 100 * float(without - share)


def cost_of_rows(page: Page) -> str:
    """The most points that any of it costs anywhere."""
    return f"{max(points_lost(page, task, place) for task in ROWS for place in page.results.rows[task]):.1f}"


def rows_of_options(page: Page) -> str:
    """Shares of the ceiling, and by how many points that is less than without."""
    found = page.results.rows
    places = sorted({place for cells in found.values() for place in cells})
    text = [["", *(f"{dtype} {columns}" for dtype, columns in places)]]
    for task, (name, _) in ROWS.items():
        row = [name]
        for place in places:
            share: float = found[task][place].value["share_of_ceiling"]
            row.append(f"{share:.1%}, {-points_lost(page, task, place):+.1f}")
        text.append(row)
    cells = {(task, *place): cell for task, of_task in found.items() for place, cell in of_task.items()}
    return f"{table(text)}\n\n{page.dates(cells)}"


def added_by_options(cells: Cells, key: Key) -> float:
    """To the time, as a part of it, to the tenth of a percent that is shown."""
    without: float = cells[((), *key[1:])].value["median_us"]
    return round(float(cells[key].value["median_us"]) / without - 1, 3) + 0.0  # no -0


def few_rows(page: Page) -> str:
    cells = in_order(page.results.few_rows)
    counts = sorted({key[3] for key in cells})
    rows = [["", "columns", *(f"{count} row{'s' if count > 1 else ''}" for count in counts)]]
    for kind, dtype, columns in dict.fromkeys(key[:3] for key in cells):
        found = [cells.get((kind, dtype, columns, count)) for count in counts]
        rows.append([f"{KINDS[kind]} {dtype}", str(columns), *(
            f"{cell.value['median_us']:.1f} us ({percent(of_bound(cell))}) {variant(cell.value)}" if cell else "-"
            for cell in found)])
    floors = dict.fromkeys(f"{cell.document.run['launch_floor_us']:.2f} us" for cell in cells.values())
    return (f"{table(rows)}\n\n{page.sources(cells, by=lambda key: '')} Launch floor: "
            f"{', '.join(floors)}.")


def of_bound(cell: Cell) -> float:
    return float(cell.value["median_us"]) / float(cell.value["bound_us"])


def shapes(page: Page) -> str:
    cells = page.results.shapes
    rows = [["problem", "time", "TB/s", "of the ceiling", "config"]]
    for cell in cells.values():
        problem = cell.value
        rows.append([problem["title"], milliseconds(cell), terabytes(problem["gbs"]),
                     tenths(problem["share_of_ceiling"]), f"`{problem['config']}`"])
    return f"{table(rows)}\n\n{page.sources(cells, by=lambda key: '')}"


def planted(kind: str) -> Callable[[Page], str]:
    """What planted slowdowns of a kind cost in truth, and how often they were found."""

    def planted_in(cell: Cell) -> dict[str, Any]:
        return {name: found for name, found in cell.value["programs"].items() if kind in name}

    def is_small(cell: Cell) -> bool:
        # One that takes far more than was planted is of a kernel of which all blocks run at once.
        return 0 < max((found["truth"] for found in planted_in(cell).values()), default=0) < 1.12

    def write(page: Page) -> str:
        cells = {key: cell for key, cell in page.results.planted.items() if is_small(cell)}
        cells = dict(sorted(cells.items(), key=lambda item: float(item[1].value["median_us"])))
        names = sorted({name for cell in cells.values() for name in planted_in(cell)})
        titles = [re.sub(r"(\d+)-in-(\d+)", r"\1 row in \2", name).replace("-", " ") for name in names]
        rows = [["problem", "time", *titles, "unplanted: alarms"]]
        for cell in cells.values():
            programs, us = cell.value["programs"], float(cell.value["median_us"])
            found = [f"{programs[name]['truth'] - 1:+.1%}: {programs[name]['slower']} of {programs[name]['draws']}"
                     if name in programs else "-" for name in names]
            nothing = programs["unplanted"]
            rows.append([cell.value["title"], f"{us:.{int(us < 10)}f} us", *found,
                         f"{nothing['slower'] + nothing['faster']} of {nothing['draws']}"])
        return f"{table(rows)}\n\n{page.sources(cells, by=lambda key: '')}"

    return write


def milliseconds(cell: Cell) -> str:
    return f"{cell.value['median_us'] / 1e3:.3f} ms"


# ---- figures in a sentence -----------------------------------------------------------------------------------------


def as_percents(figures: Iterable[float]) -> str:
    return span([100 * each for each in figures], lambda each: f"{each:.{int(each < 10)}f}") + "%"


def loss_and_gradient_time(page: Page) -> str:
    return milliseconds(page.results.shapes["cross_entropy loss+grad", "bf16", 8192, 128256])


def loss_and_gradient_share(page: Page) -> str:
    return tenths(page.results.shapes["cross_entropy loss+grad", "bf16", 8192, 128256].value["share_of_ceiling"])


def torch_over_ce(page: Page) -> str:
    ratios = own(page.results.peers, "cross_entropy loss+grad")
    return span([cell.value["ratio"] for key, cell in ratios.items() if key[3] == "torch"], "{:.1f}".format)


def few_rows_times(page: Page) -> str:
    return span([cell.value["median_us"] for cell in page.results.few_rows.values()], "{:.0f}".format) + " microseconds"


def few_rows_shares(page: Page) -> str:
    return as_percents(of_bound(cell) for cell in page.results.few_rows.values())


def loss_and_gradient_memory(of: Callable[[dict[str, Any]], float]) -> Callable[[Page], str]:
    def write(page: Page) -> str:
        cells = own(page.results.peers, "cross_entropy loss+grad").items()
        return span([of(cell.value) for key, cell in cells if key[3] == "torch"], "{:.0f}".format)

    return write


def regret(page: Page) -> dict[str, Any]:
    if page.results.regret is None:
        raise ValueError("no document has such figures")
    return page.results.regret.content


def quantiles_text(found: dict[str, float]) -> str:
    return f"median {found['median']:.1%}, 95th percentile {found['p95']:.1%}, worst {found['worst']:.1%}"


def regret_quantiles(page: Page) -> str:
    return quantiles_text(regret(page)["regret"])


def first_searches(page: Page) -> str:
    """Of a run whose problems are fewer than those of the regret."""
    if page.results.first_searches is None:
        raise ValueError("no document has such figures")
    found = page.results.first_searches.content
    return f"{quantiles_text(found['regret'])} of {len(found['problems'])} problems"


def search_seconds(page: Page) -> str:
    seconds = [problem["seconds"] for problem in regret(page)["problems"]]
    return f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s"


def search_configs(page: Page) -> str:
    tried, there = ([problem[name] for problem in regret(page)["problems"]] for name in ("tried", "configs"))
    return f"{span(tried, str)} Configs of {span(there, str)}"


def speed_without_search(page: Page) -> str:
    speeds = [problem["speed_without_search"] for problem in regret(page)["problems"]]
    return f"{statistics.median(speeds):.1%} of the speed in the median, and {min(speeds):.0%} in the worst"


BLOCKS: dict[str, Callable[[Page], str]] = {
    "plot": plot,
    "ceilings": ceilings,
    "shares": shares(KINDS, ("bf16",)),
    "summary": summary,
    "widths": widths,
    "below-the-aim": below_the_aim,
    "shapes": shapes,
    "peers": peers,
    "peer-ranges": peer_ranges,
    "memory": memory,
    "options": options,
    "row-options": rows_of_options,
    "few-rows": few_rows,
    "call-cost": call_cost,
    "linear": linear,
    "linear-summary": linear_summary,
    "ranks": ranks,
    "ranks-summary": ranks_summary,
    "ranks-linear": ranks_linear,
    "python-calls": python_calls,
    "python-gradient": python_gradient,
    "python-training": python_training,
    "python-transformers": python_transformers,
    "python-rl": python_rl,
    "planted": planted("-in-"),
    "planted-cycles": planted("-cycles"),
}
INLINE: dict[str, Callable[[Page], str]] = {
    "loss-grad-time": loss_and_gradient_time,
    "loss-grad-share": loss_and_gradient_share,
    "loss-grad-torch": torch_over_ce,
    "few-rows-times": few_rows_times,
    "few-rows-shares": few_rows_shares,
    "call-beyond-the-launch": beyond_the_launch,
    "first-launch-known": first_launch("database", 1),
    "regret": regret_quantiles,
    "first-searches": first_searches,
    "regret-served": lambda page: quantiles_text(quantiles(page.results.served)),
    "regret-served-problems": lambda page: str(len(page.results.served)),
    "regret-problems": lambda page: str(len(regret(page)["problems"])),
    "search-seconds": search_seconds,
    "search-configs": search_configs,
    "speed-without-search": speed_without_search,
    "head-step": head("step ms", "ms"),
    "head-memory": head("peak GiB", "GiB"),
    "memory-of-ce": loss_and_gradient_memory(lambda timing: timing["extra_of_ce"] / timing["rows"]),
    "memory-of-torch": loss_and_gradient_memory(lambda timing: timing["peak_bytes"] / timing["matrix"]),
    "cost-of-rows": cost_of_rows,
}
