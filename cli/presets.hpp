#pragma once
/// \file
/// What language models ask of softmax and cross entropy.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_options.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// Columns of the logits of a family of models.
struct Vocabulary {
  std::string_view preset;  ///< the family; one may have several
  std::string_view models;
  std::int64_t columns = 0;
  DType dtype = DType::bf16;  ///< of the weights, and so of what the output projection yields
  std::string_view source;    ///< where columns and dtype are published
  bool softcap = false;       ///< the models cap their logits
};

/// By preset.
[[nodiscard]] std::span<const Vocabulary> vocabularies() noexcept;

/// The problems of presets, each once:
/// - training: loss and gradient, mean, in place, of 4096, 8192 and 16384 tokens, with logits as they come and
///   cast to f32;
/// - serving: softmax and log_softmax of 1, 8, 64 and 256 sequences, with logits cast to f32, as samplers do.
/// \param presets  names, as lists with commas
/// \param given  its lists take the place of those, and its other options apply as ever
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Problem> problems_of_presets(const std::vector<std::string>& presets,
                                                                  const ProblemOptions& given);

}  // namespace ce::cli
