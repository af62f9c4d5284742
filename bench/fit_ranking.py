#!/usr/bin/env python3
"""Fits the weights that rank configs before any is compiled, and writes tuner/ranking_weights.hpp.

    bench/fit_ranking.py --replay build/ci/bin/ce_replay bench/results/searches-*.txt

The weights are a ridge regression of log(time / time of the problem's best) on the traits of tuner/ranking.hpp, by
variant; configs count the more the faster they are, as only the order of the fast ones matters. Prints how the ranking
does on problems that it was not fitted to: the fastest config among the first K structures, over the best of all.
Needs numpy.
"""

import argparse
import collections
import csv
import pathlib
import subprocess

import numpy

STRENGTH = 3.0  # of the ridge
WORST = 0.7  # logarithm beyond which slower is just slow
FOLDS = 16
LOADS, STORES = ("ca", "cg", "cs"), ("wb", "cg", "cs", "wt")

HEADER = """#pragma once
/// \\file
/// Made by bench/fit_ranking.py; not edited by hand.

#include <array>
#include <string_view>

#include "tuner/ranking.hpp"

namespace ce::tuner {{

struct VariantWeights {{
  std::string_view variant;
  Traits weights;  ///< in the order of trait_names
}};

struct ModifierWeights {{
  double plain;
  double idle;  ///< of the trait of that name
}};

// clang-format off
inline constexpr std::array<VariantWeights, {count}> variant_weights{{{{
{variants}
}}}};
inline constexpr std::array<ModifierWeights, 3> load_weights{{{{{loads}}}}};
inline constexpr std::array<ModifierWeights, 4> store_weights{{{{{stores}}}}};
// clang-format on

}}  // namespace ce::tuner
"""


class Data:
    """One line for each measured config."""

    def __init__(self, replay, recordings):
        rows = []
        problems = 0
        for recording in recordings:
            text = subprocess.run([replay, "traits", recording], check=True, capture_output=True, text=True).stdout
            table = list(csv.DictReader(text.splitlines()))
            for row in table:
                row["problem"] = int(row["problem"]) + problems
            problems = max(row["problem"] for row in table) + 1
            rows += table
        self.names = [name for name in rows[0] if name not in ("problem", "variant", "load", "store", "loss")]
        self.problem = numpy.array([row["problem"] for row in rows])
        self.variant = numpy.array([row["variant"] for row in rows])
        self.load = numpy.array([int(row["load"]) for row in rows])
        self.store = numpy.array([int(row["store"]) for row in rows])
        self.loss = numpy.array([float(row["loss"]) for row in rows])
        self.traits = numpy.array([[float(row[name]) for name in self.names] for row in rows])
        self.variants = sorted(set(self.variant))
        self.structure = [
            (row["problem"], row["variant"], tuple(row[name] for name in self.names)) for row in rows
        ]

    def design(self):
        """Columns: the traits for each variant, then load and store modifiers and the same times `idle`."""
        idle = self.traits[:, self.names.index("idle")]
        columns = []
        for variant in self.variants:
            columns += list((self.traits * (self.variant == variant)[:, None]).T)
        for chosen, count in ((self.load, len(LOADS)), (self.store, len(STORES))):
            for value in range(1, count):
                columns += [(chosen == value) * 1.0, (chosen == value) * idle]
        return numpy.array(columns).T


def fit(design, loss):
    target = numpy.minimum(loss, WORST)
    weight = numpy.exp(-3 * target)
    weighted = design * weight[:, None]
    return numpy.linalg.solve(design.T @ weighted + STRENGTH * numpy.eye(design.shape[1]), weighted.T @ target)


def report(data, predicted):
    print("on problems not fitted to: regret of the best of the first K structures")
    for most in (1, 5, 10, 16, 24):
        regrets = []
        for problem in set(data.problem):
            order = sorted(numpy.flatnonzero(data.problem == problem), key=lambda i: predicted[i])
            best = collections.OrderedDict()
            for i in order:
                structure = data.structure[i]
                if structure in best or len(best) < most:
                    best[structure] = min(best.get(structure, 9.0), data.loss[i])
            regrets.append(100 * (numpy.exp(min(best.values())) - 1))
        print(f"  K = {most:2}: median {numpy.median(regrets):.2f}%, p95 {numpy.percentile(regrets, 95):.2f}%, "
              f"worst {max(regrets):.2f}%")


def pairs(weights):
    return ", ".join(f"{{{plain:.4f}, {idle:.4f}}}" for plain, idle in weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", help="texts of bench/record_searches.py")
    parser.add_argument("--replay", required=True, help="the program ce_replay")
    parser.add_argument("--output", default=pathlib.Path(__file__).parents[1] / "tuner" / "ranking_weights.hpp")
    arguments = parser.parse_args()

    data = Data(arguments.replay, arguments.recordings)
    design = data.design()
    predicted = numpy.zeros(len(data.loss))
    folds = data.problem % FOLDS
    for fold in range(FOLDS):
        held_out = folds == fold
        predicted[held_out] = design[held_out] @ fit(design[~held_out], data.loss[~held_out])
    report(data, predicted)

    weights = fit(design, data.loss)
    count = len(data.names)
    variants = []
    for i, variant in enumerate(data.variants):
        own = ", ".join(f"{w:.4f}" for w in weights[i * count:(i + 1) * count])
        variants.append(f'    {{"{variant}", {{{own}}}}},')
    modifiers = weights[len(data.variants) * count:].reshape(-1, 2)
    loads = numpy.vstack([[0, 0], modifiers[:len(LOADS) - 1]])
    stores = numpy.vstack([[0, 0], modifiers[len(LOADS) - 1:]])
    text = HEADER.format(count=len(variants), variants="\n".join(variants), loads=pairs(loads), stores=pairs(stores))
    pathlib.Path(arguments.output).write_text(text)


if __name__ == "__main__":
    main()
