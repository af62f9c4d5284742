"""The tables of ranks that share the classes, from what ranks.py and ranks_linear.py measured."""

from __future__ import annotations

import json
from typing import Any

from pages import Page, span, table, wrapped

# What a column is called, and its name in documents.
TITLES = {"exchange": "ce", "gather": "ce-gather", "exchange, smoothing": "ce-smoothing",
          "gather, smoothing": "ce-smoothing-gather", "NeMo": "nemo-te", "Liger": "liger",
          "Megatron-Core, fused": "megatron-fused"}
PACKAGES = {"nemo-te": "NeMo AutoModel", "liger": "Liger-Kernel", "megatron-fused": "Megatron-Core"}


def software(document: dict[str, Any]) -> str:
    peers = "".join(f", {PACKAGES[name]} {version}" for name, version in document.get("peers", {}).items()
                    if name in PACKAGES)
    return f"PyTorch {document['torch']}, NCCL {document['nccl']}{peers}"


def ranks(page: Page) -> str:
    """Of every GPU and number of them, the newest document: this folder's and those of the folders in it."""
    if not page.results.ranks:
        raise ValueError("there are no figures of ranks.py")
    rows = [["GPUs", "rows x classes", "copy", *TITLES]]
    links: dict[str, list[str]] = {}
    for path in page.results.ranks:
        document = json.loads(path.read_text(encoding="utf-8"))
        gpu = document["gpu"].removeprefix("NVIDIA ")
        for number, one in enumerate(document["results"]):
            over_copy = [f"{one['over_copy'][name]:.2f}" if name in one["over_copy"] else "-"
                         for name in TITLES.values()]
            rows.append([f"{one['ranks']} {gpu.split()[0]}" if number == 0 else "", f"{one['rows']} x {one['classes']}",
                         f"{one['ms']['copy']:.3f} ms", *over_copy])
        link = f"[{document['results'][0]['ranks']} {gpu}, {document['date']}]({page.path(path)})"
        links.setdefault(software(document), []).append(link)
    return f"{table(rows)}\n\n" + wrapped("; ".join(f"{', '.join(of)}: {what}" for what, of in links.items()) + ".")


def ranks_summary(page: Page) -> str:
    """A row for every GPU and number of them: times over that of the copy, over all shapes."""
    if not page.results.ranks:
        raise ValueError("there are no figures of ranks.py")
    titles = {title: name for title, name in TITLES.items() if title != "gather, smoothing"}
    rows = [["bf16", *titles]]
    dates = []
    for path in page.results.ranks:
        document = json.loads(path.read_text(encoding="utf-8"))
        dates.append(document["date"])
        found = [[one["over_copy"][name] for one in document["results"] if name in one["over_copy"]]
                 for name in titles.values()]
        cells = [span(values, lambda value: f"{value:.2f}" if value < 2 else f"{value:.1f}") if values else "-"
                 for values in found]
        rows.append([f"{document['results'][0]['ranks']} {document['gpu'].removeprefix('NVIDIA ').split()[0]}", *cells])
    return f"{table(rows)}\n\n" + wrapped(f"GPUs of one machine with NVLink, {span(dates, str)}.")


def ranks_linear(page: Page) -> str:
    path = page.results.ranks_linear
    if path is None:
        raise ValueError("there are no figures of ranks_linear.py")
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [["tokens x hidden x classes, bf16, both gradients", "products and their sum", "whole logits", "in chunks"]]
    for one in document["results"]:
        cells = [f"{one['over_products'][name]:.2f} ({one['mib_beyond_gradients'][name]} MiB)"
                 for name in ("whole", "chunked")]
        shape = f"{one['tokens']} x {one['hidden']} x {one['classes']}"
        rows.append([shape, f"{one['ms']['products']:.1f} ms", *cells])
    return f"{table(rows)}\n\n" + wrapped(f"{document['results'][0]['ranks']} {document['gpu']}, {software(document)}, "
                                          f"[{document['date']}]({page.path(path)}).")
