#pragma once
/// \file
/// The generated texts for one Config and one Problem.

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

/// A text that compiles to one binary, and that binary once it is built.
struct Source {
  std::string name;  ///< for messages
  std::string text;  ///< a comment with Problem and Config, constants, and the template
  std::map<std::string, std::string> headers;  ///< the files that the text includes, by name
  bool architecture_specific = false;          ///< as in runtime::CompileRequest

  // Set by build() (tuner/kernel.hpp); empty in generated texts.
  std::vector<std::byte> binary{};  ///< the image that a device loads
  std::string compile_key{};        ///< identifies the binary
  std::string compiler{};           ///< empty if the compiler was not asked

  /// The text with every include replaced once by its file: one file for any CUDA compiler.
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
  bool overlaps = false;    ///< it waits itself for the step before it, and may start earlier
  std::int64_t (*blocks)(const Config&, const Problem&) = nullptr;
};

/// Most steps of a Program: a count, two of a variant, a sum.
inline constexpr std::size_t most_steps = 4;

/// All launches for one Config: its steps in order, all with the same Arguments. It is built when every source has its
/// binary.
struct Program {
  Config config;
  std::vector<Source> sources;  ///< the first is the Config's; the others are the same for every Config
  std::vector<Step> steps;
  std::int64_t partial_bytes = 0;  ///< bytes of Arguments::partials that the steps need
  bool takes_rows = false;         ///< the steps need a Workspace, whatever the problem
  int compiled = 0;                ///< compiler runs of its build; binaries from a database take none

  /// The name of its binaries in a measurement: the compile keys of all sources, separated by spaces.
  [[nodiscard]] std::string compile_key() const;
};

/// Equal problems (whatever their rows) and configs give the same texts, byte for byte.
/// \throws InvalidArgument if the variant does not serve the operation
[[nodiscard]] Program generate(const Problem& problem, const Config& config);

/// A kernel that is not an operation and is not tuned.
struct SingleKernel {
  std::string_view file;  ///< below templates/
  std::string_view entry;
  std::string words;           ///< identify it
  bool own_arguments = false;  ///< the template defines its parameter; else the parameter is ce::Arguments
  std::vector<std::string> constants;  ///< members of ce::problem
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
  std::uint32_t cluster = 1;
  bool persistent = false;             ///< launch no more blocks than run at the same time
  bool architecture_specific = false;  ///< as in Source
  std::int64_t (*blocks)(const Config&, const Problem&) = nullptr;
};

[[nodiscard]] Program single_kernel(const SingleKernel& kernel);

/// A constant that names a type: "using Element = bf16".
[[nodiscard]] std::string type_constant(std::string_view name, DType dtype);

/// Multiplies a gradient in place by one number in device memory. It is not an operation and is not tuned. A dense
/// gradient has `rows` elements (Problem::rows of its launches, Arguments::rows).
/// \param gaps  the gradient has rows in batches, with any strides: Problem::strided, rows and columns of its launches,
/// Arguments::rows, batch_rows, output_layout and, for its columns, classes
[[nodiscard]] Program scale_gradient(DType gradient, DType upstream, bool gaps);

/// The name of a source's binary: a digest of text, headers and compiler.
/// \param compiler  the compiler with version and target
[[nodiscard]] std::string compile_key(const Source& source, std::string_view compiler);

/// Digest of every template from which a config of this variant is generated for this operation. Measurements with
/// another digest are out of date.
[[nodiscard]] std::string template_digest(Operation operation, std::string_view variant);

/// Digest of these templates and of all files that they include.
/// \param files  below templates/
[[nodiscard]] std::string digest_of_templates(std::set<std::string, std::less<>> files);

}  // namespace ce::generator
