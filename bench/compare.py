#!/usr/bin/env python3
"""Times ce-tune's winners and other libraries on the same shapes, in the same way, and prints the ratios.

    bench/compare.py -- --suite vocab
    bench/compare.py --out compare.json --peers torch,torch.compile,liger -- --op cross_entropy --dtype bf16

What follows -- goes to `ce-tune bench`, which says the shapes and times ce. The libraries that can be imported are then
timed on them: cold L2, CUDA graphs where they can be captured, medians. A library that cannot be imported, or fails on
a shape, is told with its reason. Ratios are its time over that of ce: above 1, ce is faster.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import math
import shlex
import subprocess
import sys
from typing import Any

import peers as peer_module
from documents import kind_of

# Options that not every peer has, or not in the same way: problems with them are not compared.
SPECIAL = ("batched", "strided", "probabilities", "smoothing", "z_loss", "softcap", "scale", "z_loss_out", "lse_out",
           "argmax_out", "hit_out")


def special_options(problem: dict[str, Any]) -> list[str]:
    named = [option for option in SPECIAL if problem.get(option)]
    if problem.get("weights"):
        named.append("weights")
    if problem.get("upstream", "one") != "one":
        named.append("upstream")
    return named


def run_ce(command: list[str]) -> dict[str, Any]:
    """The document of ce-tune bench. Problems that failed are in it with their reason."""
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        document: dict[str, Any] = json.loads(finished.stdout)
    except json.JSONDecodeError:
        sys.exit(f"compare.py: {shlex.join(command)} ended with {finished.returncode} and no document")
    if "problems" not in document:
        sys.exit(f"compare.py: {shlex.join(command)}: {document.get('error', {}).get('message', 'no problems')}")
    return document


# ---- timing the peers ----------------------------------------------------------------------------------------------


def make_inputs(kind: str, problem: dict[str, Any], peer: peer_module.Peer) -> peer_module.Inputs:
    import torch

    # Not the default generator, which a capture that failed leaves unusable.
    generator = torch.Generator("cuda").manual_seed(1)
    rows, columns = problem["timed_rows"], problem["columns"]
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
    x = torch.empty(rows, columns, dtype=dtype, device="cuda").normal_(0, 2, generator=generator)
    inputs = peer_module.Inputs(x=x, reduction=problem.get("reduction", "none"))
    if kind.startswith("cross_entropy"):
        target = torch.int32 if problem["target_dtype"] == "i32" else torch.int64
        inputs.target = torch.randint(columns, (rows,), device="cuda", generator=generator).to(target)
    elif kind.endswith("_backward"):
        logits = torch.empty_like(x).normal_(0, 2, generator=generator)
        inputs.y = torch.log_softmax(logits, -1) if kind.startswith("log") else torch.softmax(logits, -1)
    if kind in peer.overwrites:
        inputs.pristine = x.clone()
    return inputs


def time_kind(peer: peer_module.Peer, kind: str, problem: dict[str, Any], timer: Any) -> dict[str, Any]:
    import torch

    with torch.cuda.stream(timer.stream):
        inputs = make_inputs(kind, problem, peer)

        def restore() -> None:
            if inputs.pristine is not None:
                inputs.x.copy_(inputs.pristine)

        timing = timer.time(peer.prepare[kind](inputs), restore)
    return {**vars(timing), "gbs": problem["bytes"] / timing.median_us * 1e-3}


def time_peer(peer: peer_module.Peer, problem: dict[str, Any], timer: Any) -> dict[str, Any]:
    """Its timing, or {"error": reason}. Leaves nothing of the peer in memory."""
    import torch

    kind = kind_of(problem)
    if kind not in peer.prepare:
        return {"error": "has no such operation"}
    try:
        return time_kind(peer, kind, problem, timer)
    except Exception as error:  # one library must not end the comparison
        return {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    finally:
        torch.compiler.reset()  # also because it falls back to eager after some shapes
        gc.collect()
        torch.cuda.empty_cache()


def compare(document: dict[str, Any], loaded: list[peer_module.Peer], timer: Any) -> list[dict[str, Any]]:
    """One entry for each problem that ce finished: title, kind, ce and peers."""
    entries = []
    done = [problem for problem in document["problems"] if "median_us" in problem]
    for number, problem in enumerate(done, 1):
        print(f"[{number}/{len(done)}]  {problem['title']}", file=sys.stderr)
        special = special_options(problem)
        timings = {}
        for peer in loaded:
            if special:
                timings[peer.name] = {"error": f"not compared with {', '.join(special)}"}
            else:
                timings[peer.name] = time_peer(peer, problem, timer)
        keys = ("median_us", "spread", "gbs", "samples_us", "extra_bytes", "config", "share_of_ceiling")
        entries.append(
            {
                "title": problem["title"],
                "kind": kind_of(problem),
                "dtype": problem["dtype"],
                "rows": problem["timed_rows"],
                "columns": problem["columns"],
                "ce": {key: problem[key] for key in keys},
                "peers": timings,
            }
        )
    return entries


# ---- telling -------------------------------------------------------------------------------------------------------


def time_text(microseconds: float) -> str:
    return f"{microseconds:.1f} us" if microseconds < 1e4 else f"{microseconds / 1e3:.2f} ms"


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def table(rows: list[list[str]]) -> str:
    """The first row holds the titles; the first column is on the left, the others on the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def ratio(entry: dict[str, Any], peer: str) -> float | None:
    timing = entry["peers"][peer]
    return None if "error" in timing else timing["median_us"] / entry["ce"]["median_us"]


def summary(entries: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """For each kind, dtype and peer: geometric mean, least and most of the ratios, and over how many shapes."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["kind"], entry["dtype"]), []).append(entry)
    sums = []
    for (kind, dtype), members in groups.items():
        for name in names:
            ratios = [r for r in (ratio(entry, name) for entry in members) if r is not None]
            if ratios:
                mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                sums.append({"kind": kind, "dtype": dtype, "peer": name, "shapes": len(ratios),
                             "geometric_mean": mean, "least": min(ratios), "most": max(ratios)})
    return sums


def report(result: dict[str, Any]) -> str:
    entries, names = result["problems"], result["peers"]
    parts = []
    if entries:
        times = [["PROBLEM", "ce", *names]]
        memory = [["MEMORY BESIDE THE INPUTS", "ce", *names]]
        for entry in entries:
            cells, sizes = [], []
            for name in names:
                timing, times_ce = entry["peers"][name], ratio(entry, name)
                cells.append("-" if times_ce is None else f"{time_text(timing['median_us'])} ({times_ce:.2f}x)")
                sizes.append("-" if times_ce is None else size_text(timing["peak_bytes"]))
            times.append([entry["title"], time_text(entry["ce"]["median_us"]), *cells])
            memory.append([entry["title"], size_text(entry["ce"]["extra_bytes"]), *sizes])
        parts += [table(times), table(memory)]
    if result["summary"]:
        rows = [["TIME OF A PEER / TIME OF ce", "shapes", "mean", "least", "most"]]
        for s in result["summary"]:
            cells = [f"{s[key]:.2f}" for key in ("geometric_mean", "least", "most")]
            rows.append([f"{s['kind']}, {s['dtype']}: {s['peer']}", str(s["shapes"]), *cells])
        parts.append(table(rows))
    notes = [f"{name}: not available: {reason}" for name, reason in result["missing"].items()]
    for entry in entries:
        for name, timing in entry["peers"].items():
            if "error" in timing:
                notes.append(f"{entry['title']}: {name}: {timing['error']}")
            elif timing["method"] != "graph":
                notes.append(f"{entry['title']}: {name}: timed with {timing['method']}")
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts)


def versions(loaded: list[peer_module.Peer], document: dict[str, Any]) -> dict[str, str]:
    named = {peer.name: peer.version for peer in loaded}
    named["ce"] = document["version"]
    named["python"] = sys.version.split()[0]
    try:
        import torch

        named["cuda of torch"] = str(torch.version.cuda)
    except ImportError:
        pass
    return named


def result_of(
    document: dict[str, Any], entries: list[dict[str, Any]], loaded: list[peer_module.Peer], missing: dict[str, str]
) -> dict[str, Any]:
    names = [peer.name for peer in loaded]
    return {
        "command": shlex.join(["bench/compare.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gpu": document["device"]["model"]["name"],
        "driver": document["environment"].get("driver", "unknown"),
        "versions": versions(loaded, document),
        "peers": names,
        "missing": missing,
        "problems": entries,
        "summary": summary(entries, names),
        "ce_document": document,
    }


# ---- the command ---------------------------------------------------------------------------------------------------


def self_test() -> None:
    """The comparison without a GPU or any peer: what it says of timings that are made up."""

    class FakeTiming:
        def __init__(self, median_us: float) -> None:
            self.median_us, self.spread, self.samples_us = median_us, 0.0, [median_us]
            self.method, self.peak_bytes = "graph", 1 << 20

    plain = {"title": "softmax bf16 8 x 64", "operation": "softmax", "dtype": "bf16", "columns": 64, "timed_rows": 8,
             "median_us": 10.0, "spread": 0.0, "gbs": 1.0, "samples_us": [10.0], "extra_bytes": 1024, "bytes": 2048,
             "config": "block", "share_of_ceiling": 0.9}
    loss = {**plain, "title": "cross_entropy bf16 8 x 64 loss", "operation": "cross_entropy", "gradient": False}
    document = {
        "version": "0", "device": {"model": {"name": "Fake GPU"}}, "environment": {"driver": "1"},
        "problems": [plain, loss, {**loss, "smoothing": True, "gradient": True}, {"title": "failed", "error": {}}],
    }
    fast, slow = (peer_module.Peer(name, "1") for name in ("fast", "slow"))

    def fake_time_peer(peer: peer_module.Peer, problem: dict[str, Any], timer: Any) -> dict[str, Any]:
        if peer is fast and problem is loss:
            return {"error": "RuntimeError: out of memory"}
        return vars(FakeTiming(5.0 if peer is fast else 20.0))

    global time_peer
    real, time_peer = time_peer, fake_time_peer
    try:
        entries = compare(document, [fast, slow], None)
    finally:
        time_peer = real
    result = json.loads(json.dumps(result_of(document, entries, [fast, slow], {"gone": "ModuleNotFoundError: gone"})))
    text = report(result)

    def expect(good: bool, what: str) -> None:
        if not good:
            sys.exit(f"compare.py: self-test: {what}\n{text}")

    expect([entry["kind"] for entry in entries] == ["softmax", "cross_entropy loss", "cross_entropy loss+grad"],
           "kinds")
    for words in ("5.0 us (0.50x)", "20.0 us (2.00x)", "fast: RuntimeError: out of memory", "1.0 MiB", "1.0 KiB",
                  "not compared with smoothing", "gone: not available: ModuleNotFoundError"):
        expect(words in text, f"no {words!r}")
    means = {(s["kind"], s["peer"]): s["geometric_mean"] for s in result["summary"]}
    expect(means == {("softmax", "fast"): 0.5, ("softmax", "slow"): 2.0, ("cross_entropy loss", "slow"): 2.0},
           f"means {means}")
    loaded, missing = peer_module.load_peers(list(peer_module.LOADERS))
    expect({p.name for p in loaded}.isdisjoint(missing) and len(loaded) + len(missing) == len(peer_module.LOADERS),
           "a peer is neither here nor missing")
    for peer in loaded:
        expect(set(peer.prepare) <= set(peer_module.KINDS), f"kinds of {peer.name}")
    print("compare.py: self-test passed")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ce-tune", default="ce-tune", metavar="FILE",
                        help="ce-tune (default: the one in PATH)")
    parser.add_argument("--peers", default=",".join(peer_module.LOADERS), metavar="LIST", help="default: %(default)s")
    parser.add_argument("--samples", type=int, default=30, metavar="N",
                        help="samples of each kernel (default: %(default)s)")
    parser.add_argument("--out", metavar="FILE", help="write everything as JSON")
    parser.add_argument("--self-test", action="store_true", help="check this script without a GPU, and exit")
    parser.add_argument("bench", nargs="*", metavar="-- OPTION ...", help="options of ce-tune bench")
    arguments = parser.parse_args()
    arguments.peers = arguments.peers.split(",")
    for name in arguments.peers:
        if name not in peer_module.LOADERS:
            parser.error(f'--peers: "{name}" is none of {", ".join(peer_module.LOADERS)}')
    if arguments.samples < 1:
        parser.error(f"--samples: {arguments.samples} is less than 1")
    if arguments.out is not None:
        try:  # better known before the timing than after it
            with open(arguments.out, "a", encoding="utf-8"):
                pass
        except OSError as error:
            parser.error(f"--out: {error}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.self_test:
        self_test()
        return
    document = run_ce([arguments.ce_tune, "bench", "--json", "--samples", str(arguments.samples), *arguments.bench])
    if document["device"]["device"] == "host":
        sys.exit("compare.py: ce-tune found no GPU, and times of the host device say nothing about a GPU")
    loaded, missing = peer_module.load_peers(arguments.peers)
    timer = None
    if loaded:
        import gpu_timer
        import torch

        torch.cuda.set_device(document["device"]["device"])
        timer = gpu_timer.Timer(arguments.samples)
    result = result_of(document, compare(document, loaded, timer), loaded, missing)
    print(report(result))
    if arguments.out is not None:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
