#!/usr/bin/env python3
"""How far from the best is what ce finds, or guesses? For a GPU.

Every problem is searched twice from scratch: exhaustively, and as `ce.run()` would on first use. The two winners, and
what would run without any search, are then timed beside each other in turns. With --repeat N, N of the problems are
searched nine times more from scratch, and all winners timed beside each other. Prints each problem and the quantiles.

    bench/regret.py --ce-tune build/release/bin/ce-tune --problems 64 --repeat 12 --json regret.json

With --recorded FILE ..., what exhaustive searches measured some time ago (bench/lab/record_searches.py) is not measured
again: the three fastest configs that were recorded of a problem stand for its exhaustive winner, the fastest of them
today. With --known FILE, what would run without a search where that database is there is timed, too, of problems that it
does not have: their neighbours serve them.

Several GPUs share the work: with --part I/N, one process takes every N-th problem, from the I-th on; each has a --json and
a --keep of its own, and --join FILE ... puts the documents into one.

It goes on where --json and --keep end: problems that the one has are not looked at again, unless for --repeat or, without
another search, for what --known serves; configs that the other has from an exhaustive search with today's templates are
not measured again. So regret comes first and stability second with --repeat 0, and then with more.
"""

import argparse
import concurrent.futures
import functools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

from whole_file import write_whole

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
    while len(problems) < count:
        operation, dtype = kinds[len(problems) % len(kinds)]
        columns = draw.choice(COLUMNS)
        rows = draw.choice([rows for rows in ROWS if rows * columns * SIZES[dtype] <= MOST_BYTES])
        if (operation, dtype, rows, columns) not in problems:
            problems.append((operation, dtype, rows, columns))
    return problems


RECORDED = {
    "softmax": "softmax {dtype} ",
    "softmax_backward": "softmax_backward {dtype} ",
    "loss": "cross_entropy {dtype} target=i64 loss=f32 mean ",
    "loss+grad": "cross_entropy {dtype} target=i64 loss=f32 mean gradient in_place ",
    "gradient from lse": "cross_entropy_backward {dtype} target=i64 loss=f32 mean gradient in_place ",
}


def name_of(problem):
    """As documents name it."""
    return " ".join(map(str, problem))


def text_of(problem):
    """As the key of its measurements names it."""
    operation, dtype, rows, columns = problem
    alignment = "shifted" if columns * SIZES[dtype] % 16 else "vector"
    return f"{RECORDED[operation].format(dtype=dtype)}cols={columns} align={alignment} rows<={rows} l2=cold"


def lines_of(recording):
    """Of a text, or of all texts of an archive."""
    if ".tar" not in recording.suffixes:
        return recording.read_text().splitlines()
    with tarfile.open(recording) as archive:
        return [line for text in archive for line in archive.extractfile(text).read().decode().splitlines()]


@functools.cache
def stores(variant):
    """Whether the variant has the axis: without an output there is none."""
    template = pathlib.Path(__file__).resolve().parents[1] / "templates" / "kernels" / f"{variant}.cuh"
    return "// axis store" in template.read_text(encoding="utf-8")


def recorded_configs(files):
    """Of recordings, the configs of each problem by its text, the fastest first."""
    problems = {}
    for line in (line for file in files for line in lines_of(file)):
        if line.startswith(("#", "device ")):
            continue
        if line.startswith(("problem ", "partial ")):
            kind, _, rest = line.partition(" ")
            # The best of a partial search may not be the best.
            configs = problems.setdefault(rest.split(" | ")[0], []) if kind == "problem" else []
            continue
        structure, *words = line.split()
        figures = [word for word in words if word != "spills" and not word.startswith("registers=")]
        for modifiers, median in zip(figures[::3], figures[1::3]):
            load, store = modifiers.split(".")
            configs.append((float(median), f"{structure},load={load}" +
                            (f",store={store}" if stores(structure.partition("/")[0]) else "")))
    return {problem: [config for _, config in sorted(configs)] for problem, configs in problems.items()}


class Tuner:
    def __init__(self, program, folder, configs):
        self.program, self.folder = program, pathlib.Path(folder)
        self.breadth = ["--configs", str(configs)] if configs else []
        self.searches = 0

    def run(self, *words):
        # What is not told a database finds none; a search from scratch knows no winner that ships either.
        environment = {**os.environ, "CE_DB": str(self.folder / "none.db"), "CE_SYSTEM_DB": "none", "CE_SITE_DB": ""}
        finished = subprocess.run([self.program, *words, "--json"], capture_output=True, text=True, check=False,
                                  env=environment)
        document = json.loads(finished.stdout or "{}")
        # A sweep that failed for one problem has the others.
        if finished.returncode != 0 and not any("winner" in swept for swept in document.get("problems", [])):
            raise RuntimeError(f"{' '.join(words)}: {(finished.stderr.strip().splitlines() or ['failed'])[-1]}")
        return document

    def words(self, problem):
        operation, dtype, rows, columns = problem
        return [*OPERATIONS[operation], "--dtype", dtype, "--rows", str(rows), "--cols", str(columns)]

    def search_all(self, problems, database):
        """Exhaustively, by one process, in a database that keeps what was measured: the winner of each and the seconds
        that it took."""
        lines = ["op,dtype,rows,cols,loss-only,reduction"]
        for problem in problems:
            options = dict(zip(OPERATIONS[problem[0]][::2], [*OPERATIONS[problem[0]][1::2], "true"]))
            lines.append(",".join([options["--op"], *map(str, problem[1:]), options.get("--loss-only", ""),
                                   options.get("--reduction", "")]))
        file = self.folder / "problems.csv"
        file.write_text("\n".join(lines) + "\n")
        swept = self.run("sweep", "--from", str(file), "--strategy", "exhaustive", *self.breadth, "--db",
                         str(database))["problems"]
        return [{"configs": [report["winner"]], "seconds": report["seconds"]} if "winner" in report else report
                for report in swept]

    def search(self, problem):
        """From scratch, in a database of its own, with nothing compiled before: the report, and the document."""
        self.searches += 1
        database = self.folder / f"{self.searches}.db"
        swept = self.run("sweep", *self.words(problem), *self.breadth, "--db", str(database))
        for file in self.folder.glob(f"{database.name}*"):
            file.unlink()
        return swept["problems"][0], swept

    def guess(self, problem):
        return self.run("source", *self.words(problem))["config"]

    def served(self, problem, known):
        """By the neighbours that a database knows; nothing where it knows the problem itself."""
        chosen = self.run("source", *self.words(problem), "--db", str(known))
        return None if "known winner" in chosen["origin"] else chosen["config"]

    def time(self, problem, configs, samples, about_us, database):
        """Median times of each config, in microseconds, one of each process. Short kernels get more samples, which
        spread more, and several processes: what a process has may make one of them faster than another."""
        ordered = sorted(set(configs))
        launches_a_sample = 4 if about_us < 30 else 1  # as ce-tune takes them
        count = samples * max(1, min(20, int(300 / about_us)) // launches_a_sample)
        processes = 3 if about_us < 30 else 1
        times = {}
        for process in range(processes):
            # Each begins with another: what is loaded, and timed, before a kernel may make it faster or slower.
            first = process % len(ordered)
            words = [word for config in ordered[first:] + ordered[:first] for word in ("--config", config)]
            timed = self.run("time", *self.words(problem), *words, "--samples", str(count), "--db", str(database))
            for timing in timed["timings"]:
                times.setdefault(timing["config"], []).append(timing["median_us"])
        return times


def typical(values):
    """Mean of the middle half."""
    ordered, outer = sorted(values), len(values) // 4
    return statistics.fmean(ordered[outer : len(ordered) - outer])


def longer(times, slower, faster):
    """How much longer the slowest of some configs takes than the fastest of others, as processes typically say. Each is
    asked of those that the other processes call the slowest and the fastest, as the fastest of its own would be so by
    luck, too."""
    processes = len(next(iter(times.values())))
    said = []
    for judge in range(processes):
        others = [other for other in range(processes) if other != judge] or [judge]

        def elsewhere(config):
            return typical([times[config][other] for other in others])

        said.append(times[max(slower, key=elsewhere)][judge] / times[min(faster, key=elsewhere)][judge])
    return typical(said) - 1


def quantiles(values):
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[round(0.95 * (len(ordered) - 1))],
        "worst": ordered[-1],
    }


def shown(name, values):
    found = quantiles(values)
    return f"{name}: median {found['median']:.2%}, p95 {found['p95']:.2%}, worst {found['worst']:.2%}"


def spread_out(count, among):
    """As many places as count, evenly among so many."""
    return {round(i * among / count) for i in range(count)}


def look_at(tuner, problem, best, guess, served, arguments, searches):
    """One problem's figures; those of the winners of all searches, where there are several; and ce-tune's document."""
    found = [tuner.search(problem) for _ in range(searches)]
    chosen, about = found[0]
    winners = [report["winner"] for report, _ in found]
    times = tuner.time(problem, [*best["configs"], guess, *winners, *([served] if served else [])], arguments.samples,
                       chosen["median_us"], arguments.keep)
    title = name_of(problem)
    again = {winner: times[winner] for winner in sorted(set(winners))}
    typically = {config: typical(each) for config, each in times.items()}
    figures = {
        "problem": title,
        "exhaustive": min(best["configs"], key=typically.get),
        "exhaustive_seconds": best["seconds"],
        "winner": winners[0],
        "seconds": chosen["seconds"],
        "tried": chosen["tried"],
        "configs": chosen["configs"],
        "without_search": guess,
        "times_us": times,
        "regret": longer(times, winners[:1], best["configs"]),
        "speed_without_search": typically[winners[0]] / typically[guess],
    }
    if served:
        figures |= {"served": served, "regret_served": longer(times, [served], best["configs"])}
    stable = {"problem": title, "winners": winners, "seconds": [report["seconds"] for report, _ in found],
              "times_us": again, "apart": longer(again, again, again)}
    return figures, stable if searches > 1 else None, about


def look_at_served(tuner, figures, problem, served, arguments):
    """Adds to a problem's figures those of what its neighbours serve, beside the best and the winner of earlier."""
    about_us = min(map(typical, figures["times_us"].values()))
    times = tuner.time(problem, [figures["exhaustive"], figures["winner"], served], arguments.samples, about_us,
                       arguments.keep)
    return figures | {"served": served, "served_times_us": times,
                      "regret_served": longer(times, [served], [figures["exhaustive"]])}


def look_at_unserved(tuner, document, problems, arguments, end):
    """look_at_served() of all problems of a document that have no such figures yet."""
    by_name = {name_of(problem): problem for problem in problems}
    places = [place for place, figures in enumerate(document["problems"])
              if "served" not in figures and figures["problem"] in by_name]
    unserved = [by_name[document["problems"][place]["problem"]] for place in places]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        served = list(pool.map(lambda problem: tuner.served(problem, arguments.known), unserved))
    if any(served):
        document["command"] += "; " + " ".join(sys.argv)
    for place, problem, near in zip(places, unserved, served):
        if time.monotonic() > end:
            break
        if near:
            figures = look_at_served(tuner, document["problems"][place], problem, near, arguments)
            document["problems"][place] = figures
            print(f"{figures['problem']:36} served by neighbours {figures['regret_served']:.2%}", flush=True)
            write(document, pathlib.Path(arguments.json))


def part(text):
    i, _, n = text.partition("/")
    if not (i.isdigit() and n.isdigit() and 1 <= int(i) <= int(n)):
        raise argparse.ArgumentTypeError(f'"{text}"; expected I/N with I from 1 to N')
    return int(i), int(n)


def joined(documents):
    """One document of those of several processes, with the machine and the command of the first."""
    whole = {**documents[0], "command": "; ".join(document["command"] for document in documents)}
    for kind in ("problems", "stability"):
        whole[kind] = [each for document in documents for each in document[kind]]
    return whole


def write(document, file):
    document["regret"] = quantiles([each["regret"] for each in document["problems"]])
    write_whole(file, json.dumps(document, indent=1) + "\n")


def print_line(figures, stable):
    seconds = figures["exhaustive_seconds"]
    print(f"{figures['problem']:36} regret {figures['regret']:7.2%}  {figures['seconds']:.2f} s for "
          f"{figures['tried']:3} of {figures['configs']:3} ({'recorded' if seconds is None else f'{seconds:.1f} s'})  "
          f"without search {figures['speed_without_search']:.2f}  "
          + (f"served by neighbours {figures['regret_served']:.2%}  " if "served" in figures else "")
          + f"{min(map(typical, figures['times_us'].values())):.1f} us", flush=True)
    if stable:
        print(f"{'':36} ten searches: {len(stable['times_us'])} winners, {stable['apart']:.2%} apart", flush=True)


def tell(document, of):
    """The quantiles of the problems that were timed of so many."""
    found = document["problems"]
    if not found:
        sys.exit("nothing was timed")
    print(f"{len(found)} of {of} problems")
    print(shown("regret", [each["regret"] for each in found]))
    if any("served" in each for each in found):
        print(shown("served by neighbours", [each["regret_served"] for each in found if "served" in each]))
    if document["stability"]:
        print(shown("ten searches apart", [each["apart"] for each in document["stability"]]))
    seconds = [each["seconds"] for each in found]
    print(f"a first search: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    print(f"speed without a search, of that with one: "
          f"median {statistics.median(each['speed_without_search'] for each in found):.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ce-tune", help="the program ce-tune; not needed with --join")
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=0,
                        help="number of problems that are searched ten times, spread over all problems")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further problem after this time")
    parser.add_argument("--configs", type=int, default=0, help="most configs of a search, to try this script")
    parser.add_argument("--recorded", type=pathlib.Path, nargs="+", default=[], metavar="FILE",
                        help="recordings of exhaustive searches, as text or packed")
    parser.add_argument("--known", type=pathlib.Path, metavar="FILE", help="database of other problems")
    parser.add_argument("--keep", default="regret.db", help="database of the exhaustive searches (default: %(default)s)")
    parser.add_argument("--json", default="regret.json", help="file for all figures (default: %(default)s)")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N", help="only every N-th problem")
    parser.add_argument("--join", type=pathlib.Path, nargs="+", default=[], metavar="FILE",
                        help="only join these documents into --json, without timing")
    arguments = parser.parse_args()
    for file in (*arguments.recorded, *arguments.join, *([arguments.known] if arguments.known else [])):
        if not file.exists():
            parser.error(f"{file} does not exist")

    file = pathlib.Path(arguments.json)
    if arguments.join:
        document = joined([json.loads(other.read_text()) for other in arguments.join])
        write(document, file)
        return tell(document, arguments.problems)
    if not arguments.ce_tune:
        parser.error("--ce-tune is missing")

    end = time.monotonic() + arguments.seconds
    document = json.loads(file.read_text()) if file.exists() else {"problems": [], "stability": []}
    repeated = spread_out(arguments.repeat, arguments.problems)
    done = [{each["problem"] for each in document[kind]} for kind in ("problems", "stability")]
    first_of_part, parts = arguments.part
    drawn = list(enumerate(problems_of(arguments.problems, arguments.seed)))[first_of_part - 1 :: parts]
    left = [(i, problem) for i, problem in drawn if name_of(problem) not in done[i in repeated]]
    recorded = recorded_configs(arguments.recorded)
    failures = 0
    together = 5  # a process takes most of a second to find the GPU
    with tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(arguments.ce_tune, folder, arguments.configs)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            guesses = list(pool.map(tuner.guess, [problem for _, problem in left]))
            served = list(pool.map(lambda problem: arguments.known and tuner.served(problem, arguments.known),
                                   [problem for _, problem in left]))
        for first in range(0, len(left), together):
            if time.monotonic() > end:
                break
            few = left[first : first + together]
            fastest = [recorded.get(text_of(problem), [])[:3] for _, problem in few]
            searched = iter(tuner.search_all([problem for (_, problem), known in zip(few, fastest) if not known],
                                             arguments.keep) if not all(fastest) else [])
            reports = [{"configs": known, "seconds": None} if known else next(searched) for known in fastest]
            for (i, problem), best, guess, near in zip(few, reports, guesses[first:], served[first:]):
                if time.monotonic() > end:
                    break
                try:
                    figures, stable, about = look_at(tuner, problem, best, guess, near, arguments,
                                                     10 if i in repeated else 1)
                except (RuntimeError, KeyError) as error:
                    failures += 1
                    print(f"{name_of(problem)}: {best.get('error', error)}", flush=True)
                    continue
                print_line(figures, stable)
                for kind, found in (("problems", figures), ("stability", stable)):
                    others = [each for each in document[kind] if each["problem"] != figures["problem"]]
                    document[kind] = others + [found] if found else document[kind]
                document.update({key: about[key] for key in ("version", "date", "device", "environment")})
                document["command"] = " ".join(sys.argv)
                write(document, file)  # after each: whatever ends this, nothing that was timed is lost

        if arguments.known:
            look_at_unserved(tuner, document, [problem for _, problem in drawn], arguments, end)

    tell(document, arguments.problems)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
