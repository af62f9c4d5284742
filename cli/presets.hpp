#pragma once
/// \file
/// Shapes of softmax and cross entropy in language models.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/problem_options.hpp"
#include "generator/problem.hpp"

namespace ce::cli {

/// The columns of the logits of a model family.
struct Vocabulary {
  std::string_view preset;  ///< the family's name; a family may have several entries
  std::string_view models;
  std::int64_t columns = 0;
  DType dtype = DType::bf16;  ///< dtype of the weights, and so of the output projection's result
  std::string_view source;    ///< where columns and dtype are published
  bool softcap = false;       ///< the models cap their logits
};

/// Sorted by preset.
[[nodiscard]] std::span<const Vocabulary> vocabularies() noexcept;

/// The problems of presets, without repetitions:
/// - training: loss and gradient, mean, in place, with 4096, 8192 and 16384 tokens, with logits as they are and
///     cast to f32;
/// - serving: softmax and log_softmax of 1, 8, 64 and 256 sequences, with logits cast to f32, as in samplers.
/// \param presets  names, as comma-separated lists
/// \param given  its lists replace those of the presets, and its other options apply as usual
/// \throws InvalidArgument naming the option and its value
[[nodiscard]] std::vector<generator::Problem> problems_of_presets(const std::vector<std::string>& presets,
                                                                  const ProblemOptions& given);

}  // namespace ce::cli
