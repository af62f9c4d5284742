#!/usr/bin/env python3
"""How much sooner several GPUs of one machine finish a sweep: the same 60 problems with each number of GPUs.

    bench/sweep_scaling.py --ce-tune build/release/bin/ce-tune --gpus 1,2,4 --out sweep-scaling.json

Each sweep is `ce-tune sweep --device cuda:all` with a database of its own, which is empty at the start, and searches as
far as a sweep does by default: some 2 seconds a problem. CUDA_VISIBLE_DEVICES says which GPUs it sees. Seconds are of
the whole command. A sweep that left a problem without a winner has no ratio, and the exit status is then 1.

What a sweep may have lost for its time is there, too: `unfinished` counts searches that ended early, and
`winners_over_first` is the geometric mean of its winners' times over those of the first sweep.

    bench/sweep_scaling.py --ce-tune build/ci/bin/ce-tune --device host --gpus 1,2 --problems 4 --shrink 256

rehearses it on as many processes of the host device, with smaller problems; its ratios mean nothing.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

VOCABULARIES = (32000, 50257, 128256, 151936, 262144)
MAIN = (32000, 128256, 151936)
COLUMNS = ("op", "dtype", "rows", "cols", "smoothing", "z-loss", "loss-only")


def lines(
    op: str, dtype: str, rows: tuple[int, ...], widths: tuple[int, ...], option: str = ""
) -> list[dict[str, Any]]:
    return [
        {"op": op, "dtype": dtype, "rows": count, "cols": width, **({option: "true"} if option else {})}
        for count in rows
        for width in widths
    ]


def problems() -> list[dict[str, Any]]:
    """What users train and serve with: losses of vocabularies, sampling, and softmax of attention's widths."""
    return [
        *lines("cross_entropy", "bf16", (4096, 8192, 16384), VOCABULARIES),
        *lines("cross_entropy", "f32", (4096, 8192), MAIN),
        *lines("cross_entropy", "bf16", (8192,), MAIN, "smoothing"),
        *lines("cross_entropy", "bf16", (8192,), MAIN, "z-loss"),
        *lines("cross_entropy", "bf16", (8192,), MAIN, "loss-only"),
        *lines("cross_entropy_backward", "bf16", (8192,), (128256, 151936)),
        *lines("softmax", "f32", (1, 8, 64, 256), MAIN),
        *lines("log_softmax", "f32", (8, 64), MAIN),
        *lines("log_softmax", "bf16", (8192,), (32000, 128256)),
        *lines("softmax", "bf16", (16384,), (1024, 2048, 4096, 8192)),
        *lines("softmax_backward", "bf16", (16384,), (1024, 2048, 4096, 8192)),
    ]


def spread_out(listed: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """So many of all of them, of every kind."""
    return [listed[i * len(listed) // count] for i in range(min(count, len(listed)))]


def table(listed: list[dict[str, Any]], shrink: int) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for one in listed:
        writer.writerow({**one, "rows": max(1, one["rows"] // shrink), "cols": max(1, one["cols"] // shrink)})
    return text.getvalue()


def visible(gpus: int) -> str:
    """The first GPUs of those that this process may use."""
    mine = os.environ.get("CUDA_VISIBLE_DEVICES")
    return ",".join((mine.split(",") if mine else [str(i) for i in range(gpus)])[:gpus])


def sweep(ce_tune: Path, device: str, gpus: int, shapes: Path, database: Path, limit: float) -> dict[str, Any]:
    """One sweep, into an empty database."""
    environment = {**os.environ, "CE_SITE_DB": "", "CE_SYSTEM_DB": "none"}
    if device == "host":
        devices = ",".join(["host"] * gpus)
    else:
        devices, environment["CUDA_VISIBLE_DEVICES"] = "cuda:all", visible(gpus)
    command = [ce_tune, "sweep", "--from", shapes, "--device", devices, "--db", database, "--json"]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"gpus": gpus, "error": f"not done within {limit:g} s", "tuned": 0}
    seconds = time.monotonic() - begin
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return {"gpus": gpus, "error": f"exit status {done.returncode}, no document", "tuned": 0}
    swept = document.get("problems", [])
    tuned = [one for one in swept if one.get("winner")]
    by_device: dict[str, int] = {}
    for one in tuned:
        where = one.get("device", devices)  # a sweep on one device says it once
        by_device[where] = by_device.get(where, 0) + 1
    return {
        "gpus": gpus,
        "seconds": round(seconds, 2),
        "exit_status": done.returncode,
        "tuned": len(tuned),
        "unfinished": sum(bool(one.get("unfinished")) for one in tuned),
        "tuned_by_device": by_device,
        "search_seconds": round(sum(one["seconds"] for one in tuned), 2),
        "configs_measured": sum(one["measured"] for one in tuned),
        "configs_compiled": sum(one["compiled"] for one in tuned),
        "median_us": {one["title"]: one["median_us"] for one in tuned},
        "model": document.get("device", {}).get("model", {}).get("name", ""),
    }


def compare(runs: list[dict[str, Any]], count: int) -> tuple[dict[str, float], bool]:
    """How many times as fast each sweep is as each with fewer GPUs; and whether all of them tuned everything."""
    whole = [run for run in runs if run["tuned"] == count and run["exit_status"] == 0]
    ratios = {
        f"{few['gpus']} to {many['gpus']}": round(few["seconds"] / many["seconds"], 3)
        for few in whole
        for many in whole
        if few["gpus"] < many["gpus"]
    }
    for run in whole:
        logs = [math.log(time_us / whole[0]["median_us"][title]) for title, time_us in run["median_us"].items()]
        run["winners_over_first"] = round(math.exp(sum(logs) / len(logs)), 4)
    return ratios, len(whole) == len(runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ce-tune", type=Path, required=True)
    parser.add_argument("--gpus", default="1,2,4", help="numbers of GPUs to sweep with (default: 1,2,4)")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--problems", type=int, default=60, metavar="N", help="number of problems, of the 60")
    parser.add_argument("--shrink", type=int, default=1, metavar="N", help="divide rows and columns by N")
    parser.add_argument(
        "--limit", type=float, default=600, metavar="SECONDS", help="longest time of one sweep (default: 600)"
    )
    parser.add_argument("--list", action="store_true", help="print the problems, as sweep --from reads them")
    parser.add_argument("--out", type=Path, help="JSON file, rewritten after each sweep")
    options = parser.parse_args()
    counts = [int(count) for count in options.gpus.split(",")]
    if not counts or min(counts) < 1 or options.problems < 1 or options.shrink < 1:
        parser.error("--gpus, --problems, --shrink: expected numbers of 1 or more")
    listed = spread_out(problems(), options.problems)
    if options.list:
        print(table(listed, options.shrink), end="")
        return 0

    runs: list[dict[str, Any]] = []
    complete = False
    with tempfile.TemporaryDirectory(prefix="ce-scaling-") as temporary:
        folder = Path(temporary)
        shapes = folder / "shapes.csv"
        # One problem beforehand: the first sweep is not the one that reads the libraries from the disk.
        shapes.write_text(table(listed[-1:], options.shrink))
        sweep(options.ce_tune, options.device, max(counts), shapes, folder / "first.db", options.limit)
        shapes.write_text(table(listed, options.shrink))
        for gpus in counts:
            runs.append(sweep(options.ce_tune, options.device, gpus, shapes, folder / f"{gpus}.db", options.limit))
            ratios, complete = compare(runs, len(listed))
            result = {
                "date": date.today().isoformat(),
                "processors": os.cpu_count(),
                "compile_workers": os.environ.get("CE_COMPILE_WORKERS", "default"),  # of each process, where it is set
                "problems": len(listed),
                "runs": runs,
                "ratios": ratios,
            }
            if options.out:
                options.out.write_text(json.dumps(result, indent=1) + "\n")
            brief = {name: value for name, value in runs[-1].items() if name != "median_us"}
            print(json.dumps(brief), file=sys.stderr, flush=True)
    print(json.dumps({"problems": len(listed), "ratios": ratios}))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
