#!/usr/bin/env python3
"""Compares the rounding errors of ce and of PyTorch with f64 on the same inputs.

    bench/accuracy.py --out bench/results/accuracy.json          measures, and prints what is worse than it may be
    bench/accuracy.py --markdown bench/results/accuracy.json     prints docs/accuracy.md
    bench/accuracy.py --table bench/results/accuracy.json        prints bench/results/accuracy.md, with every figure

The unit of an error is the epsilon of the dtype times the largest magnitude of the row (of a loss: of the loss; of the
backward operations of softmax, which subtract: of the terms). ce runs through `ce-tune run`: the config that it takes
when nothing is known, and one config of every variant that serves the problem, or of --configs of them. A comparison is
of one kind of rows, over all widths and configs: of a width alone there may be 16 losses, whose RMS says little. ce must
not be worse than

    RMS      1.10 x the larger of PyTorch's and that of the f64 result rounded once to the dtype
    largest  1.10 x PyTorch's, plus one unit

where that is more than 1e-5 of a unit, and infinities and NaN must be where f64 has them. The exit status is 1 where it
is worse.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import hashlib
import json
import math
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

EPSILON = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
ALLOWED = 1.10
NOTHING = 1e-5  # of a unit
WIDTHS = (1000, 32768, 128256, 262144)
MATRICES = frozenset({"output", "input_grad", "grad"})

# ---- judging -------------------------------------------------------------------------------------------------------


def excess(entry: dict[str, Any]) -> float:
    """By which factor the worse of ce's figures is over what it may be; at most 1 is good."""
    if entry["ce"]["wrong"] > 0:
        return float("inf")
    bound = max(ALLOWED * max(entry["pytorch"]["rms"], entry["rounded"]["rms"]), NOTHING)
    return max(ratio(entry["ce"]["rms"], bound), share_of_largest(entry))


def share_of_largest(entry: dict[str, Any]) -> float:
    """ce's largest error, of what it may be."""
    return entry["ce"]["largest"] / (ALLOWED * entry["pytorch"]["largest"] + 1)


def ratio(a: float, b: float) -> float:
    return 1.0 if a == b else float("inf") if b == 0 else a / b


def joined(figures: list[dict[str, Any]], rows: list[int]) -> dict[str, Any]:
    """The figures of all of these rows."""
    squares = sum(each["rms"] ** 2 * count for each, count in zip(figures, rows))
    return {
        "rms": short(math.sqrt(squares / sum(rows))),
        "largest": max(each["largest"] for each in figures),
        "wrong": sum(each["wrong"] for each in figures),
    }


def over_configs(by_config: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures of all configs, and which of them is the worst."""
    worst = max(by_config, key=lambda config: (by_config[config]["wrong"], by_config[config]["rms"]))
    return {**joined(list(by_config.values()), [1] * len(by_config)), "worst": worst}


def over_widths(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One comparison of each case, quantity, dtype and kind of rows."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(tuple(entry[name] for name in ("case", "quantity", "dtype", "kind")), []).append(entry)
    comparisons = []
    for group in groups.values():
        rows = [entry["rows"] for entry in group]
        figures = {who: joined([entry[who] for entry in group], rows) for who in ("ce", "pytorch", "rounded")}
        figures["ce"]["worst"] = max(group, key=excess)["ce"]["worst"]
        comparisons.append({**group[0], **figures, "rows": sum(rows)})
    return comparisons


def short(value: float) -> float:
    return float(f"{value:.3g}")


def name_of(entry: dict[str, Any]) -> str:
    return f"{entry['case']} {entry['quantity']} {entry['dtype']} {entry['kind']}"


def report(result: dict[str, Any]) -> str:
    entries = over_widths(result["entries"])
    bad = sorted((entry for entry in entries if excess(entry) > 1), key=excess, reverse=True)
    lines = []
    for entry in bad:
        ce, peer, ideal = entry["ce"], entry["pytorch"], entry["rounded"]
        lines.append(
            f"{name_of(entry)}: ce {ce['rms']:.3g} {ce['largest']:.3g} ({ce['worst']}), PyTorch {peer['rms']:.3g} "
            f"{peer['largest']:.3g}, rounded once {ideal['rms']:.3g} {ideal['largest']:.3g}; wrong: {ce['wrong']}, "
            f"{peer['wrong']}"
        )
    lines.append(f"{len(entries)} comparisons on {result['gpu']}, ce is worse than it may be in {len(bad)}")
    return "\n".join(lines)


# ---- the page ------------------------------------------------------------------------------------------------------


def figure(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if 1e-3 <= value < 1e4 else f"{value:.0e}"


def compared(entry: dict[str, Any]) -> float:
    """The ratio of the RMS; errors of almost nothing come last."""
    ce, peer = entry["ce"]["rms"], entry["pytorch"]["rms"]
    return ratio(ce, peer) if max(ce, peer) > NOTHING else 0


def summary_row(entries: list[dict[str, Any]]) -> list[str]:
    """Of one case, quantity and dtype: the figures where ce compares worst."""
    worst = max(entries, key=compared)
    far = max(entries, key=share_of_largest)
    return [
        figure(worst["pytorch"]["rms"]),
        figure(worst["ce"]["rms"]),
        f"{ratio(worst['ce']['rms'], worst['pytorch']['rms']):.2f}",
        worst["kind"],
        figure(far["pytorch"]["largest"]),
        figure(far["ce"]["largest"]),
    ]


def without_folders(words: list[str]) -> list[str]:
    """The command as any user may repeat it: absolute paths are of one machine, and only their last part is kept."""
    return [Path(word).name if word.startswith("/") else word for word in words]


def markdown_table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)


def merged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Of runs on the same machine."""
    entries = [entry for result in results for entry in result["entries"]]
    dates = sorted({result["date"][:10] for result in results})
    return {**results[0], "command": "\n    ".join(result["command"] for result in results), "entries": entries,
            "date": " to ".join(dict.fromkeys((dates[0], dates[-1])))}


Groups = dict[tuple[str, str], dict[str, tuple[list[dict[str, Any]], str]]]


def grouped(entries: list[dict[str, Any]]) -> Groups:
    """The comparisons by case and quantity, then by dtype, without the widths where PyTorch's result is wrong. With a
    star where there are such."""
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for entry in entries:
        groups.setdefault((entry["case"], entry["quantity"]), {}).setdefault(entry["dtype"], []).append(entry)
    found: Groups = {}
    for group, by_dtype in groups.items():
        for dtype, all_of_it in by_dtype.items():
            right = [entry for entry in all_of_it if entry["pytorch"]["wrong"] == 0]
            star = "" if len(right) == len(all_of_it) else r" \*"
            found.setdefault(group, {})[dtype] = over_widths(right or all_of_it), star
    return found


def star_note(groups: Groups, result: dict[str, Any]) -> str:
    if not any(star for by_dtype in groups.values() for _, star in by_dtype.values()):
        return ""
    right = all(entry["ce"]["wrong"] == 0 for entry in result["entries"])
    return f"""

\\* At some widths PyTorch's result is infinite or NaN where f64's is not{", and ce's is right" if right else ""}.
The ratio leaves these widths out."""


def machine(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"{result['gpu']}, driver {result['driver']}, {versions}, {result['date']}."


def widths_of(result: dict[str, Any]) -> str:
    return ", ".join(map(str, sorted({entry["columns"] for entry in result["entries"]})))


def table_page(result: dict[str, Any], paths: list[str]) -> str:
    """Every case, quantity and dtype with its figures."""
    groups = grouped(result["entries"])
    rows = [["operation", "dtype", "PyTorch RMS", "ce RMS", "ratio", "where", "PyTorch largest", "ce largest"]]
    for (case, quantity), by_dtype in groups.items():
        for dtype, (entries, star) in by_dtype.items():
            rows.append([f"{case}: {quantity}", f"{dtype}{star}", *summary_row(entries)])
    links = ",\n".join(f"[{Path(path).name}]({Path(path).name})" for path in paths)
    return f"""# Rounding errors

Each line shows the two kinds of rows where ce is worst: by the ratio of the RMS, and by its largest error as a share of
the bound. PyTorch's error is thousands of units if it subtracts almost equal numbers.
[docs/accuracy.md](../../docs/accuracy.md) defines the units, the kinds of rows and the bounds.

{markdown_table(rows)}{star_note(groups, result)}

    {result['command']}
    bench/accuracy.py --table {' '.join(paths)} > bench/results/accuracy.md

{machine(result)}
Seed {result['seed']}, rows of {widths_of(result)} columns. The figures of each width are in
{links}.
"""


def markdown(result: dict[str, Any], paths: list[str]) -> str:
    """The page of the documentation: a ratio for each case, quantity and dtype."""
    comparisons = over_widths(result["entries"])
    groups = grouped(result["entries"])
    dtypes = [dtype for dtype in EPSILON if any(dtype in by_dtype for by_dtype in groups.values())]
    rows = [["operation", *dtypes]]
    for (case, quantity), by_dtype in groups.items():
        cells = []
        for dtype in dtypes:
            entries, star = by_dtype.get(dtype, ([], ""))
            cells.append(f"{max(map(compared, entries)):.2f}{star}" if entries else "-")
        rows.append([f"{case}: {quantity}", *cells])
    kinds = [["rows", "normal deviates"]] + [[f"`{kind}`", text] for kind, text in result["kinds"].items()]
    over = [f"{name_of(entry)} ({excess(entry):.2f} x)" for entry in comparisons if excess(entry) > 1]
    host = """

On the host device the kernels are the same, but exponentials, logarithms and reciprocals are those of the C library, and
PyTorch runs on the CPU. So these are errors of the formulas; on a GPU, `ex2` adds at most 2 units.""" if result["gpu"].startswith("host:") else ""
    return f"""# Accuracy

This page compares the errors of ce and of PyTorch on the same inputs, against f64. Of {len(comparisons)} comparisons,
ce exceeds [its bounds](#what-is-compared) in {f"{len(over)}: {', '.join(over)}" if over else "none"}.

## Result

The table divides the root mean square (RMS) of ce's errors by that of PyTorch's, for the kind of rows where ce compares
worst. Below 1, ce is closer to f64. [Another page](../bench/results/accuracy.md) has both errors, and the largest.

{markdown_table(rows)}{star_note(groups, result)}

{machine(result)}{host}

## What is compared

PyTorch computes in the dtype of the inputs, and in f64 for the reference. Options that it lacks (z-loss, cap, scale)
are built from its functions. ce runs its default kernel without tuning, and one kernel of each other variant. A
comparison covers all these kernels and rows of {widths_of(result)} columns, for one kind of rows:

{markdown_table(kinds)}

- **Units.** Errors are in units of the dtype's epsilon (f32 2^-23, f16 2^-10, bf16 2^-7) times the largest magnitude of
  the row. For a loss, this factor is the loss; for an entropy, the larger of it and 1; for the backward operations of
  softmax, the largest term. One rounding costs at most half a unit.
- **Bounds.** ce's RMS may be {ALLOWED:.2f} x the larger of PyTorch's and that of the f64 result rounded once. Its largest
  error may be {ALLOWED:.2f} x PyTorch's plus one unit. Errors below {NOTHING:g} units do not count. Infinities and NaN
  must be where f64 has them.
- **`cross_entropy_backward`** reads a logsumexp in f32, and f64 starts from that rounded value, too. `saved` also reads
  the log-probability and the rounding error of the logsumexp, and f64 starts from the logits. It is as exact as one
  pass.

## Gradients under a soft cap

With a soft cap, kernels of 16-bit logits hold the exponents of a row in f16. Each probability in a gradient, even one
next to 1, has an error of up to 2^-12 (1.1 cap + 1), which is 0.83% under a cap of 30. Rounding the gradient adds 0.39%
in bf16 and 0.05% in f16. The table hides this error, since PyTorch also rounds capped logits to 16 bits.

## Measure it yourself

    bench/accuracy.py --ce-tune build/release/bin/ce-tune --out accuracy.json
    bench/accuracy.py --table accuracy.json

This command writes the page:

    bench/accuracy.py --markdown {' '.join(paths)} > docs/accuracy.md
"""


# ---- measuring -----------------------------------------------------------------------------------------------------


def save(tensor: Any, path: Path) -> None:
    import torch

    words = tensor.contiguous().cpu()
    (words.view(torch.int16) if words.dtype == torch.bfloat16 else words).numpy().tofile(path)


def load(path: Path, like: Any) -> Any:
    import numpy
    import torch

    stored = torch.int16 if like.dtype == torch.bfloat16 else like.dtype
    words = torch.from_numpy(numpy.fromfile(path, str(stored).removeprefix("torch.")))
    return words.view(like.dtype).reshape(like.shape).to(like.device)


def statistics(result: Any, exact: Any, sizes: Any, unit: float, blocks: int) -> list[dict[str, Any]]:
    """Of each block of rows: root mean square and largest error, and how many elements are wrongly (in)finite."""
    import torch

    result = result.double()
    finite = torch.isfinite(exact)
    same = (result == exact) | (torch.isnan(result) & torch.isnan(exact))
    wrong = torch.where(finite, ~torch.isfinite(result), ~same)
    error = torch.where(finite & ~wrong, (result - exact).abs() / (unit * sizes.clamp_min(1e-300)), 0.0)
    return [
        {"rms": short(e.square().mean().sqrt().item()), "largest": short(e.max().item()), "wrong": int(w.sum())}
        for e, w in zip(error.chunk(blocks), wrong.chunk(blocks))
    ]


def run(command: list[str]) -> dict[str, Any]:
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {finished.stderr.strip()}")
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


class Ce:
    """ce-tune on one device."""

    def __init__(self, program: str, device: str, others: int | None) -> None:
        self.program, self.device, self.others = program, device, others
        self.facts: dict[str, Any] = {}

    def options(self, problem: Any, amounts: bool) -> list[str]:
        case = problem.case
        options = ["--op", case.operation, "--dtype", problem.dtype, "--rows", str(problem.rows)]
        options += ["--cols", str(problem.columns), *case.flags]
        for name, amount in case.amounts.items():
            options += [name, str(amount)] if amounts else [name]
        if case.operation == "cross_entropy":
            options += ["--loss-dtype", problem.dtype, f"--reduction={case.reduction}"]
        elif case.operation == "cross_entropy_backward":
            options += [f"--reduction={case.reduction}"]
        if case.weights:
            options.append(f"--weights={problem.dtype}")
        return [*options, "--device", self.device, "--json"]

    def configs(self, problem: Any) -> list[str]:
        """One of each variant, or of as many as wanted; always the same for the same problem."""
        options = self.options(problem, amounts=False)
        by_variant: dict[str, list[str]] = {}
        for config in run([self.program, "source", "--list", *options])["configs"]:
            by_variant.setdefault(config.split("/")[0], []).append(config)
        digest = int(hashlib.sha256(shlex.join(options).encode()).hexdigest(), 16)
        one_each = [configs[digest % len(configs)] for configs in by_variant.values()]
        first = digest % len(one_each)
        return (one_each[first:] + one_each[:first])[: self.others]

    def compute(self, problem: Any, inputs: Path, config: str | None) -> tuple[str, Path]:
        outputs = Path(tempfile.mkdtemp(dir=inputs))
        command = [self.program, "run", *self.options(problem, amounts=True)]
        command += [f"{name}={inputs / name}" for name in problem.inputs]
        command += [f"{name}={outputs / name}" for name in problem.peer]
        self.facts = run(command if config is None else [*command, "--config", config])
        return self.facts["config"], outputs

    def compute_all(self, problem: Any, inputs: Path) -> list[tuple[str, Path]]:
        """Runs the usual config and the others. Returns each config with the folder of its outputs."""
        wanted = [None, *self.configs(problem)]
        return list(dict(self.compute(problem, inputs, config) for config in wanted).items())

    def version(self) -> str:
        return subprocess.run([self.program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]


def entries_of(problem: Any, computed: list[tuple[str, Path]]) -> list[dict[str, Any]]:
    kinds, unit = problem.case.kinds, EPSILON[problem.dtype]
    entries = []
    for quantity, peer in problem.peer.items():
        exact = problem.exact[quantity]
        exact_of_ce = problem.exact_of_ce.get(quantity, exact)
        sizes = problem.sizes(quantity)

        def by_kind(result: Any, reference: Any) -> list[dict[str, Any]]:
            width = reference.shape[-1] if quantity in MATRICES else 1
            return statistics(result.reshape(-1, width), reference.reshape(-1, width), sizes, unit, len(kinds))

        pytorch, rounded = by_kind(peer, exact), by_kind(exact_of_ce.to(peer.dtype), exact_of_ce)
        ce = {config: by_kind(load(folder / quantity, peer), exact_of_ce) for config, folder in computed}
        for i, kind in enumerate(kinds):
            entries.append({"case": problem.case.name, "quantity": quantity, "dtype": problem.dtype,
                            "columns": problem.columns, "kind": kind, "rows": problem.rows_of_kind,
                            "pytorch": pytorch[i], "rounded": rounded[i],
                            "ce": over_configs({config: figures[i] for config, figures in ce.items()})})
    return entries


def problems(arguments: argparse.Namespace) -> Iterator[Any]:
    import accuracy_cases

    for case in accuracy_cases.CASES:
        if not arguments.only or case.name in arguments.only:
            for dtype in arguments.dtype:
                for columns in arguments.columns:
                    rows = max(16, min(1024, arguments.elements // columns))
                    yield accuracy_cases.make_problem(case, dtype, columns, rows)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    import accuracy_cases

    torch.set_default_device("cpu" if arguments.device == "host" else arguments.device)
    torch.manual_seed(arguments.seed)
    entries: list[dict[str, Any]] = []
    waiting: collections.deque[tuple[Any, Path, Any]] = collections.deque()
    with tempfile.TemporaryDirectory(prefix="ce-accuracy-", dir=arguments.scratch) as scratch:
        ce = Ce(arguments.ce_tune, arguments.device, arguments.configs)

        def finish_first() -> None:
            problem, folder, future = waiting.popleft()
            computed = future.result()
            entries.extend(entries_of(problem, computed))
            shutil.rmtree(folder)
            print(f"{problem.case.name} {problem.dtype} {problem.columns}: {len(computed)} configs", file=sys.stderr)

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for problem in problems(arguments):
                folder = Path(tempfile.mkdtemp(dir=scratch))
                for name, tensor in problem.inputs.items():
                    save(tensor, folder / name)
                waiting.append((problem, folder, pool.submit(ce.compute_all, problem, folder)))
                if len(waiting) > arguments.jobs:
                    finish_first()
            while waiting:
                finish_first()
    return {
        "command": shlex.join(["bench/accuracy.py", *without_folders(sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gpu": ce.facts["device"]["model"]["name"],
        "driver": ce.facts["environment"].get("driver", "unknown"),
        "versions": {"ce": ce.version(), "PyTorch": torch.__version__, "CUDA": torch.version.cuda,
                     "Python": sys.version.split()[0]},
        "seed": arguments.seed,
        "kinds": accuracy_cases.LOGITS,
        "entries": entries,
    }


# ---- the command ---------------------------------------------------------------------------------------------------


def made_up(dtype: str, ce: float, pytorch: float, wrong: int = 0) -> dict[str, Any]:
    def figures(rms: float, count: int = 0) -> dict[str, Any]:
        return {"rms": rms, "largest": 4 * rms, "wrong": count}

    return {"case": "softmax", "quantity": "output", "dtype": dtype, "columns": 1000, "kind": "normal", "rows": 4,
            "pytorch": figures(pytorch), "rounded": figures(0.1),
            "ce": over_configs({"block": figures(ce / 2), "two_pass": figures(ce * math.sqrt(1.75), wrong)})}


def self_test() -> None:
    """The judgement and the page, of figures that are made up."""

    def expect(good: bool, what: str) -> None:
        if not good:
            sys.exit(f"accuracy.py: self-test: {what}")

    expect(excess(made_up("f32", 0.5, 0.5)) <= 1, "equal errors are worse")
    expect(excess(made_up("f32", 0.1, 0.01)) <= 1, "one rounding is too much")
    expect(excess(made_up("f32", 0.6, 0.5)) > 1, "20% more is fine")
    expect(excess(made_up("f32", 0.1, 0.5, wrong=1)) > 1, "a wrong infinity is fine")
    far = made_up("f32", 0.5, 0.5)
    far["ce"]["largest"] = 4
    expect(excess(far) > 1, "one element that is far off is fine")
    result = {"command": "bench/accuracy.py", "gpu": "Some GPU", "driver": "1", "versions": {"ce": "0"}, "seed": 1,
              "date": "2030-01-01T00:00:00Z", "kinds": {"normal": "as they are"},
              "entries": [made_up("f32", 0.6, 0.5), made_up("bf16", 0.2, 0.4)]}
    text = report(result)
    expect("worse than it may be in 1" in text and "f32 normal: ce 0.6 3.17 (two_pass)" in text, f"report\n{text}")
    narrow, wide = made_up("f32", 0.3, 0.5), made_up("f32", 0.6, 0.5)
    narrow["rows"] = 3 * wide["rows"]
    (both,) = over_widths([narrow, wide])
    expect(both["ce"]["rms"] == short(math.sqrt((3 * 0.3**2 + 0.6**2) / 4)) and both["rows"] == 16, f"widths: {both}")
    expect(without_folders(["--out", "/home/somebody/a.json", "b/c.json"]) == ["--out", "a.json", "b/c.json"], "folders")
    page = markdown(merged([result]), ["results.json"])
    for line in ("in 1: softmax output f32 normal (1.09 x).", "| softmax: output | 1.20 | 0.50 |"):
        expect(line in page, f"no {line!r} in\n{page}")
    page = table_page(merged([result]), ["results.json"])
    for line in ("| softmax: output | f32 | 0.5 | 0.6 | 1.20 | normal | 2 | 3.2 |",
                 "| softmax: output | bf16 | 0.4 | 0.2 | 0.50 | normal | 1.6 | 1.1 |"):
        expect(line in page, f"no {line!r} in\n{page}")
    overflow = made_up("f32", 0.3, 0.0)
    overflow["pytorch"]["wrong"] = 4
    entries = [made_up("f32", 0.6, 0.5), made_up("bf16", 0.2, 0.4), overflow]
    page = markdown({**result, "entries": entries}, ["results.json"])
    for line in (r"| softmax: output | 1.20 \* | 0.50 |", "is infinite or NaN"):
        expect(line in page, f"no {line!r} in\n{page}")
    print("accuracy.py: self-test passed")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def words(text: str) -> list[str]:
        return text.split(",")

    def widths(text: str) -> list[int]:
        return [int(word) for word in words(text)]

    parser.add_argument("--ce-tune", default="ce-tune", metavar="FILE",
                        help="ce-tune (default: the one in PATH)")
    parser.add_argument("--device", default="cuda:0", metavar="DEVICE",
                        help="device of ce and PyTorch: cuda:N, or host, which runs PyTorch on the CPU "
                        "(default: %(default)s)")
    parser.add_argument("--only", type=words, default=[], metavar="LIST", help="cases (default: all)")
    parser.add_argument("--dtype", type=words, default=list(EPSILON), metavar="LIST", help="default: all")
    parser.add_argument("--configs", type=int, metavar="N",
                        help="also run kernels of N variants in turn (default: of every variant)")
    parser.add_argument("--columns", type=widths, default=list(WIDTHS), metavar="LIST", help="default: %(default)s")
    parser.add_argument("--elements", type=int, default=1 << 22, metavar="N",
                        help="most elements of a kind of rows, about "
                        "(default: %(default)s; 16 to 1024 rows)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=8, metavar="N", help="problems at a time (default: %(default)s)")
    parser.add_argument("--scratch", metavar="FOLDER",
                        help="folder for tensors (default: the folder of temporary files)")
    parser.add_argument("--out", metavar="FILE", help="write every comparison as JSON")
    parser.add_argument("--markdown", nargs="+", metavar="FILE",
                        help="print docs/accuracy.md from files of --out, and exit")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print every figure from files of --out, and exit")
    parser.add_argument("--self-test", action="store_true", help="check this script without a GPU, and exit")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.self_test:
        self_test()
        return
    for paths, page in ((arguments.markdown, markdown), (arguments.table, table_page)):
        if paths is not None:
            results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
            print(page(merged(results), paths), end="")
            return
    result = measure(arguments)
    if arguments.out is not None:
        entries = ",\n".join(json.dumps(entry) for entry in result["entries"])
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(json.dumps({**result, "entries": []})[: -len("]}")] + "\n" + entries + "\n]}\n")
    print(report(result))
    sys.exit(any(excess(entry) > 1 for entry in over_widths(result["entries"])))


if __name__ == "__main__":
    main()
