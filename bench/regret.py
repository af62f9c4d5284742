#!/usr/bin/env python3
"""How far from the best is what ce finds, or guesses? For a GPU.

Every problem is searched twice from scratch: exhaustively, and as `ce.run()` would on first use. The two winners, and
what would run without any search, are then timed beside each other in turns. Prints each problem and the quantiles;
--json keeps all of it. With --repeat N, the first N problems are searched ten times from scratch, and the winners timed
beside each other.

    bench/regret.py --ce-tune build/release/bin/ce-tune --problems 64 --json regret.json
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

COLUMNS = [128, 512, 1000, 2048, 4096, 8192, 16384, 32000, 50257, 65536, 100277, 128256, 151936, 262144]
ROWS = [64, 256, 1024, 4096, 16384, 65536]
OPERATIONS = {
    "softmax": ["--op", "softmax"],
    "softmax_backward": ["--op", "softmax_backward"],
    "loss": ["--op", "cross_entropy", "--loss-only"],
    "loss+grad": ["--op", "cross_entropy", "--reduction", "mean"],
    "gradient from lse": ["--op", "cross_entropy_backward"],
}
SIZES = {"f32": 4, "bf16": 2, "f16": 2}
MOST_BYTES = 1 << 30  # of one matrix


def problems_of(count, seed):
    """As many problems of every operation and dtype, rows and columns drawn."""
    draw = random.Random(seed)
    problems = []
    kinds = [(operation, dtype) for operation in OPERATIONS for dtype in SIZES]
    for i in range(count):
        operation, dtype = kinds[i % len(kinds)]
        columns = draw.choice(COLUMNS)
        rows = draw.choice([rows for rows in ROWS if rows * columns * SIZES[dtype] <= MOST_BYTES])
        problems.append((operation, dtype, rows, columns))
    return problems


class Tuner:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.searches = 0

    def run(self, *words):
        # What is not told a database finds none.
        environment = {**os.environ, "CE_DB": str(self.folder / "none.db")}
        finished = subprocess.run([self.program, *words, "--json"], capture_output=True, text=True, check=False,
                                  env=environment)
        if finished.returncode != 0:
            sys.exit(f"{' '.join(words)}: {finished.stderr.strip().splitlines()[-1]}")
        return json.loads(finished.stdout)

    def words(self, problem):
        operation, dtype, rows, columns = problem
        return [*OPERATIONS[operation], "--dtype", dtype, "--rows", str(rows), "--cols", str(columns)]

    def search(self, problem, strategy, keep=None):
        """From scratch: in a database of its own, which `keep` collects."""
        self.searches += 1
        database = self.folder / f"{self.searches}.db"
        swept = self.run("sweep", *self.words(problem), "--strategy", strategy, "--db", str(database))
        if keep:
            self.run("db", "merge", str(database), "--db", str(keep))
        database.unlink()
        return swept["problems"][0], swept

    def guess(self, problem):
        return self.run("source", *self.words(problem))["config"]

    def time(self, problem, configs, samples):
        """Median time of each config, in microseconds. Short kernels get more samples: they spread more."""
        words = [word for config in sorted(set(configs)) for word in ("--config", config)]

        def medians(count):
            timed = self.run("time", *self.words(problem), *words, "--samples", str(count), "--db",
                             str(self.folder / "binaries.db"))
            return {timing["config"]: timing["median_us"] for timing in timed["timings"]}

        times = medians(samples)
        more = min(20, int(300 / min(times.values())))
        return medians(samples * more) if more > 1 else times


def quantiles(values):
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))],
        "worst": ordered[-1],
    }


def shown(name, values):
    found = quantiles(values)
    return f"{name}: median {found['median']:.2%}, p95 {found['p95']:.2%}, worst {found['worst']:.2%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ce-tune", required=True)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--skip", type=int, default=0, help="problems at the beginning to leave out")
    parser.add_argument("--repeat", type=int, default=0, help="problems that are searched ten times")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further problem after so long")
    parser.add_argument("--keep", help="database for what the exhaustive searches measured")
    parser.add_argument("--json", help="file for all figures")
    arguments = parser.parse_args()

    end = time.monotonic() + arguments.seconds
    found = []
    stable = []
    about = {}
    with tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(arguments.ce_tune, folder)
        for problem in problems_of(arguments.problems, arguments.seed)[arguments.skip :]:
            if time.monotonic() > end:
                print(f"no time for more than {len(found)} problems")
                break
            title = " ".join(map(str, problem))
            best, _ = tuner.search(problem, "exhaustive", arguments.keep)
            chosen, about = tuner.search(problem, "halving")
            guess = tuner.guess(problem)
            times = tuner.time(problem, [best["winner"], chosen["winner"], guess], arguments.samples)
            least = min(times.values())
            found.append({
                "problem": title,
                "exhaustive": best["winner"],
                "exhaustive_seconds": best["seconds"],
                "winner": chosen["winner"],
                "seconds": chosen["seconds"],
                "tried": chosen["tried"],
                "configs": chosen["configs"],
                "without_search": guess,
                "times_us": times,
                "regret": times[chosen["winner"]] / times[best["winner"]] - 1,
                "speed_without_search": times[chosen["winner"]] / times[guess],
            })
            last = found[-1]
            print(f"{title:42} regret {last['regret']:7.2%}  {last['seconds']:.2f} s for {last['tried']:3} of "
                  f"{last['configs']:3}  without search {last['speed_without_search']:.2f}  {least:.1f} us", flush=True)
            if len(found) <= arguments.repeat:
                winners = [tuner.search(problem, "halving")[0]["winner"] for _ in range(10)]
                again = tuner.time(problem, winners, 2 * arguments.samples)
                stable.append({"problem": title, "winners": winners, "times_us": again,
                               "apart": max(again.values()) / min(again.values()) - 1})
                print(f"{'':42} ten searches: {len(again)} winners, {stable[-1]['apart']:.2%} apart", flush=True)

    print(shown("regret", [each["regret"] for each in found]))
    seconds = [each["seconds"] for each in found]
    print(f"a first search: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    print(f"speed without a search, of that with one: "
          f"median {statistics.median(each['speed_without_search'] for each in found):.1%}")
    if arguments.json:
        document = {key: about[key] for key in ("version", "date", "device", "evidence")}
        document.update({"command": " ".join(sys.argv), "regret": quantiles([each["regret"] for each in found]),
                         "problems": found, "stability": stable})
        pathlib.Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
