"""bench/tables.py on documents that are made up, and that the pages ask for every table that it writes."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "bench"))

import documents  # noqa: E402
import figures  # noqa: E402
import tables  # noqa: E402


def problem(columns, share=0.5, operation="softmax", variant="block", **others):
    return {"operation": operation, "dtype": "bf16", "rows": 8, "columns": columns, "share_of_ceiling": share,
            "config": f"{variant}/warps=1", "median_us": 10.0, "gbs": 4000.0, "ceiling": {"gbs": 4300.0}, **others}


def document(date, problems, **others):
    return {"date": date, "version": "1", "device": {"model": {"name": "Some GPU"}},
            "environment": {"driver": "2", "nvrtc": "3"}, "problems": problems, **others}


def comparison(date, peers, missing=()):
    compared = {"kind": "softmax", "dtype": "bf16", "rows": 8, "columns": 1024, "peers": peers,
                "ce": {"median_us": 10.0, "extra_bytes": 8 * 1024 * 2}}
    return {"problems": [compared], "missing": dict.fromkeys(missing, "ImportError"), "versions": {"torch": "9"},
            "ce_document": document(date, [])}


def timing(median_us, method="graph"):
    return {"median_us": median_us, "method": method, "peak_bytes": 3 * 8 * 1024 * 2}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        (self.folder / f"{name}.json").write_text(json.dumps(content))

    def table(self, name):
        return figures.BLOCKS[name](figures.Page(documents.Results(self.folder), self.folder))

    def command(self, *words):
        """Exit status, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), \
                unittest.mock.patch("sys.argv", ["tables.py", "--results", str(self.folder), *map(str, words)]):
            return tables.main(), said.getvalue()


class Reading(Folder):
    def test_a_later_document_replaces_cells_whatever_its_name(self):
        self.write("gpu-2030-01-02-widths-a", document("2030-01-02T11:00:00Z", [problem(1024, 0.91)]))
        before = [problem(columns, 0.82) for columns in (128, 1024, 4096)]
        self.write("gpu-2030-01-02-widths-b", document("2030-01-02T10:00:00Z", before))
        text = self.table("widths").replace("\n", " ")
        self.assertIn("| 128 | 82.0% | 4.00 | block |", text)
        self.assertIn("| 1024 | 91.0% | 4.00 | block |", text)
        self.assertIn("Some GPU, driver 2, NVRTC 3, ce 1. "
                      "bf16: [widths-b](gpu-2030-01-02-widths-b.json) 2030-01-02 10:00, "
                      "[widths-a](gpu-2030-01-02-widths-a.json) 2030-01-02 11:00 (1024).", text)

    def test_what_was_not_finished_replaces_nothing(self):
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024, 0.82)]))
        failed, unreached = problem(1024, error={"kind": "compile"}), problem(1024)
        for each in (failed, unreached):
            del each["median_us"]
        self.write("gpu-2030-01-02-widths-a", document("2030-01-02T00:00:00Z", [failed, unreached]))
        self.assertIn("| 1024 | 82.0% |", self.table("widths"))

    def test_gpus_are_not_mixed(self):
        for gpu in ("one", "two-80gb"):
            self.write(f"{gpu}-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024)]))
        with self.assertRaisesRegex(ValueError, "documents of one, two-80gb: choose with --gpu"):
            documents.Results(self.folder)
        self.assertEqual(len(documents.Results(self.folder, "two-80gb").widths), 1)

    def test_options_are_told_apart(self):
        off = {"gradient": True, "smoothing": False, "z_loss": False, "weights": None, "softcap": False}
        for number, (on, time) in enumerate([({}, 10.0), ({"softcap": True}, 12.0), ({"weights": "bf16"}, 15.0)]):
            entry = problem(1024, operation="cross_entropy", **{**off, **on})
            self.write(f"gpu-2030-01-01-options-{number}",
                       document("2030-01-01T00:00:00Z", [{**entry, "median_us": time}]))
        text = self.table("options")
        for line in ("| no options | 10 us |", "| soft cap | 12 us, +20.0% |", "| weights in bf16 | 15 us, +50.0% |"):
            self.assertIn(line, text)

    def test_alarms_are_of_both_kinds_and_planted_slowdowns_those_found_slower(self):
        programs = {"unplanted": {"truth": 1.0, "draws": 90, "slower": 2, "faster": 3},
                    "1-in-66": {"truth": 1.0309, "draws": 30, "slower": 29, "faster": 1}}
        entry = {"title": "softmax f32 32 x 1024", "median_us": 12.4, "programs": programs}
        recorded = document("2030-01-01T00:00:00Z", [entry], device="Some GPU|cc=90")
        self.write("gpu-2030-01-01-planted", recorded)
        text = self.table("planted")
        self.assertIn("| problem | time | 1 row in 66 | unplanted: alarms |", text)
        self.assertIn("| softmax f32 32 x 1024 | 12 us | +3.1%: 29 of 30 | 5 of 90 |", text)
        self.assertIn("Some GPU, driver 2", text)

    def test_calls_are_those_of_the_newest_record(self):
        line = "{} (median)  1 ns  2 ns  3 bare={} plan=4k plan_beyond={} run=5k run_beyond={}\n"
        for day, run in ((1, "990"), (2, "120")):
            text = "first launch beyond the creation of the context: 5.25 ms (database, 0 kernels compiled)\n"
            for name in figures.CALLS:
                text += line.format(name, "4k", "-5", run) + line.format(name, "6k", "40", run) * 2
            (self.folder / f"gpu-2030-01-0{day}-call-cost.txt").write_text(text)
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024)]))
        self.assertIn("| softmax, 64 rows | 6.0 | 0.12 | 0.04 |", self.table("call-cost"))
        self.assertIn("3 processes, 2030-01-02.", self.table("call-cost"))
        page = figures.Page(documents.Results(self.folder), self.folder)
        self.assertEqual(figures.INLINE["call-beyond-the-launch"](page), "0.12 us")
        self.assertEqual(figures.INLINE["first-launch-known"](page), "5.2 ms")

    def test_regret_is_of_the_last_run_alone(self):
        for day, worst in ((2, 0.5), (1, 0.25)):
            found = {"tried": 3, "configs": 9, "seconds": 1.0, "speed_without_search": 0.5}
            self.write(f"gpu-2030-01-0{day}-regret", document(
                f"2030-01-0{day}T00:00:00Z", [found] * day, regret={"median": 0.0, "p95": 0.1, "worst": worst}))
        page = figures.Page(documents.Results(self.folder), self.folder)
        self.assertEqual(figures.INLINE["regret"](page), "median 0.0%, 95th percentile 10.0%, worst 50.0%")
        self.assertEqual(figures.INLINE["regret-problems"](page), "2")

    def test_regret_of_what_neighbours_serve_is_of_those_that_they_served(self):
        self.write("gpu-2030-01-01-regret", document(
            "2030-01-01T00:00:00Z", [{}, *({"regret_served": i / 100} for i in range(21))]))
        page = figures.Page(documents.Results(self.folder), self.folder)
        self.assertEqual(figures.INLINE["regret-served"](page), "median 10.0%, 95th percentile 19.0%, worst 20.0%")
        self.assertEqual(figures.INLINE["regret-served-problems"](page), "21")

    def test_the_aim_is_met_by_what_rounds_to_it(self):
        problems = [problem(columns, share) for columns, share in ((1024, 0.9596), (2048, 0.9594), (4096, 0.97))]
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", problems))
        self.assertIn("| softmax | bf16 | 2048: 95.9% |", self.table("below-the-aim"))


class Peers(Folder):
    def test_ratios_are_of_one_run_and_failures_replace_nothing(self):
        first = {"torch": timing(20.0), "liger": timing(15.0, "events (no graph)")}
        second = {"torch": timing(40.0), "liger": {"error": "out of memory"}, "torch.compile": timing(10.0)}
        self.write("gpu-2030-01-01-compare-a", comparison("2030-01-01T00:00:00Z", first,
                                                          ["gone", "torch.compile", "called-otherwise"]))
        self.write("gpu-2030-01-02-compare-a", {**comparison("2030-01-02T00:00:00Z", second),
                                                "command": "compare.py --peers torch,called-otherwise -- --op softmax"})
        text = self.table("peers")
        for words in ("| softmax: torch | 4.00 |", "| softmax: torch.compile | 1.00 |", r"| softmax: liger | 1.50 \* |",
                      r"- \* softmax, liger: timed with `events (no graph)`.", "- gone was not there: `ImportError`.",
                      "torch, torch.compile: [compare-a](gpu-2030-01-02-compare-a.json) 2030-01-02 00:00"):
            self.assertIn(words, text.replace("\n", " "))
        self.assertNotIn("out of memory", text)
        self.assertNotIn("torch.compile was not there", text)
        self.assertNotIn("called-otherwise was not there", text)
        self.assertIn("| softmax | 4.0 | 1.5 | 1.0 |", self.table("peer-ranges"))
        self.assertIn("| softmax | 1.00 | 3.00 | 3.00 | 3.00 |", self.table("memory"))

    def test_the_summary_is_over_the_columns_of_the_others(self):
        compared = comparison("2030-01-01T00:00:00Z", {"torch": timing(20.0), "liger": timing(15.0), "other": timing(1.0)})
        self.write("gpu-2030-01-01-compare-a", compared)
        widths = [problem(512, 0.1), problem(1024, 0.98)]
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", widths))
        self.assertIn("| softmax | 98% | 2.0 | - | - | 1.5 |", self.table("summary"))


class Linear(Folder):
    """What bench/linear.py wrote."""

    def setUp(self):
        super().setUp()
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024)]))

    def linear(self, name, shape, results, gradients=True, **others):
        entry = {"shape": shape, "gradients": gradients, "results": results}
        about = {"gpu": "Some GPU", "driver": "2", "torch": "9", "date": name[4:14]}
        self.write(name, {"machine": about, "measured": [{**entry, **others}], "versions": {"quack": "7"}})

    def test_peers_are_columns_and_runs_of_one_day_are_one_table(self):
        products = {"products": {"median_ms": 10.0, "over_products": 1.0}, "products-torch": {"median_ms": 11.0}}
        quack = {"median_ms": 12.0, "over_products": 1.2, "beyond_bytes": 1 << 30}
        against = {"quack": {"agrees": True}, "cce": {"agrees": False}}
        self.linear("gpu-2030-01-02-linear", "8x4x100", {**products, "quack": quack, "cce": {"error": "no"}},
                    against_ce=against)
        self.linear("gpu-2030-01-02-linear-2", "8x4x200", {**products, "ce-4g": quack})
        self.linear("gpu-2030-01-02-linear-3", "8x4x200", {**products, "ce-4g": quack}, gradients=False)
        self.linear("gpu-2030-01-01-linear", "8x4x300", {**products, "torch": quack})
        text = self.table("linear")
        self.assertIn("loss and gradients | products alone | torch's products | ce, 4 GiB | quack | CCE |", text)
        self.assertIn("| 8 x 4 x 100 | 10.0 ms | 11.0 ms |  | 12.0 ms, 1.20 (1.0 GiB) | refuses |", text)
        self.assertIn("| 8 x 4 x 200 | 10.0 ms | 11.0 ms | 12.0 ms, 1.20 (1.0 GiB) |  |  |", text)
        self.assertEqual(text.count("| 8 x 4 x 200 |"), 2)
        self.assertNotIn("8 x 4 x 300", text)
        self.assertIn("The gradients of CCE differ from ce's by more than rounding.", " ".join(text.split()))
        self.assertIn("quack 7", text)

    def test_memory_of_older_documents_is_less_their_gradients(self):
        results = 2 * (8 + 100) * 4
        own = {"median_ms": 3.0, "peak_bytes": (1 << 30) + results}
        for gradients, name in ((True, "gpu-2030-01-02-linear"), (False, "gpu-2030-01-03-linear")):
            taken = (1 << 30) + (results if gradients else 0)
            self.linear(name, "8x4x100", {"products": {"median_ms": 1.0}, "ce, 4 GiB": {**own, "peak_bytes": taken}},
                        gradients)
            self.assertIn("| 1.0 ms | 3.0 ms (1.0 GiB) |", self.table("linear"))
        self.assertIn("of logits where a step", " ".join(self.table("linear").split()))


    def test_the_summary_names_the_fastest_of_the_other_libraries(self):
        times = {"products": 10.0, "products-torch": 9.0, "ce-4g": 11.0, "ce-512m": 13.0, "liger": 15.0, "quack": 12.0}
        results = {name: {"median_ms": ms, "over_products": ms / 10, "beyond_bytes": 1 << 30}
                   for name, ms in times.items()}
        self.linear("gpu-2030-01-02-linear", "8x4x100", {**results, "compile": {"error": "no"}})
        self.linear("gpu-2030-01-02-linear-2", "8x4x100", {**results, "quack": {"error": "no"}}, gradients=False)
        self.linear("gpu-2030-01-02-linear-3", "8x4x200", {name: results[name] for name in ("products", "ce-4g")},
                    gradients=False)
        text = self.table("linear-summary")
        self.assertIn("| 8 x 4 x 100 | 10.0 ms | 1.10 (1.0 GiB) | 1.30 (1.0 GiB) | quack 1.20 (1.0 GiB) "
                      "| 10.0 ms | 1.10 | Liger-Kernel 1.50 |", text)
        self.assertIn("| 8 x 4 x 200 | - | - | - | - | 10.0 ms | 1.10 | - |", text)


class Ranks(Folder):
    """What bench/ranks.py and bench/ranks_linear.py wrote."""

    def setUp(self):
        super().setUp()
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024)]))
        (self.folder / "other").mkdir()

    def ranks(self, name, gpu, over_copy, **others):
        results = [{"rows": 8, "classes": 100 * (1 + number), "ranks": 2, "over_copy": {"copy": 1.0, **each},
                    "ms": {"copy": 0.5}} for number, each in enumerate(over_copy)]
        self.write(name, {"gpu": gpu, "torch": "9", "nccl": "2", "date": name.split("gpu-")[1][:10],
                          "results": results, **others})

    def test_every_gpu_and_number_of_ranks_has_its_newest_document(self):
        self.ranks("other/x-gpu-2030-01-02-ranks-2", "NVIDIA X1 80GB", [{"ce": 1.1}, {"ce": 1.2, "liger": 5.55}],
                   peers={"liger": "7"})
        self.ranks("a-gpu-2030-01-01-ranks-2", "NVIDIA A2", [{"ce": 9.0}])
        self.ranks("a-gpu-2030-01-03-ranks-2", "NVIDIA A2", [{"ce": 1.5, "ce-gather": 1.7}])
        text = self.table("ranks")
        self.assertIn("| 2 A2 | 8 x 100 | 0.500 ms | 1.50 | 1.70 | - | - | - | - | - |\n| 2 X1 | 8 x 100 |", text)
        self.assertIn("|  | 8 x 200 | 0.500 ms | 1.20 | - | - | - | - | 5.55 | - |", text)
        self.assertNotIn("9.00", text)
        self.assertIn("[2 X1 80GB, 2030-01-02](other/x-gpu-2030-01-02-ranks-2.json): PyTorch 9, NCCL 2, Liger-Kernel 7",
                      " ".join(text.split()))
        summary = self.table("ranks-summary")
        self.assertIn("| 2 A2 | 1.50 | 1.70 | - | - | - | - |\n| 2 X1 | 1.10 to 1.20 | - | - | - | 5.5 | - |", summary)
        self.assertIn("2030-01-02 to 2030-01-03", summary)

    def test_a_linear_layer_over_ranks(self):
        for name in ("ranks", "ranks-summary", "ranks-linear"):
            with self.assertRaisesRegex(ValueError, "no figures of ranks"):
                self.table(name)
        result = {"tokens": 8, "hidden": 4, "classes": 100, "ranks": 2, "ms": {"products": 2.0},
                  "over_products": {"whole": 1.5, "chunked": 1.25}, "mib_beyond_gradients": {"whole": 9, "chunked": 3}}
        self.write("gpu-2030-01-02-ranks-linear-2",
                   {"gpu": "Some GPU", "torch": "9", "nccl": "2", "date": "2030-01-02", "results": [result]})
        text = self.table("ranks-linear")
        self.assertIn("| 8 x 4 x 100 | 2.0 ms | 1.50 (9 MiB) | 1.25 (3 MiB) |", text)
        self.assertIn("2 Some GPU, PyTorch 9, NCCL 2, [2030-01-02](gpu-2030-01-02-ranks-linear-2.json).", text)


class Python(Folder):
    def test_a_head_beside_that_of_torch(self):
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024)]))
        page = figures.Page(documents.Results(self.folder), self.folder)
        with self.assertRaisesRegex(ValueError, "python_training.py --head"):
            figures.INLINE["head-step"](page)
        for date, ms in (("2030-01-02", 8.04), ("2030-01-01", 7.0)):
            self.write(f"gpu-{date}-linear-training",
                       {"runs": {"torch": {"step ms": 12.0, "peak GiB": 4.0}, "ce": {"step ms": ms, "peak GiB": 2.5}}})
        page = figures.Page(documents.Results(self.folder), self.folder)
        self.assertEqual(figures.INLINE["head-step"](page), "8.0 instead of 12.0 ms")
        self.assertEqual(figures.INLINE["head-memory"](page), "2.5 instead of 4.0 GiB")


class Pages(Folder):
    def setUp(self):
        super().setUp()
        self.write("gpu-2030-01-01-widths-a", document("2030-01-01T00:00:00Z", [problem(1024)]))
        self.page = self.folder / "page.md"

    def test_what_is_marked_is_written_anew_and_checked(self):
        self.page.write_text("before\n<!-- tables: below-the-aim -->\nold\n<!-- end -->\nafter\n")
        self.assertEqual(self.command("--check", self.page)[0], 1)
        self.assertIn("-old", self.command("--check", self.page)[1])
        self.assertEqual(self.command("--update", self.page), (0, ""))
        self.assertRegex(self.page.read_text(),
                         r"\Abefore\n<!-- tables: below-the-aim -->\n\n\|(.|\n)*\|\n\n<!-- end -->\nafter\n\Z")
        self.assertIn("| softmax | bf16 | 1024: 50.0% |", self.page.read_text())
        self.assertEqual(self.command("--check", self.page), (0, ""))
        self.write("gpu-2030-01-02-widths-a", document("2030-01-02T00:00:00Z", [problem(1024, 0.6)]))
        self.assertEqual(self.command("--check", self.page)[0], 1)

    def test_the_last_plot_of_the_gpu_is_shown(self):
        for name in ("gpu-2030-01-01", "gpu-2030-01-03", "gpu-2030-01-02", "other-2030-01-09"):
            (self.folder / f"{name}-widths.svg").touch()
        self.assertEqual(self.table("plot"), "![GB/s over columns, bf16](gpu-2030-01-03-widths.svg)")

    def test_a_page_of_another_gpu_has_documents_of_its_own(self):
        other = self.folder / "other"
        other.mkdir()
        self.page.write_text("<!-- tables: below-the-aim -->\n<!-- end -->\n")
        (other / "other-2030-01-01-widths-a.json").write_text(
            json.dumps(document("2030-01-01T00:00:00Z", [problem(1024, 0.25)])))
        with unittest.mock.patch("tables.OF_OTHER_GPUS", {self.page.resolve(): other}):
            self.assertEqual(self.command("--update", self.page), (0, ""))
        self.assertIn("1024: 25.0%", self.page.read_text())

    def test_marks_that_say_nothing_are_errors(self):
        for text, said in (("<!-- tables: shapez --><!-- end -->", '"shapez" is no table'),
                           ("<!-- tables: widths -->", "not closed"),
                           ("<!-- tables: widths --> <!-- tables: shares --><!-- end -->", '"widths" does not end'),
                           ("<!-- tables: few-rows --><!-- end -->", "no document has such figures"),
                           ("It takes\n  <!-- tables: few-rows-times --><!-- end -->.", "begins a line"),
                           ("nothing", "nothing is marked")):
            self.page.write_text(text)
            status, words = self.command("--update", self.page)
            self.assertEqual(status, 2, text)
            self.assertIn(said, words)
            self.assertEqual(self.page.read_text(), text)

    def test_the_pages_ask_for_every_table(self):
        texts = [page.read_text(encoding="utf-8") for page in tables.PAGES]
        asked = {match["name"] for text in texts for match in tables.MARKED.finditer(text)}
        self.assertEqual(asked, {*figures.BLOCKS, *figures.INLINE})


if __name__ == "__main__":
    unittest.main()
