#include "generator/source.hpp"

#include <fmt/format.h>

#include <set>

#include "ce/base/digest.hpp"
#include "ce/base/error.hpp"
#include "generator/templates.hpp"
#include "generator/variant.hpp"

namespace ce::generator {
namespace {

constexpr std::string_view loss_sum_file = "loss_sum.cuh";
constexpr std::uint32_t loss_sum_threads = 512;  // ce::sum_threads in that file
constexpr std::uint32_t loss_sum_shared_bytes = 256;

/// The file with the operation's Epilogue; empty for operations that have none.
std::string_view epilogue_file(Operation operation) {
  switch (operation) {
    case Operation::softmax: return "softmax.cuh";
    case Operation::cross_entropy: return "cross_entropy.cuh";
    case Operation::copy:
    case Operation::read: return {};
  }
  return {};
}

std::string_view kernel_type(DType dtype) {
  switch (dtype) {
    case DType::i32: return "int32";
    case DType::i64: return "int64";
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

void write_problem(Text& text, const Problem& problem) {
  text.line("namespace ce::problem {{");
  text.line("using Element = {};", kernel_type(problem.dtype));
  text.line("constexpr int columns = {};", problem.columns);
  if (!epilogue_file(problem.operation).empty())
    text.line("constexpr bool aligned = {};  // every row starts on a 16-byte boundary",
              problem.alignment == Alignment::vector);
  if (problem.operation == Operation::cross_entropy) {
    text.line("using Target = {};", kernel_type(problem.target_dtype));
    text.line("using Loss = {};", kernel_type(problem.loss_dtype));
    text.line("constexpr bool gradient = {};", problem.gradient);
    text.line("constexpr bool loss_per_row = {};", problem.reduction == Reduction::none);
    text.line("constexpr bool mean = {};", problem.reduction == Reduction::mean);
  }
  if (epilogue_file(problem.operation).empty()) text.line("constexpr bool writes = {};", has_output(problem));
  text.line("}}  // namespace ce::problem");
}

void write_config(Text& text, const Variant& variant, const Config& config) {
  text.line("namespace ce::config {{");
  for (const Axis* axis : variant.axes()) {
    const std::string value = value_text(*axis, config.*axis->value);
    if (axis->words.empty())
      text.line("constexpr int {} = {};", axis->name, value);
    else
      text.line("constexpr {0} {1} = {0}::{2};", axis->name == "load" ? "Load" : "Store", axis->name, value);
  }
  text.line("constexpr int shared_bytes = {};", variant.shared_bytes(config));
  text.line("}}  // namespace ce::config");
}

bool sums_losses(const Problem& problem) { return workspace_bytes(problem) > 0; }

std::int64_t blocks_of_sum(const Config&, const Problem& problem) { return sum_blocks(problem.rows); }

std::vector<Step> steps_of(const Problem& problem, const Variant& variant, const Config& config) {
  const auto sum_step = [](std::string_view entry) {
    return Step{std::string(entry), loss_sum_threads, loss_sum_shared_bytes, blocks_of_sum};
  };
  std::vector<Step> steps;
  if (problem.gradient && problem.reduction == Reduction::mean) steps.push_back(sum_step("ce_count"));
  steps.push_back({"ce_row", static_cast<std::uint32_t>(32 * config.warps),
                   static_cast<std::uint32_t>(variant.shared_bytes(config)), variant.blocks});
  if (sums_losses(problem)) steps.push_back(sum_step("ce_sum"));
  return steps;
}

/// Puts the files that the text includes in place of the lines that include them, each once.
void flatten(std::string_view text, const std::map<std::string, std::string>& headers, std::set<std::string>& done,
             std::string& out) {
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

}  // namespace

std::string Source::flat() const {
  std::string out;
  std::set<std::string> done;
  flatten(text, headers, done, out);
  return out;
}

Source generate(const Problem& problem, const Config& config) {
  const Variant& chosen = variant(config.variant);
  if (!chosen.serves(problem.operation))
    throw InvalidArgument("config", to_text(config),
                          fmt::format("a variant that serves {}", name(problem.operation)));
  const std::string_view epilogue = epilogue_file(problem.operation);
  Text text;
  text.line("// Generated by ce. Do not edit: change the template or the config.");
  text.line("//   problem  {}", code_text(problem));
  text.line("//   config   {}", to_text(config));
  text.line("//   template {}", chosen.file);
  text.line("#include \"arguments.cuh\"");
  text.line("#include \"device.cuh\"");
  text.line("");
  write_problem(text, problem);
  write_config(text, chosen, config);
  text.line("using ce::Arguments;");
  text.line("");
  if (!epilogue.empty()) text.line("#include \"{}\"", epilogue);
  if (sums_losses(problem)) text.line("#include \"{}\"", loss_sum_file);
  text.line("");
  for (std::string_view body = template_text(chosen.file); !body.empty();) {
    const std::size_t end = body.find('\n');
    if (const std::string_view line = body.substr(0, end); line != "#pragma once") text.line("{}", line);
    body.remove_prefix(end == std::string_view::npos ? body.size() : end + 1);
  }

  Source source{.config = config, .text = text.take(), .steps = steps_of(problem, chosen, config)};
  source.headers = included_files(source.text);
  return source;
}

std::string compile_key(const Source& source, std::string_view compiler) {
  return digest({source.flat(), compiler});
}

std::string template_digest(Operation operation, std::string_view variant_name) {
  std::string all(template_text(variant(variant_name).file));
  if (const std::string_view epilogue = epilogue_file(operation); !epilogue.empty()) all += template_text(epilogue);
  if (operation == Operation::cross_entropy) all += template_text(loss_sum_file);
  for (const auto& [name, text] : included_files(all)) all += text;
  return digest({all});
}

}  // namespace ce::generator
