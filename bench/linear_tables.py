"""The tables of the loss of a linear layer, from what linear.py measured."""

from __future__ import annotations

import json
from typing import Any

from pages import Page, table, wrapped

GIB = 1 << 30
# What a column is called, and its names in documents, the newest first.
TITLES = {"products alone": ("products",), "torch's products": ("products-torch",),
          "ce, whole logits": ("ce, whole logits",), "ce, 4 GiB": ("ce-4g", "ce, 4 GiB"),
          "ce, 512 MiB": ("ce-512m", "ce, 512 MiB"), "PyTorch": ("torch",), "PyTorch, chunks": ("torch-chunked",),
          "torch.compile": ("compile", "torch.compile"), "torch.compile, chunks": ("compile-chunked",),
          "Liger-Kernel": ("liger", "Liger-Kernel"), "Liger-Kernel, CuTe": ("liger-cute",), "quack": ("quack",),
          "quack, chunks": ("quack-chunked",), "CCE": ("cce",), "CCE, exact": ("cce-exact",)}


def gradient_bytes(measured: dict[str, Any]) -> int:
    tokens, hidden, classes = map(int, measured["shape"].split("x"))
    return 2 * (tokens + classes) * hidden if measured["gradients"] else 0


def memory(one: dict[str, Any], results: int) -> str:
    """Beyond the gradients, which older documents have in peak_bytes."""
    if "beyond_bytes" not in one and "peak_bytes" not in one:
        return ""
    taken = one["beyond_bytes"] if "beyond_bytes" in one else one["peak_bytes"] - results
    return f" ({taken / GIB:.1f} GiB)"


def cell(measured: dict[str, Any], names: tuple[str, ...]) -> str:
    one = next((measured["results"][name] for name in names if name in measured["results"]), None)
    if one is None:
        return ""
    if "error" in one:
        return "refuses"
    ratio = f", {one['over_products']:.2f}" if "over_products" in one and names != ("products",) else ""
    return f"{one['median_ms']:.1f} ms{ratio}{memory(one, gradient_bytes(measured))}"


def documents_of(path: Any) -> list[Any]:
    """A measurement in several runs has further documents of that GPU and day: ...-linear-2.json, and so on."""
    return [path, *sorted(path.parent.glob(f"{path.stem}-[0-9].json"))]


def newest_documents(page: Page) -> tuple[list[Any], list[dict[str, Any]]]:
    """Their paths and contents."""
    if page.results.linear is None:
        raise ValueError("there are no figures of the loss of a linear layer")
    paths = documents_of(page.results.linear)
    return paths, [json.loads(one.read_text(encoding="utf-8")) for one in paths]


def source(page: Page, paths: list[Any], documents: list[dict[str, Any]]) -> str:
    machine = documents[0]["machine"]
    links = ", ".join(f"[{document['machine']['date']}]({page.path(one)})" for one, document in zip(paths, documents))
    return (f"{machine['gpu']}, driver {machine['driver']}, PyTorch {machine['torch']}{versions(documents)}, {links}.")


def short(measured: dict[str, Any], title: str) -> str:
    """How many times the time of the products alone, and the memory of a step with gradients."""
    one = next((measured["results"][name] for name in TITLES[title] if name in measured["results"]), {"error": "none"})
    if "error" in one:
        return "-"
    of_step = memory(one, gradient_bytes(measured)) if measured["gradients"] else ""
    return f"{one['over_products']:.2f}{of_step}"


def best_other(measured: dict[str, Any]) -> str:
    """The fastest of the other libraries."""
    others = {title: one["median_ms"] for title, names in TITLES.items() if title.split(",")[0] != "ce"
              and "products" not in title for name in names
              if "error" not in (one := measured["results"].get(name, {"error": "none"}))}
    if not others:
        return "-"
    title = min(others, key=lambda other: others[other])
    return f"{title} {short(measured, title)}"


def linear_summary(page: Page) -> str:
    """A row for each shape; of the other libraries the fastest."""
    paths, documents = newest_documents(page)
    shapes: dict[str, dict[bool, dict[str, Any]]] = {}
    for document in documents:
        for measured in document["measured"]:
            if measured["results"]:
                shapes.setdefault(measured["shape"], {})[measured["gradients"]] = measured
    rows = [["tokens x hidden x classes", "loss and gradients: products", "ce, 4 GiB", "ce, 512 MiB", "best other",
             "loss alone: product", "ce", "best other"]]
    for shape, of_shape in shapes.items():
        cells = []
        for with_gradients, titles in ((True, ("ce, 4 GiB", "ce, 512 MiB")), (False, ("ce, 4 GiB",))):
            measured = of_shape.get(with_gradients)
            if measured is None:
                cells += ["-"] * (len(titles) + 2)
                continue
            cells += [f"{measured['results']['products']['median_ms']:.1f} ms",
                      *(short(measured, title) for title in titles), best_other(measured)]
        rows.append([shape.replace("x", " x "), *cells])
    if len(rows) == 1:
        raise ValueError(f"{paths[0]} has no times")
    return f"{table(rows)}\n\n{wrapped(source(page, paths, documents))}"


def linear(page: Page) -> str:
    paths, documents = newest_documents(page)
    all_measured = [measured for document in documents for measured in document["measured"] if measured["results"]]
    known = {name for measured in all_measured for name in measured["results"]}
    titles = {title: names for title, names in TITLES.items() if known & {*names}}
    made = []
    for with_gradients, what in ((True, "loss and gradients"), (False, "loss alone")):
        rows = [[f"tokens x hidden x classes, {what}", *titles]]
        for measured in all_measured:
            if measured["gradients"] == with_gradients:
                row = [cell(measured, names) for names in titles.values()]
                rows.append([measured["shape"].replace("x", " x "), *row])
        if len(rows) > 1:
            made.append(table(rows))
    if not made:
        raise ValueError(f"{paths[0]} has no times")
    made.append(wrapped(f"{source(page, paths, documents)}{caveat(known, documents)}"))
    return "\n\n".join(made)


def versions(documents: list[dict[str, Any]]) -> str:
    """Of the other libraries."""
    known = {name: version for document in documents for name, version in document.get("versions", {}).items()}
    libraries = {"liger": "Liger-Kernel", "liger-cute": "Liger-Kernel", "quack": "quack", "cce": "cut-cross-entropy"}
    found = {library: known[name] for name, library in libraries.items() if name in known}
    return "".join(f", {library} {version}" for library, version in found.items())


def caveat(known: set[str], documents: list[dict[str, Any]]) -> str:
    """What a reader must know of documents that were written otherwise, or of results that differ from ce's."""
    if "products-torch" not in known:
        return (" The products are `torch.mm`, of logits where a step has their gradient. Small numbers of a gradient take"
                " less power, so a step may be faster than these products.")
    titles = {name: title for title, names in TITLES.items() for name in names}
    differ = {titles[name] for document in documents for measured in document["measured"]
              for name, one in measured.get("against_ce", {}).items() if not one.get("agrees", True)}
    return f" The gradients of {', '.join(sorted(differ))} differ from ce's by more than rounding." if differ else ""
