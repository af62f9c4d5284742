#pragma once
/// \file
/// The generated text of one Config for one Problem.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config.hpp"
#include "generator/problem.hpp"

namespace ce::generator {

/// One launch of an entry point. A Source launches its steps in order, all with the same Arguments.
struct Step {
  std::string entry;
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
  std::int64_t (*blocks)(const Config&, const Problem&) = nullptr;
};

struct Source {
  Config config;
  std::string text;                            ///< a comment with Problem and Config, constants, the template
  std::map<std::string, std::string> headers;  ///< what the text includes, by name
  std::vector<Step> steps;

  /// Text with every include put in its place once: one file for any CUDA compiler.
  [[nodiscard]] std::string flat() const;
};

/// The same problem (but for its rows) and config give the same text, byte for byte.
/// \throws InvalidArgument where the config cannot work for the problem
[[nodiscard]] Source generate(const Problem& problem, const Config& config);

/// Names the binary of a source: digest of text, headers and compiler.
/// \param compiler  the compiler with version and target
[[nodiscard]] std::string compile_key(const Source& source, std::string_view compiler);

/// Digest of every template that a config of this variant is generated from for this operation. A measurement with
/// another one is history.
[[nodiscard]] std::string template_digest(Operation operation, std::string_view variant);

}  // namespace ce::generator
