#include "generator/source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "generator/ceil_div.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "generator/templates.hpp"
#include "generator/variant.hpp"

namespace ce::generator {
namespace {

constexpr std::string_view loss_sum_file = "kernels/loss_sum.cuh";
constexpr std::string_view scale_gradient_file = "kernels/scale_gradient.cuh";
constexpr std::uint32_t loss_sum_threads = 1024;  // ce::sum_threads in loss_sum.cuh
constexpr std::uint32_t loss_sum_shared_bytes = 512;

/// Files that only some problems of cross entropy need, in the order in which sources include them, before the file of
/// the operation.
struct CrossEntropyFile {
  std::string_view file;
  bool (*serves)(const Problem&);
};
constexpr CrossEntropyFile cross_entropy_files[] = {
    {"operations/logits.cuh", [](const Problem& problem) { return problem.has.softcap; }},
    {"operations/fused_sums.cuh", [](const Problem& problem) { return fuses_sums(problem); }},
    {"row/slice_weights.cuh", [](const Problem& problem) { return reads_all_weights(problem); }},
};

std::string_view kernel_type(DType dtype) {
  switch (dtype) {
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::u8: return "unsigned char";
    default: return name(dtype);
  }
}

/// Text that is written line by line.
class Text {
 public:
  template <class... Values>
  void line(fmt::format_string<Values...> format, Values&&... values) {
    text_ += fmt::format(format, std::forward<Values>(values)...) + '\n';
  }
  void add(std::string_view text) { text_ += text; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Writes whether a problem has the output, and the function by which kernels access it:
/// `problem::lse_of(arguments)[row]`.
void write_output(Text& text, const Problem& problem, const CrossEntropyOutput& output) {
  const std::string_view type = kernel_type(output.dtype_of(problem));
  text.line("  static constexpr bool {} = {};", output.word, problem.has.*output.field);
  text.line("  CE_DEVICE static {}* {}_of(const Arguments& arguments) {{", type, output.tensor);
  text.line("    return static_cast<{}*>(arguments.outputs[{}]);", type, index_of(output));
  text.line("  }}");
}

/// The constants of the kernels that compute sums.
void write_losses(Text& text, const Problem& problem) {
  const bool sharded = is_sharded(problem.operation);
  text.line("  static constexpr int columns = {};", problem.columns);
  text.line("  static constexpr bool single_class = {};", problem.columns == 1 && !sharded);
  text.line("  static constexpr bool sharded = {};  // classes are spread over ranks", sharded);
  text.line("  using Target = {};", kernel_type(problem.target_dtype));
  text.line("  using Loss = {};", kernel_type(problem.loss_dtype));
  text.line("  using Weight = {};", kernel_type(problem.weight_dtype));
  text.line("  static constexpr bool mean = {};", problem.reduction == Reduction::mean);
  text.line("  static constexpr bool counts_first = {};", counts_first(problem));
  text.line("  static constexpr bool probabilities = {};", problem.probabilities);
  text.line("  static constexpr bool weights = {};", problem.weights);
  for (const CrossEntropyOption& option : cross_entropy_options) {
    text.line("  static constexpr bool {} = {};", option.word, problem.has.*option.field);
    text.line("  {};", amount_constant(option));
  }
  for (const CrossEntropyInput& input : cross_entropy_inputs)
    text.line("  static constexpr bool {} = {};", input.word, problem.has.*input.field);
  for (const CrossEntropyOutput& output : cross_entropy_outputs) write_output(text, problem, output);
}

void write_cross_entropy(Text& text, const Problem& problem) {
  const bool from_statistics = problem.operation == Operation::cross_entropy_merge ||
                               problem.operation == Operation::cross_entropy_shard_backward;
  write_losses(text, problem);
  text.line("  static constexpr bool from_lse = {};", reads_lse(problem));
  text.line("  static constexpr bool losses = {};", has_losses(problem.operation));
  text.line("  static constexpr bool shard = {};", problem.operation == Operation::cross_entropy_shard);
  text.line("  static constexpr bool merges = {};", problem.operation == Operation::cross_entropy_merge);
  text.line("  static constexpr bool from_statistics = {};", from_statistics);
  text.line("  static constexpr bool exchanges = {};", exchanges(problem.operation));
  text.line("  static constexpr bool gradient = {};", problem.gradient);
  text.line("  static constexpr bool sums = {};", sums_losses(problem));
  text.line("  static constexpr bool fuses_sums = {};", fuses_sums(problem));
  text.line("  static constexpr bool upstream_scalar = {};", problem.upstream == Upstream::scalar);
  text.line("  static constexpr bool upstream_rows = {};", problem.upstream == Upstream::rows);
}

void write_problem(Text& text, const Problem& problem, const Config& config) {
  text.line("namespace ce {{");
  text.line("struct problem {{");
  text.line("  using Element = {};", kernel_type(problem.dtype));
  text.line("  static constexpr int inputs = {};", inputs(problem));
  text.line("  static constexpr bool batched = {};", problem.batched);
  text.line("  static constexpr bool strided = {};", problem.strided);
  if (is_ceiling(problem.operation))
    text.line("  static constexpr bool writes = {};", has_output(problem));
  else
    text.line("  static constexpr bool aligned = {};  // every row starts on a vector boundary",
              starts_on_vectors(problem, config.vec));
  if (problem.alignment == Alignment::dense)
    text.line("  static constexpr bool dense = true;  // rows follow each other without gaps");
  if (is_cross_entropy(problem.operation)) {
    write_cross_entropy(text, problem);
  } else {
    text.line("  static constexpr int columns = {};", problem.columns);
    text.line("  static constexpr bool single_class = {};", problem.columns == 1);
    text.line("  static constexpr bool logarithm = {};", row_of(problem.operation).of_logarithm);
  }
  text.line("}};");
  text.line("}}  // namespace ce");
}

void write_config(Text& text, const Variant& variant, const Config& config, const Problem& problem) {
  text.line("namespace ce {{");
  text.line("struct config {{");
  for (const Axis* axis : variant.axes()) {
    const std::string value = value_text(*axis, config.*axis->value);
    if (axis->words.empty())
      text.line("  static constexpr int {} = {};", axis->name, value);
    else
      text.line("  static constexpr {0} {1} = {0}::{2};", axis->name == "load" ? "Load" : "Store", axis->name,
                value);
  }
  text.line("  static constexpr int shared_bytes = {};", variant.shared_bytes(config, problem));
  text.line("}};");
  text.line("}}  // namespace ce");
}

std::int64_t blocks_of_sum(const Config&, const Problem& problem) { return sum_blocks(problem.rows); }

void write_start(Text& text, std::string_view problem, std::string_view config, std::string_view file) {
  text.line("// Generated by ce. Do not edit: change the template or the config.");
  text.line("//   problem  {}", problem);
  if (!config.empty()) text.line("//   config   {}", config);
  text.line("//   template {}", file);
  text.line("#include \"arguments.cuh\"");
  text.line("#include \"device/device.cuh\"");
  text.line("");
}

void write_template(Text& text, std::string_view file) {
  for (std::string_view body = template_text(file); !body.empty();) {
    const std::size_t end = body.find('\n');
    if (const std::string_view line = body.substr(0, end); line != "#pragma once") text.line("{}", line);
    body.remove_prefix(end == std::string_view::npos ? body.size() : end + 1);
  }
}

Source finished(std::string name, Text text) {
  Source source{.name = std::move(name), .text = text.take(), .headers = {}};
  source.headers = included_files(source.text);
  return source;
}

Source row_source(const Problem& problem, const Variant& variant, const Config& config) {
  Text text;
  write_start(text, code_text(problem), to_text(config), variant.file);
  write_problem(text, problem, config);
  write_config(text, variant, config, problem);
  text.line("using ce::Arguments;");
  text.line("");
  if (const OperationRow& operation = row_of(problem.operation); !operation.file.empty()) {
    for (const CrossEntropyFile& one : cross_entropy_files)
      if (one.serves(problem)) text.line("#include \"{}\"", one.file);
    text.line("#include \"{}\"", operation.file);
    text.line("namespace ce {{");
    text.line("using Operation = {};", operation.type);
    text.line("}}  // namespace ce");
    text.line("");
  }
  write_template(text, variant.file);
  return finished(code_text(problem) + " " + to_text(config), std::move(text));
}

/// The sums do not depend on the Config, and on few members of the problem.
Source loss_sum_source(const Problem& problem) {
  Problem relevant{.operation = problem.operation,
                   .target_dtype = problem.target_dtype,
                   .loss_dtype = problem.loss_dtype,
                   .weight_dtype = problem.weight_dtype,
                   .reduction = problem.reduction,
                   .gradient = problem.gradient,
                   .probabilities = problem.probabilities,
                   .weights = problem.weights,
                   .has = {.z_loss = problem.has.z_loss,
                           .divisor = problem.has.divisor,
                           .z_loss_out = problem.has.z_loss_out},
                   .columns = problem.columns};
  if (!problem.weights) relevant.columns = 0;  // columns are only used to look up a class's weight
  const std::string words = "sums of " + code_text(relevant);
  Text text;
  write_start(text, words, "", loss_sum_file);
  text.line("namespace ce {{");
  text.line("struct problem {{");
  write_losses(text, relevant);
  text.line("}};");
  text.line("}}  // namespace ce");
  text.line("using ce::Arguments;");
  text.line("");
  write_template(text, loss_sum_file);
  return finished(words, std::move(text));
}

/// Replaces each include line by the text of the file, the first time that it occurs.
void flatten(std::string_view text, const std::map<std::string, std::string>& headers,
             std::set<std::string>& done, std::string& out) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line == "#pragma once") continue;
    if (line.starts_with("#include \"")) {
      const std::string_view rest = line.substr(line.find('"') + 1);
      const std::string file(rest.substr(0, rest.find('"')));
      if (done.insert(file).second) flatten(headers.at(file), headers, done, out);
    } else {
      out.append(line).push_back('\n');
    }
  }
}

std::string digest_of_templates(Operation operation, const Variant& chosen) {
  std::set<std::string, std::less<>> files{std::string(chosen.file)};
  if (const std::string_view file = row_of(operation).file; !file.empty()) files.emplace(file);
  if (is_cross_entropy(operation)) {
    files.emplace(loss_sum_file);
    for (const CrossEntropyFile& one : cross_entropy_files) files.emplace(one.file);
  }
  return generator::digest_of_templates(std::move(files));
}

}  // namespace

std::string Source::flat() const {
  std::string out;
  std::set<std::string> done;
  flatten(text, headers, done, out);
  return out;
}

std::string Program::compile_key() const {
  std::string all;
  for (const Source& source : sources) all += (all.empty() ? "" : " ") + source.compile_key;
  return all;
}

Program generate(const Problem& problem, const Config& config) {
  const Variant& chosen = variant(config.variant);
  if (!chosen.serves(problem))
    throw InvalidArgument("config", to_text(config),
                          fmt::format("a variant that supports {}", title(problem)));
  Program program{.config = config, .sources = {row_source(problem, chosen, config)}, .steps = {}};
  const bool counts = counts_first(problem) && !fuses_sums(problem),
             sums = sums_losses(problem) && !fuses_sums(problem);
  for (const VariantStep& step : chosen.steps)
    program.steps.push_back({.source = 0,
                             .entry = std::string(step.entry),
                             .threads = static_cast<std::uint32_t>(32 * config.warps),
                             .shared_bytes = static_cast<std::uint32_t>(chosen.shared_bytes(config, problem)),
                             .cluster = static_cast<std::uint32_t>(std::max(1, config.cluster)),
                             .persistent = chosen.persistent,
                             .overlaps = step.overlaps,
                             .blocks = chosen.blocks});
  program.partial_bytes = chosen.partial_bytes;
  program.takes_rows = chosen.takes_rows;
  if (!counts && !sums) return program;
  program.sources.push_back(loss_sum_source(problem));
  const auto over_losses = [](std::string_view entry, bool overlaps) {
    return Step{.source = 1,
                .entry = std::string(entry),
                .threads = loss_sum_threads,
                .shared_bytes = loss_sum_shared_bytes,
                .overlaps = overlaps,
                .blocks = blocks_of_sum};
  };
  if (counts) {
    program.steps.front().overlaps = true;
    program.steps.insert(program.steps.begin(), over_losses("ce_count", false));
  }
  if (sums) program.steps.push_back(over_losses("ce_sum", true));
  return program;
}

Program single_kernel(const SingleKernel& kernel) {
  Text text;
  write_start(text, kernel.words, "", kernel.file);
  text.line("namespace ce {{");
  text.line("struct problem {{");
  for (const std::string& constant : kernel.constants) text.line("  {};", constant);
  text.line("}};");
  text.line("}}  // namespace ce");
  if (!kernel.own_arguments) text.line("using ce::Arguments;");
  text.line("");
  write_template(text, kernel.file);
  Source source = finished(kernel.words, std::move(text));
  source.architecture_specific = kernel.architecture_specific;
  return {.config = {},
          .sources = {std::move(source)},
          .steps = {{.source = 0,
                     .entry = std::string(kernel.entry),
                     .threads = kernel.threads,
                     .shared_bytes = kernel.shared_bytes,
                     .cluster = kernel.cluster,
                     .persistent = kernel.persistent,
                     .blocks = kernel.blocks}}};
}

std::string type_constant(std::string_view name, DType dtype) {
  return fmt::format("using {} = {}", name, kernel_type(dtype));
}

Program scale_gradient(DType gradient, DType upstream, bool gaps) {
  constexpr std::uint32_t threads = 256;
  constexpr int unroll_vectors = 4, unroll_elements = 8, lanes = 32;
  return single_kernel(
      {.file = scale_gradient_file,
       .entry = "ce_scale_gradient",
       .words = fmt::format("scale_gradient {} upstream={}{}", name(gradient), name(upstream),
                            gaps ? " gaps" : ""),
       .constants = {type_constant("Element", gradient), type_constant("Upstream", upstream),
                     fmt::format("static constexpr int inputs = 1, threads = {}, unroll = {}", threads,
                                 gaps ? unroll_elements : unroll_vectors),
                     fmt::format("static constexpr bool batched = {0}, strided = {0}", gaps)},
       .threads = threads,
       .persistent = true,
       .blocks = [](const Config&, const Problem& problem) {
         if (problem.strided) {
           const std::int64_t tiles = problem.rows * ceil_div(problem.columns, lanes * unroll_elements);
           return std::max<std::int64_t>(1, ceil_div(tiles, threads / lanes));
         }
         const std::int64_t tile = threads * unroll_vectors * (16 / size_of(problem.dtype));
         return std::max<std::int64_t>(1, ceil_div(problem.rows, tile));
       }});
}

std::string compile_key(const Source& source, std::string_view compiler) {
  const std::string code = without_comments(source.text);
  std::vector<std::string_view> parts{code, compiler};
  std::vector<std::string> others;  // headers that are not templates of this library
  others.reserve(source.headers.size());
  for (const auto& [name, text] : source.headers) {
    parts.push_back(name);
    parts.push_back(is_template(name, text) ? template_code(name)
                                            : others.emplace_back(without_comments(text)));
  }
  return digest_of(parts);
}

std::string digest_of_templates(std::set<std::string, std::less<>> files) {
  std::string all;
  for (const std::string& file : files) all += template_text(file);
  for (const auto& [name, text] : included_files(all)) files.insert(name);
  std::vector<std::string_view> parts;
  parts.reserve(files.size());
  for (const std::string& file : files) parts.push_back(template_code(file));
  return digest_of(parts);
}

std::string template_digest(Operation operation, std::string_view variant_name) {
  constexpr std::size_t most_operations = 16, most_variants = 16;
  static constinit std::array<std::array<MadeOnce<std::string>, most_variants>, most_operations> known;
  const Variant& chosen = variant(variant_name);
  return known.at(static_cast<std::size_t>(operation))
      .at(static_cast<std::size_t>(&chosen - variants().data()))
      .get([&] { return digest_of_templates(operation, chosen); });
}

}  // namespace ce::generator
