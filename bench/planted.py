#!/usr/bin/env python3
"""Does `ce-tune regressions` find a kernel that became slower? With slowdowns planted, for a GPU.

Programs are built from this source tree with one template edited (variant `block`): `1-in-66` does one row in 66 twice,
1.5% more work. A row is done half a matrix before its turn, too, so that it has left the caches by then where it can.
Kernels of which all blocks run at once would take twice as long with that, so in `200-cycles` each block does nothing
for 200 cycles more between its reduction and its outputs. That is what a release with a slower kernel is: another digest
of the template, and the same config. Afterwards the template is as it was.

Each program fills a database of its own, as a user's would be: one `sweep`, then in turns with the others `check` after
`check`, each a process of its own. Searches try a single config, the one that would run without a search, which is the
same in all programs; where that is not one of `block`, nothing is asked.

Then, as often as --draws says, some checks of the planted program and as many of the unplanted one are drawn, no two
lots twice, and `ce-tune regressions --against` is asked about databases that have only these. Ten times as often this
is asked of two lots of unplanted checks, none of them in both. How much slower the planted kernels are in truth is the
ratio of the medians of all checks.

    cmake --preset release && cmake --build --preset release
    bench/planted.py --build build/release --programs programs --runs planted --json planted.json

Programs and runs that are there already are not made again, so that one machine can build, one with a GPU record, and
any ask.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

from whole_file import write_whole

SOURCE = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = SOURCE / "templates" / "kernels" / "block.cuh"
KERNEL = "CE_KERNEL(ce_row, 32 * ce::config::warps) {"
ONE_ROW = "CE_DEVICE void ce_one_row(const Arguments& arguments, ce::int64 row_index) {"
SOME_TWICE = KERNEL + """
  const int block = int(ce::block_index()), half = int(ce::block_count() / 2);
  if (block < half && block % EVERY == 0) {
    ce_one_row(arguments, block + half);
    ce::block_barrier();  // the next row takes the same shared memory
  }
  ce_one_row(arguments, block);
}
"""
WAIT_BEFORE = "  operation.finalize(stats);"
PLAIN = "unplanted"
# Of which not all blocks run at once.
PROBLEMS = ["bf16:1024x4096", "bf16:4096x2048", "f32:2048x4096", "bf16:8192x2048", "bf16:8192x4096", "f32:4096x4096",
            "bf16:8192x8192", "f32:8192x4096", "bf16:32768x4096", "f32:16384x4096", "f32:32768x4096", "bf16:131072x4096"]
RUNS = """
SELECT m.id, p.text, m.median_us FROM measurements AS m
JOIN keys AS k ON k.id = m.key_id JOIN problems AS p ON p.id = k.problem_id
WHERE m.stage < 0 AND m.outcome = 'measured' AND m.config LIKE 'block/%' ORDER BY m.created_at, m.id
"""


def ask(program, *words, codes=(0,)):
    """What a program answers; the databases of this machine are none of its business."""
    finished = subprocess.run([program, *words, "--json"], capture_output=True, text=True, check=False,
                              env={**os.environ, "CE_DB": "/nonexistent", "CE_SITE_DB": "", "CE_SYSTEM_DB": "none"})
    if finished.returncode not in codes:
        sys.exit(f"{' '.join(map(str, words))}: {finished.returncode} {finished.stderr.strip()}")
    return json.loads(finished.stdout)


def edited(template, name):
    """The template of a program by that name."""
    if name == PLAIN:
        return template
    period = re.fullmatch(r"1-in-(\d+)", name)
    at = KERNEL if period else WAIT_BEFORE
    head, found, body = template.partition(at)
    if not found:
        sys.exit(f"{TEMPLATE} no longer has the line {at}")
    if not period:
        return f"{head}  for (auto end = clock64() + {int(name.split('-')[0])}; clock64() < end;) {{}}\n{at}{body}"
    one_row = ONE_ROW + body.replace("block_index()", "row_index")
    # By blocks of the first half.
    return head + one_row + "\n" + SOME_TWICE.replace("EVERY", str(int(period[1]) // 2))


def build_programs(build, names, folder):
    """In folders by name."""
    template = TEMPLATE.read_text()
    try:
        for name in names:
            TEMPLATE.write_text(edited(template, name))
            subprocess.run(["cmake", "--build", build, "--target", "ce-tune"], check=True, stdout=subprocess.DEVNULL)
            (folder / name).mkdir(parents=True)
            shutil.copy(build / "bin" / "ce-tune", folder / name)
    finally:
        TEMPLATE.write_text(template)


def record(programs, problems, folder, options, rounds, seconds):
    """A database for each program, with a check of each problem for every round, and where in it each round ends."""
    end = time.monotonic() + seconds
    ends = {name: [] for name in programs}
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as shapes:
        shapes.write("op,dtype,rows,cols\n")
        for dtype, rows, columns in (re.split("[:x]", problem) for problem in problems):
            shapes.write(f"softmax,{dtype},{rows},{columns}\n")
        shapes.flush()
        for name, program in programs.items():
            ask(program, "sweep", "--from", shapes.name, "--configs", "1", "--db", folder / f"{name}.db",
                *options["device"])
            ends[name].append(last_measurement(folder / f"{name}.db"))
    order = list(programs)
    for number in range(rounds):
        if time.monotonic() > end:
            print(f"no time for more than {number} rounds")
            break
        random.shuffle(order)
        for name in order:
            ask(programs[name], "check", "--db", folder / f"{name}.db", *options["device"], *options["check"],
                codes=(0, 3, 4))
            ends[name].append(last_measurement(folder / f"{name}.db"))
    write_whole(folder / "rounds.json", json.dumps(ends))
    for name in programs:  # questions need no binaries
        with sqlite3.connect(folder / f"{name}.db") as database:
            database.execute("DELETE FROM binaries")
        database.execute("VACUUM")
        database.close()


def last_measurement(database):
    with sqlite3.connect(database) as connection:
        last, = connection.execute("SELECT MAX(id) FROM measurements").fetchone()
    connection.close()
    return last


def runs_of(database):
    """(id, median in microseconds) by problem, the oldest first."""
    runs = {}
    with sqlite3.connect(database) as connection:
        for number, problem, median_us in connection.execute(RUNS):
            runs.setdefault(problem, []).append((number, median_us))
    connection.close()
    return runs


class Asker:
    """Asks about some checks of a folder's databases."""

    def __init__(self, program, folder, names, count, seed):
        self.program, self.folder, self.count = program, folder, count
        self.runs = {name: runs_of(folder / f"{name}.db") for name in names}
        self.ends = json.loads((folder / "rounds.json").read_text())
        self.rounds = min(len(ends) for ends in self.ends.values()) - 1
        self.engine = random.Random(seed)
        if self.rounds < 2 * count:
            sys.exit(f"{self.rounds} checks of each problem; expected {2 * count} at least")

    def only(self, name, rounds, to):
        """A copy of that program's database, without the runs of other rounds."""
        ends = self.ends[name]
        kept = [run for runs in self.runs[name].values() for run, _ in runs
                if any(ends[i] < run <= ends[i + 1] for i in rounds)]
        shutil.copy(self.folder / f"{name}.db", to)
        with sqlite3.connect(to) as connection:
            trigger, = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'measurements_refuse_delete'"
                                          ).fetchone()
            connection.execute("DROP TRIGGER measurements_refuse_delete")
            connection.execute(f"DELETE FROM measurements WHERE id NOT IN ({','.join(map(str, kept))})")
            connection.execute(trigger)
            connection.execute("DELETE FROM key_counts")
            connection.execute("INSERT INTO key_counts SELECT * FROM counted_keys")
        connection.close()
        return to

    def findings(self, name, before, after):
        """Of the unplanted program's runs of some rounds, against those of the named one's, by problem."""
        with tempfile.TemporaryDirectory() as folder:
            found = ask(self.program, "regressions", "--against", self.only(PLAIN, before, f"{folder}/before.db"),
                        "--db", self.only(name, after, f"{folder}/after.db"), codes=(0, 3, 4))
        return {finding["problem_text"]: finding for finding in found["findings"]}

    def draws(self, name, times):
        """Findings of as many draws, or of as many as there are."""
        rounds, apart = range(self.rounds), name == PLAIN
        there_are = math.comb(self.rounds, self.count) * math.comb(self.rounds - self.count * apart, self.count)
        drawn = {}
        while len(drawn) < min(times, there_are):
            before = self.engine.sample(rounds, self.count)
            after = self.engine.sample([i for i in rounds if not apart or i not in before], self.count)
            drawn[tuple(sorted(before)), tuple(sorted(after))] = None
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda pair: self.findings(name, *pair), drawn))

    def median_us(self, name, problem):
        return statistics.median(median_us for _, median_us in self.runs[name][problem])


def ask_all(asker, names, draws):
    """Every program against the unplanted one, by problem; the shortest problem first."""
    found = {}
    for problem in sorted(asker.runs[PLAIN], key=lambda problem: asker.median_us(PLAIN, problem)):
        found[problem] = {"median_us": asker.median_us(PLAIN, problem), "programs": {}}
    for name in names:
        drawn = asker.draws(name, 10 * draws if name == PLAIN else draws)
        of_all = {} if name == PLAIN else asker.findings(name, range(asker.rounds), range(asker.rounds))
        for problem, entry in found.items():
            verdicts = [each[problem]["verdict"] for each in drawn]
            its = entry["programs"][name] = {
                "truth": asker.median_us(name, problem) / entry["median_us"],
                "draws": len(verdicts),
                **{verdict: verdicts.count(verdict) for verdict in ("slower", "faster", "same", "unsure")},
            }
            if problem in of_all:
                its["all_runs"] = {key: of_all[problem][key] for key in ("verdict", "ratio", "interval", "suspects")}
            entry["title"], entry["config"] = drawn[0][problem]["title"], drawn[0][problem]["before"]["config"]
    return list(found.values())


def shown(found, names):
    """A table: false alarms, then the truth and how often it was found, for each planted program."""
    lines = [f"{'':26} {'us':>7}  {PLAIN:>16}" + "".join(f"  {name:>22}" for name in names if name != PLAIN)]
    for entry in found:
        nothing = entry["programs"][PLAIN]
        alarms = nothing["slower"] + nothing["faster"]
        line = f"{entry['title']:26} {entry['median_us']:7.1f}  {alarms:6} of {nothing['draws']:6}"
        for name in names:
            if name != PLAIN:
                its = entry["programs"][name]
                line += f"  {its['truth'] - 1:+7.2%} {its['slower']:6} of {its['draws']:4}"
        lines.append(line)
    return "\n".join(lines)


def about(database):
    """Where and when the runs were made."""
    with sqlite3.connect(database) as connection:
        device, = connection.execute("SELECT text FROM device_models").fetchone()
        environment, date = connection.execute("SELECT e.json, m.created_at FROM measurements AS m JOIN environments AS e "
                                            "ON e.id = m.environment_id ORDER BY m.id DESC").fetchone()
    connection.close()
    names = ("ce", "driver", "nvrtc", "compiler", "temperature_c", "sm_clock_mhz", "throttle")
    return {"device": device, "date": date,
            "environment": {key: value for key, value in json.loads(environment).items() if key in names}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path,
                        help="build tree of this source tree, which builds the programs and whose ce-tune judges them")
    parser.add_argument("--programs", required=True, type=pathlib.Path, help="folder for the programs")
    parser.add_argument("--runs", type=pathlib.Path, help="folder for the runs; without it, only programs are built")
    parser.add_argument("--periods", type=int, nargs="*", default=[66, 32],
                        help="of each N rows, one is computed twice")
    parser.add_argument("--cycles", type=int, nargs="*", default=[200, 400], help="cycles for which each block waits")
    parser.add_argument("--rounds", type=int, default=20, help="checks of each program")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further round after this time")
    parser.add_argument("--draws", type=int, default=100, help="verdicts about each planted program")
    parser.add_argument("--checks-a-side", type=int, default=1)
    parser.add_argument("--runs-a-check", type=int, help="runs of a check (default: as many as ce-tune chooses)")
    parser.add_argument("--problem", action="append", metavar="DTYPE:ROWSxCOLUMNS",
                        help="problem of softmax; may be repeated")
    parser.add_argument("--device", help="device of ce-tune")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", help="file for all figures")
    arguments = parser.parse_args()

    if not arguments.programs.exists():
        if arguments.build is None:
            parser.error("--build is needed to make the programs")
        build_programs(arguments.build, [f"1-in-{period}" for period in arguments.periods] +
                       [f"{count}-cycles" for count in arguments.cycles] + [PLAIN], arguments.programs)
    programs = {folder.name: folder / "ce-tune" for folder in sorted(arguments.programs.iterdir())}
    if arguments.runs is None:
        return
    if not arguments.runs.exists():
        arguments.runs.mkdir()
        options = {"device": ["--device", arguments.device] if arguments.device else [],
                   "check": ["--runs", str(arguments.runs_a_check)] if arguments.runs_a_check else []}
        record(programs, arguments.problem or PROBLEMS, arguments.runs, options, arguments.rounds, arguments.seconds)
    if arguments.draws == 0:
        return
    names = sorted((path.stem for path in arguments.runs.glob("*.db")), key=lambda name: (name != PLAIN, name))
    program = arguments.build / "bin" / "ce-tune" if arguments.build else programs[PLAIN]
    asker = Asker(program, arguments.runs, names, arguments.checks_a_side, arguments.seed)
    found = ask_all(asker, names, arguments.draws)
    print(f"{asker.rounds} checks of each, {arguments.checks_a_side} drawn a side. Unplanted: alarms. Planted: truth "
          "and how often it is found.")
    print(shown(found, names))
    for name in names:
        entries = [entry["programs"][name] for entry in found]
        total = sum(entry["draws"] for entry in entries)
        faster, slower = (sum(entry[verdict] for entry in entries) for verdict in ("faster", "slower"))
        print(f"{name}: of {total} verdicts {slower} slower, {faster} faster")
    if arguments.json:
        document = {**about(arguments.runs / f"{PLAIN}.db"), "command": " ".join(sys.argv), "rounds": asker.rounds,
                    "checks_a_side": arguments.checks_a_side, "problems": found}
        write_whole(pathlib.Path(arguments.json), json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
