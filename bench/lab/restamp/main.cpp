/// \file
/// Gives an export of winners the digests of today's templates, after a change of templates that leaves the speed of
/// their kernels as it was:
///
///     ce_restamp "COMPILER" < cache/shipped/winners.jsonl > new.jsonl
///
/// COMPILER is what keys of binaries call the compiler of the device that they were measured on: "nvrtc 13.0 sm_90" for
/// an H200. Nothing else of a measurement changes, and nothing of a race's; one whose config no variant has any more is an
/// error.

#include <exception>
#include <iostream>
#include <string_view>
#include <vector>

#include "cache/export.hpp"
#include "ce/error.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "tuner/key.hpp"

namespace {

void restamp(ce::cache::Measurement& winner, std::string_view compiler) {
  if (ce::tuner::subject_of_race(winner.key)) return;
  const ce::generator::Problem problem = ce::generator::parse_key_text(winner.key.problem);
  const ce::generator::Config config = ce::generator::parse_config(winner.config);
  winner.template_digest = ce::generator::template_digest(problem.operation, config.variant);
  winner.compile_key.clear();
  for (const ce::generator::Source& source : ce::generator::generate(problem, config).sources)
    winner.compile_key +=
        (winner.compile_key.empty() ? "" : " ") + ce::generator::compile_key(source, compiler);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: ce_restamp COMPILER < winners.jsonl\n";
    return 2;
  }
  try {
    std::vector<ce::cache::Measurement> winners = ce::cache::read_export(std::cin, "the standard input");
    for (ce::cache::Measurement& winner : winners) restamp(winner, argv[1]);
    ce::cache::write_export(std::cout, winners);
  } catch (const std::exception& error) {
    std::cerr << "ce_restamp: " << error.what() << '\n';
    return 1;
  }
}
