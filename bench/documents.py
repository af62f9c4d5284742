"""The documents in bench/results, and the newest figures in them.

They are files GPU-DATE-TASK.json, as bench/all writes them: those of `ce-tune bench --json` (tasks widths-*, options-*,
rows-*, few-rows and loss-grad-*), `bench/compare.py --out` (compare-*), `bench/regret.py` (regret, first-searches) and
`bench/planted.py`. A document that was begun later replaces what earlier ones say of the same problem, cell by cell. What
a call costs on the host is in GPU-DATE-call-cost.txt, as ce_call_cost prints it; the newest of these files counts.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable

from peers import LOADERS

FILE = re.compile(r"(?P<gpu>.+)-\d{4}-\d\d-\d\d-(?P<task>.+)\.json")
TASKS = re.compile(r"widths-|options-|rows-|few-rows$|loss-grad-|compare-|regret$|first-searches$|planted")
SIZES = {"bf16": 2, "f16": 2, "f32": 4}

# Of ce_call_cost: what it calls a call, then counters, in nanoseconds unless they end in k.
CALL = re.compile(r"^(?P<name>.+?) \(median\) .* bare=(?P<bare>\S+) "
                  r".*plan_beyond=(?P<plan>\S+) .*run_beyond=(?P<run>\S+)$")
FIRST_LAUNCH = re.compile(r"^first launch beyond .*: (?P<ms>[\d.]+) ms \((?P<how>tuned|database)")

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Document:
    path: Path
    gpu: str  # as its name begins
    task: str
    content: dict[str, Any]

    @property
    def run(self) -> dict[str, Any]:
        """The document of ce-tune bench, which that of compare.py holds."""
        run: dict[str, Any] = self.content.get("ce_document", self.content)
        return run

    @property
    def begun(self) -> str:
        return str(self.run["date"])

    @property
    def machine(self) -> str:
        device, environment = self.run["device"], self.run["environment"]
        name = device.split("|")[0] if isinstance(device, str) else device["model"]["name"]
        version = self.run.get("version", environment.get("ce"))
        return f"{name}, driver {environment['driver']}, NVRTC {environment['nvrtc']}, ce {version}"


@dataclass(frozen=True)
class Cell:
    value: dict[str, Any]
    document: Document


Cells = dict[Key, Cell]


@dataclass(frozen=True)
class CallCost:
    """Of one or more processes on one machine."""

    path: Path
    calls: dict[str, list[dict[str, float]]]  # by ce_call_cost's name; microseconds of bare, plan, run by process
    first_launch_ms: dict[str, list[float]]  # "tuned", "database"

    @property
    def date(self) -> str:
        return "-".join(self.path.name.removesuffix("-call-cost.txt").split("-")[-3:])


def microseconds(text: str) -> float:
    return float(text[:-1]) if text.endswith("k") else float(text) / 1e3


def read_call_cost(path: Path) -> CallCost:
    calls: dict[str, list[dict[str, float]]] = {}
    first: dict[str, list[float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if called := CALL.match(line):
            figures = {name: microseconds(called[name]) for name in ("bare", "plan", "run")}
            calls.setdefault(called["name"], []).append(figures)
        if launched := FIRST_LAUNCH.match(line):
            first.setdefault(launched["how"], []).append(float(launched["ms"]))
    return CallCost(path, calls, first)


def read_documents(folder: Path, gpu: str | None) -> list[Document]:
    """In the order in which they were begun."""
    documents: list[Document] = []
    for path in sorted(folder.glob("*.json")):
        named = FILE.fullmatch(path.name)
        if named is None or gpu not in (None, named["gpu"]):
            continue
        if TASKS.match(named["task"]):
            content = json.loads(path.read_text(encoding="utf-8"))
            documents.append(Document(path, named["gpu"], named["task"], content))
    if not documents:
        raise ValueError(f"{folder} has no documents" + (f" of {gpu}" if gpu else ""))
    gpus = sorted({document.gpu for document in documents})
    if len(gpus) > 1:
        raise ValueError(f"{folder} has documents of {', '.join(gpus)}: choose with --gpu")
    return sorted(documents, key=lambda document: document.begun)


def kind_of(problem: dict[str, Any]) -> str:
    """The kind of an entry of `problems` of ce-tune bench: its operation, and of cross entropy what is asked for."""
    if problem["operation"] != "cross_entropy":
        return str(problem["operation"])
    return "cross_entropy loss+grad" if problem["gradient"] else "cross_entropy loss"


def options_of(problem: dict[str, Any]) -> tuple[str, ...]:
    named = [text for flag, text in (("smoothing", "label smoothing"), ("z_loss", "z-loss")) if problem[flag]]
    if problem["weights"]:
        named.append(f"weights in {problem['weights']}")
    return (*named, "soft cap") if problem["softcap"] else tuple(named)


def planted_key(title: str) -> Key:
    """Of "softmax bf16 4096 x 2048"."""
    operation, dtype, rows, _, columns = title.split()
    return operation, dtype, int(columns), int(rows)


def newest(documents: Iterable[Document], key_of: Callable[[dict[str, Any]], Key]) -> Cells:
    """Of each problem that was finished, what the document that was begun last says."""
    return {key_of(problem): Cell(problem, document) for document in documents
            for problem in document.content["problems"] if "median_us" in problem}


def peers_asked_for(comparison: Document) -> list[str]:
    """By the names that --peers takes, which are not those in its tables; without it all."""
    words = shlex.split(comparison.content.get("command", ""))
    return words[words.index("--peers") + 1].split(",") if "--peers" in words else list(LOADERS)


class Results:
    """All figures, by what they are of."""

    def __init__(self, folder: Path, gpu: str | None = None) -> None:
        documents = read_documents(folder, gpu)
        # GB/s over columns, by the last run that drew it.
        self.plot = max(folder.glob(f"{documents[0].gpu}-????-??-??-widths.svg"), default=None)

        costs = sorted(folder.glob(f"{documents[0].gpu}-????-??-??-call-cost.txt"))
        self.call_cost = read_call_cost(costs[-1]) if costs else None

        # What the scripts python_*.py print, by script.
        self.python = max(folder.glob("python-????-??-??.json"), default=None)

        # What linear.py wrote.
        self.linear = max(folder.glob("*-????-??-??-linear.json"), default=None)
        # What ranks.py wrote, of each GPU and number of them the newest, in this folder and in those of other GPUs; and
        # what ranks_linear.py wrote.
        newest_of = {(named["gpu"], named["task"]): path for path in
                     sorted([*folder.glob("*-ranks-[0-9].json"), *folder.glob("*/*-ranks-[0-9].json")],
                            key=lambda path: path.name) if (named := FILE.fullmatch(path.name))}
        self.ranks = [newest_of[key] for key in sorted(newest_of)]
        self.ranks_linear = max(folder.glob("*-????-??-??-ranks-linear-[0-9].json"), default=None)
        # What python_training.py --head wrote.
        self.linear_training = max(folder.glob("*-????-??-??-linear-training.json"), default=None)
        # What python_rl.py wrote: of this folder, else of the one that it is in.
        self.python_rl = next((max(found) for where in (folder, folder.parent)
                               if (found := list(where.glob("python-rl-????-??-??.json")))), None)

        def of(task: str) -> list[Document]:
            return [document for document in documents if document.task.startswith(task)]

        self.widths = newest(of("widths-"), lambda p: (kind_of(p), p["dtype"], p["columns"]))
        self.options = newest(of("options-"), lambda p: (options_of(p), p["dtype"], p["columns"]))
        # What a row may be asked for beside its loss, by task.
        self.rows = {document.task: newest([document], lambda p: (p["dtype"], p["columns"]))
                     for document in of("rows-")}
        self.few_rows = newest(of("few-rows"), lambda p: (kind_of(p), p["dtype"], p["columns"], p["rows"]))
        self.shapes = newest(of("loss-grad-"), lambda p: (kind_of(p), p["dtype"], p["rows"], p["columns"]))
        self.planted = newest(of("planted"), lambda p: planted_key(p["title"]))
        # Regret is of all problems of a run: the last one, and of what neighbours serve the last that knew others.
        regrets = of("regret")
        self.regret: Document | None = next(reversed(regrets), None)
        self.first_searches: Document | None = next(reversed(of("first-searches")), None)
        served = [[problem["regret_served"] for problem in document.content["problems"] if "regret_served" in problem]
                  for document in regrets]
        self.served: list[float] = next(filter(None, reversed(served)), [])
        # Of peers: by the library as well, with its ratio to ce in the same run.
        self.peers: Cells = {}
        self.failures: dict[Key, str] = {}
        self.missing: dict[str, str] = {}
        for document in of("compare-"):
            for name in peers_asked_for(document):
                self.missing.pop(name, None)  # what is there now
            self.missing.update(document.content["missing"])
            for problem in document.content["problems"]:
                for peer, timing in problem["peers"].items():
                    key = (problem["kind"], problem["dtype"], problem["columns"], peer)
                    if "error" in timing:
                        self.failures[key] = timing["error"]
                        continue
                    ratio = timing["median_us"] / problem["ce"]["median_us"]
                    matrix = problem["rows"] * problem["columns"] * SIZES[problem["dtype"]]
                    self.peers[key] = Cell({**timing, "ratio": ratio, "matrix": matrix, "rows": problem["rows"],
                                            "extra_of_ce": problem["ce"]["extra_bytes"]}, document)

    def peer_names(self) -> list[str]:
        return list(dict.fromkeys(key[3] for key in self.peers))
