#pragma once
/// \file
/// The generated texts of one Config for one Problem.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config.hpp"
#include "generator/problem.hpp"

namespace ce::generator {

/// A text that compiles to one binary; and the binary, once it has one.
struct Source {
  std::string name;                            ///< for messages
  std::string text;                            ///< a comment with Problem and Config, constants, the template
  std::map<std::string, std::string> headers;  ///< what the text includes, by name
  bool architecture_specific = false;          ///< as runtime::CompileRequest has it

  // Of a Program that was built (tuner/kernel.hpp); generated texts have none of it.
  std::vector<std::byte> binary{};  ///< what a device loads
  std::string compile_key{};        ///< names the binary
  std::string compiler{};           ///< empty where none was asked

  /// Text with every include put in its place once: one file for any CUDA compiler.
  [[nodiscard]] std::string flat() const;
};

/// One launch of an entry point.
struct Step {
  std::size_t source = 0;  ///< index into Program::sources
  std::string entry;
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
  std::uint32_t cluster = 1;
  bool persistent = false;  ///< launch no more blocks than run at the same time
  bool overlaps = false;    ///< waits by itself for the step before it, and may start earlier
  std::int64_t (*blocks)(const Config&, const Problem&) = nullptr;
};

/// Steps of a Program at most: a count, two of a variant, a sum.
inline constexpr std::size_t most_steps = 4;

/// All that runs for one Config: its steps in order, all with the same Arguments. It is built where every source has its
/// binary.
struct Program {
  Config config;
  std::vector<Source> sources;  ///< the first is that of the Config; the others are the same for every Config
  std::vector<Step> steps;
  std::int64_t partial_bytes = 0;  ///< of Arguments::partials that the steps need
  bool takes_rows = false;         ///< the steps need a Workspace, whatever the problem
  int compiled = 0;                ///< compiler runs that it was built with; binaries of a database take none

  /// What a measurement names its binaries by: the compile keys of all, separated by spaces.
  [[nodiscard]] std::string compile_key() const;
};

/// The same problem (but for its rows) and config give the same texts, byte for byte.
/// \throws InvalidArgument where the variant does not serve the operation
[[nodiscard]] Program generate(const Problem& problem, const Config& config);

/// A kernel that is no operation of its own: nothing about it is tuned.
struct SingleKernel {
  std::string_view file;  ///< below templates/
  std::string_view entry;
  std::string words;                   ///< names it
  bool own_arguments = false;          ///< the template says what its parameter is; else it is ce::Arguments
  std::vector<std::string> constants;  ///< members of ce::problem
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
  std::uint32_t cluster = 1;
  bool persistent = false;             ///< launch no more blocks than run at the same time
  bool architecture_specific = false;  ///< as Source has it
  std::int64_t (*blocks)(const Config&, const Problem&) = nullptr;
};

[[nodiscard]] Program single_kernel(const SingleKernel& kernel);

/// "using Element = bf16", for its constants.
[[nodiscard]] std::string type_constant(std::string_view name, DType dtype);

/// Multiplies a gradient in place by one number in device memory. It is no operation of its own: nothing about it is tuned.
/// A dense gradient is `rows` elements (Problem::rows of its launches, Arguments::rows).
/// \param gaps  rows in batches instead, with any strides: Problem::strided, rows and columns of its launches, Arguments::rows,
///              batch_rows, output_layout and, for its columns, classes
[[nodiscard]] Program scale_gradient(DType gradient, DType upstream, bool gaps);

/// Names the binary of a source: digest of text, headers and compiler.
/// \param compiler  the compiler with version and target
[[nodiscard]] std::string compile_key(const Source& source, std::string_view compiler);

/// Digest of every template that a config of this variant is generated from for this operation. A measurement
/// with another one is history.
[[nodiscard]] std::string template_digest(Operation operation, std::string_view variant);

/// Digest of these templates and of all that they include.
/// \param files  below templates/
[[nodiscard]] std::string digest_of_templates(std::set<std::string, std::less<>> files);

}  // namespace ce::generator
