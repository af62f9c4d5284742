"""What record_searches.py, fit_registers.py and regret.py of bench make of databases, recordings and documents; needs no
GPU."""

import argparse
import json
import pathlib
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tarfile
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "lab")]

import fit_registers  # noqa: E402
import regret  # noqa: E402


def kernel(words, cross_entropy, inputs, registers, threads=256):
    return {"variant": "block", "operation": "cross_entropy" if cross_entropy else "softmax", "inputs": str(inputs),
            "threads": str(threads), "words": str(words), "registers": str(registers)}


class RecordSearches(unittest.TestCase):
    SCREENING, FINAL = 0, 1
    UNTIMED = "untimed"

    def recorded(self, *measurements):
        """What it writes below the device of measurements (config, stage, median in us, day), which are added in this
        order; one without a median is a quarantine, one UNTIMED a measurement that has none."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "searches.db"
            database = sqlite3.connect(file)
            database.executescript("""
                CREATE TABLE problems (id, text);
                CREATE TABLE device_models (id, text);
                CREATE TABLE keys (id, problem_id, device_model_id);
                CREATE TABLE environments (id, json);
                CREATE TABLE measurements (id INTEGER PRIMARY KEY, config, stage, median_us, created_at, outcome,
                  key_id DEFAULT 1, spread DEFAULT 0.01, rows DEFAULT 8, bytes DEFAULT 64, registers DEFAULT 40,
                  local_bytes DEFAULT 0, environment_id DEFAULT 1);
                INSERT INTO problems VALUES (1, 'p');
                INSERT INTO device_models VALUES (1, 'GPU');
                INSERT INTO keys VALUES (1, 1, 1);
                INSERT INTO environments VALUES (1, '{}');""")
            database.executemany(
                "INSERT INTO measurements (config, stage, median_us, created_at, outcome) VALUES (?, ?, ?, ?, ?)",
                [(f"{config},load=ca,store=wb", stage, None if us == self.UNTIMED else us or 0, f"2030-01-{day:02}",
                  "measured" if us else "quarantined") for config, stage, us, day in measurements])
            database.commit()
            database.close()
            written = subprocess.run([sys.executable, "-B", BENCH / "lab" / "record_searches.py", file], capture_output=True,
                                     text=True, check=True).stdout
        return [line for line in written.splitlines() if not line.startswith(("#", "device "))]

    def test_a_final_counts_and_of_several_the_last(self):
        self.assertEqual(self.recorded(("block/warps=2", self.FINAL, 7, 1), ("block/warps=2", self.FINAL, 6, 2),
                                       ("block/warps=2", self.SCREENING, 9, 3),
                                       ("block/warps=4", self.SCREENING, 8, 3)),
                         ["problem p | 8 64", "block/warps=2 ca.wb 6 1.0 registers=40",
                          "block/warps=4 ca.wb 8 1.0 registers=40"])

    def test_what_was_quarantined_since_is_left_out(self):
        kept = ("block/warps=4", self.SCREENING, 8, 1)
        whole = ["problem p | 8 64", "block/warps=4 ca.wb 8 1.0 registers=40"]
        self.assertEqual(self.recorded(kept, ("block/warps=2", self.SCREENING, 7, 1),
                                       ("block/warps=2", self.FINAL, 7, 1),
                                       ("block/warps=2", self.SCREENING, None, 2)), whole)
        # Merging adds what is older afterwards.
        self.assertEqual(self.recorded(kept, ("block/warps=2", self.SCREENING, None, 2),
                                       ("block/warps=2", self.FINAL, 7, 1)), whole)
        self.assertEqual(self.recorded(("block/warps=4", self.SCREENING, None, 0), kept), whole)

    def test_what_has_no_median_is_left_out(self):
        self.assertEqual(self.recorded(("block/warps=2", self.FINAL, 7, 1), ("block/warps=2", self.FINAL, self.UNTIMED, 2),
                                       ("block/warps=4", self.FINAL, self.UNTIMED, 2)),
                         ["problem p | 8 64", "block/warps=2 ca.wb 7 1.0 registers=40"])

    def test_a_problem_with_nothing_left_is_left_out(self):
        self.assertEqual(self.recorded(("block/warps=2", self.FINAL, 7, 1),
                                       ("block/warps=2", self.SCREENING, None, 2)), [])


class FitRegisters(unittest.TestCase):
    def test_a_line_is_found_again(self):
        kernels = [kernel(words, ce, inputs, 20 + 1.5 * words + 6 * ce - 4 * (inputs == 2))
                   for words in range(4, 64, 4) for ce in (0, 1) for inputs in (1, 2)]
        kernels += [kernel(8, 0, 1, 200)]  # one of them is none of the line's
        line, wrong = fit_registers.fit(kernels)
        for found, expected, near in zip(line, (20, 1.5, 6, -4), (1, 0.1, 0.5, 0.5)):
            self.assertAlmostEqual(found, expected, delta=near)
        self.assertEqual(wrong, 1)

    def test_what_never_varies_has_no_share(self):
        line, wrong = fit_registers.fit([kernel(words, 1, 1, 30 + words) for words in range(8, 80, 8)])
        self.assertEqual(line[2:], [0, 0])
        self.assertEqual(wrong, 0)

    def test_blocks_are_those_that_registers_and_threads_leave(self):
        self.assertEqual(fit_registers.blocks(32, 256), 8)
        self.assertEqual(fit_registers.blocks(33, 256), 6)
        self.assertEqual(fit_registers.blocks(24, 1024), 2)


class Regret(unittest.TestCase):
    def test_a_recorded_structure_may_say_registers_and_spills_and_has_the_axes_of_its_variant(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "recording.txt"
            file.write_text("# a comment\ndevice GPU\nproblem p | 8 64\n"
                            "block/warps=2 ca.wb 7.5 1.0 cs.cs 6.5 2.0 registers=40\n"
                            "warp/warps=4 ca.wb 5.5 1.0 registers=255 spills\n"
                            "transpose/warps=4 ca.wb 8.5 1.0\npersistent_reduce/warps=13 cs.wb 9.5 1.0\n")
            configs = {"p": ["warp/warps=4,load=ca,store=wb", "block/warps=2,load=cs,store=cs",
                             "block/warps=2,load=ca,store=wb", "transpose/warps=4,load=ca",
                             "persistent_reduce/warps=13,load=cs"]}
            self.assertEqual(regret.recorded_configs([file]), configs)
            packed = file.with_name("recording-2030-01-01.tar.xz")
            with tarfile.open(packed, "w:xz") as archive:
                archive.add(file, file.name)
            self.assertEqual(regret.recorded_configs([packed]), configs)

    def test_luck_is_no_regret_and_a_difference_is(self):
        draw = random.Random(1)

        def found(truth, slower, faster):
            """The mean of many runs of 15 processes that are 3% apart, of kernels that in truth take so long."""
            runs = [{config: [us * draw.gauss(1, 0.03) for _ in range(15)] for config, us in truth.items()}
                    for _ in range(400)]
            return statistics.fmean(regret.longer(times, slower, faster) for times in runs)

        self.assertAlmostEqual(found(dict.fromkeys("abcd", 8), "a", "bcd"), 0, delta=0.002)
        self.assertAlmostEqual(found(dict.fromkeys("abcd", 8), "abcd", "abcd"), 0, delta=0.002)
        self.assertAlmostEqual(found({"a": 8.8, "b": 8, "c": 8.4}, "a", "bc"), 0.1, delta=0.003)
        self.assertAlmostEqual(found({"a": 8.8, "b": 8, "c": 8.4}, "abc", "abc"), 0.1, delta=0.003)

    def test_one_process_judges_itself(self):
        self.assertAlmostEqual(regret.longer({"a": [8], "b": [10]}, ["b"], ["a", "b"]), 0.25)

    def test_parts_are_numbered_from_one(self):
        self.assertEqual(regret.part("2/3"), (2, 3))
        for wrong in ("0/2", "3/2", "1", "a/b", "1/"):
            with self.assertRaises(argparse.ArgumentTypeError):
                regret.part(wrong)

    def test_a_document_that_cannot_be_written_leaves_the_one_before(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "regret.json"
            document = {"problems": [{"problem": "one", "regret": 0.5}], "stability": []}
            regret.write(document, file)
            before = file.read_text()
            document["problems"] *= 100
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as if the disk were full
            try:
                with self.assertRaises(OSError):
                    regret.write(document, file)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            self.assertEqual(file.read_text(), before)
            self.assertEqual(list(file.parent.iterdir()), [file])
            regret.write(document, file)
            self.assertEqual(len(json.loads(file.read_text())["problems"]), 100)

    def test_joined_documents_have_the_problems_of_all(self):
        documents = [{"command": name, "date": name, "problems": [name], "stability": []} for name in ("one", "two")]
        self.assertEqual(regret.joined(documents),
                         {"command": "one; two", "date": "one", "problems": ["one", "two"], "stability": []})


if __name__ == "__main__":
    unittest.main()
