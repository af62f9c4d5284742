#include "generator/source.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "ce/error.hpp"
#include "generator/linear.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "generator/templates.hpp"
#include "generator/variant.hpp"
#include "templates/arguments.cuh"
#include "templates/embedded.hpp"
#include "tests/generator/served.hpp"

namespace ce::generator {
namespace {

const Problem softmax{.dtype = DType::bf16, .rows = 8192, .columns = 4096};
const Config block{.variant = "block", .warps = 8, .vec = 8, .load = 2, .store = 2};

/// The problem as the variant of the config serves it, in rows of its own.
Problem served(Problem problem, const Config& config) {
  problem.rows = 64;
  problem.columns = 32768;
  return test::nearest_served(variant(config.variant), problem);
}

const Problem cross_entropy_problem{
    .operation = Operation::cross_entropy, .dtype = DType::bf16, .rows = 64, .columns = 32768};

/// Cross entropy with the options that go together.
Problem with_all_options() {
  Problem problem = cross_entropy_problem;
  problem.reduction = Reduction::mean;
  problem.upstream = Upstream::rows;
  problem.gradient = problem.has.smoothing = problem.weights = problem.has.z_loss = problem.has.softcap =
      problem.has.scale = problem.has.z_loss_out = problem.has.lse_out = problem.has.argmax_out =
          problem.has.hit_out = true;
  return problem;
}

/// A config of every variant, for bf16.
std::vector<Config> points_of_variants() {
  std::vector<Config> points;
  for (const Variant& each : variants()) {
    const Config named{.variant = std::string(each.name)};
    const auto configs = test::configs_of(each, served(cross_entropy_problem, named), test::limits_of(90));
    points.push_back(configs[configs.size() / 2]);
  }
  return points;
}
const std::vector<Config> points = points_of_variants();

bool serves(const Config& config, const Problem& problem) { return variant(config.variant).serves(problem); }
bool is_ceiling_of(const Config& config) { return serves(config, {.operation = Operation::copy}); }

/// Rows are an argument: no text knows them, whatever the variant and the options.
TEST(Source, SameInputSameText) {
  for (const Config& config : points)
    for (const Problem& kind : {softmax, with_all_options()}) {
      const Problem problem = served(kind, config);
      Problem other_rows = problem;
      other_rows.rows = 17;
      const Program first = generate(problem, config), second = generate(other_rows, config);
      ASSERT_EQ(first.sources.size(), second.sources.size());
      for (std::size_t i = 0; i < first.sources.size(); ++i) {
        EXPECT_EQ(first.sources[i].text, second.sources[i].text);
        EXPECT_EQ(first.sources[i].flat(), second.sources[i].flat());
      }
    }
}

/// The compiler sees a constant for each option: false until it is asked for, and then alone.
TEST(Source, OptionsThatAreOffAreConstantsThatAreFalse) {
  const std::map<std::string, void (*)(Problem&)> options{
      {"gradient", [](Problem& p) { p.gradient = true; }},
      {"probabilities", [](Problem& p) { p.probabilities = true; }},
      {"smoothing", [](Problem& p) { p.has.smoothing = true; }},
      {"weights", [](Problem& p) { p.weights = true; }},
      {"z_loss", [](Problem& p) { p.has.z_loss = true; }},
      {"softcap", [](Problem& p) { p.has.softcap = true; }},
      {"scale", [](Problem& p) { p.has.scale = true; }},
      {"z_loss_out", [](Problem& p) { p.has.z_loss_out = true; }},
      {"lse_out", [](Problem& p) { p.has.lse_out = true; }},
      {"argmax_out", [](Problem& p) { p.has.argmax_out = true; }},
      {"hit_out", [](Problem& p) { p.has.hit_out = true; }},
      {"upstream_scalar", [](Problem& p) { p.upstream = Upstream::scalar; }},
      {"upstream_rows", [](Problem& p) { p.upstream = Upstream::rows; }},
      {"batched", [](Problem& p) { p.batched = true; }},
      {"sums", [](Problem& p) { p.reduction = Reduction::sum; }},
      {"from_lse", [](Problem& p) { p.operation = Operation::cross_entropy_backward; }},
  };
  const auto is = [](const std::string& text, const std::string& option, bool on) {
    return text.find("constexpr bool " + option + " = " + (on ? "true;" : "false;")) != std::string::npos;
  };
  for (const Config& config : points) {
    const Problem least = served(cross_entropy_problem, config);
    if (!is_cross_entropy(least.operation)) continue;
    const std::string least_text = generate(least, config).sources.front().text;
    for (const auto& [option, turn_on] : options) {
      Problem problem = least;
      turn_on(problem);
      if (!serves(config, problem)) continue;
      if (least.operation == Operation::cross_entropy_backward && option == "sums") continue;  // no losses
      const std::string text = generate(problem, config).sources.front().text;
      for (const auto& [other, unused] : options) {
        const bool on = other == option || is(least_text, other, true);
        EXPECT_TRUE(is(text, other, on)) << to_text(config) << ": " << option << ", " << other;
        EXPECT_FALSE(is(text, other, !on)) << to_text(config) << ": " << option << ", " << other;
      }
    }
  }
}

/// Kernels look for an output where the host puts its address, and as what the host takes its elements for.
TEST(Source, OutputsHaveTheirPlacesAndTypes) {
  Problem problem = cross_entropy_problem;
  problem.loss_dtype = DType::bf16;
  const std::string text =
      generate(problem, space(problem, test::limits_of(90)).front()).sources.front().text;
  const std::map<DType, std::string> types{
      {DType::f32, "f32"}, {DType::bf16, "bf16"}, {DType::i64, "int64"}, {DType::u8, "unsigned char"}};
  for (const CrossEntropyOutput& output : cross_entropy_outputs) {
    const std::size_t place = (argument_of(output) - offsetof(Arguments, outputs)) / sizeof(void*);
    const std::string& type =
        types.at(output.kind == CrossEntropyOutput::Kind::of_losses ? problem.loss_dtype : output.dtype);
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("static {0}* {1}_of(const Arguments& arguments) {{\n"
                                                     "    return static_cast<{0}*>(arguments.outputs[{2}]);",
                                                     type, output.tensor, place)));
  }
}

TEST(Source, BeginsWithProblemAndConfigThenConstantsThenTheTemplate) {
  const std::string text = generate(softmax, block).sources.front().text;
  const std::size_t problem = text.find("softmax bf16 cols=4096 align=vector");
  const std::size_t config = text.find("block/warps=8,vec=8,load=cs,store=cs");
  const std::size_t constants = text.find("constexpr int warps = 8;");
  const std::size_t kernel = text.find("CE_KERNEL(ce_row");
  ASSERT_NE(problem, std::string::npos);
  ASSERT_NE(kernel, std::string::npos);
  EXPECT_LT(problem, config);
  EXPECT_LT(config, constants);
  EXPECT_LT(constants, kernel);
}

TEST(Source, FlatTextIncludesNothing) {
  for (const Config& config : points)
    for (const Source& source : generate(served(with_all_options(), config), config).sources)
      EXPECT_EQ(source.flat().find("#include"), std::string::npos) << source.name;
}

TEST(Source, FlatTextHasEachFileOnce) {
  for (const Config& config : points)
    for (const Source& source : generate(served(with_all_options(), config), config).sources) {
      const std::string flat = source.flat();
      std::size_t bytes = source.text.size();
      for (const auto& [name, text] : source.headers) bytes += text.size();
      EXPECT_LE(flat.size(), bytes) << source.name;
    }
}

/// A user who reads a kernel reads nothing that only other problems need.
TEST(Source, ProblemsOfCrossEntropyIncludeWhatTheyNeed) {
  const auto has = [](const Problem& problem, std::string_view file) {
    return generate(problem, block).sources.front().headers.contains(std::string(file));
  };
  const std::string_view cap = "operations/logits.cuh", weights = "row/slice_weights.cuh",
                         sums = "operations/fused_sums.cuh", ranks = "operations/cross_entropy_ranks.cuh";
  Problem plain = cross_entropy_problem;
  plain.reduction = Reduction::mean;
  plain.gradient = true;
  plain.rows = 1 << 20;
  for (const std::string_view file : {cap, weights, sums, ranks}) EXPECT_FALSE(has(plain, file)) << file;
  Problem capped = plain, weighted = plain, few = plain;
  capped.has.softcap = true;
  weighted.weights = weighted.has.smoothing = true;
  few.rows = 64;
  EXPECT_TRUE(has(capped, cap));
  EXPECT_FALSE(has(capped, weights));
  EXPECT_TRUE(has(weighted, weights));
  EXPECT_FALSE(has(weighted, cap));
  EXPECT_TRUE(has(few, sums));
}

TEST(Source, IncludesNothingFromTheToolkit) {
  for (const Config& config : points)
    for (const Source& source : generate(served(with_all_options(), config), config).sources)
      for (const auto& [name, text] : source.headers)
        EXPECT_EQ(text.find("#include <"), std::string::npos) << name;
}

std::string entries(const Program& program) {
  std::string all;
  for (const Step& step : program.steps) all += (all.empty() ? "" : " ") + step.entry;
  return all;
}

TEST(Program, StepsFollowFromVariantOperationAndReduction) {
  const auto steps = [](Operation operation, Reduction reduction, bool gradient, bool probabilities,
                        const std::string& rows) {
    Problem problem = cross_entropy_problem;
    problem.operation = operation;
    problem.reduction = reduction;
    problem.gradient = gradient;
    problem.probabilities = probabilities;
    return std::pair{problem, rows};
  };
  constexpr auto forward = Operation::cross_entropy, backward = Operation::cross_entropy_backward;
  for (const Config& config : points) {
    SCOPED_TRACE(to_text(config));
    std::string row;
    for (const VariantStep& step : variant(config.variant).steps)
      row += (row.empty() ? "" : " ") + std::string(step.entry);
    EXPECT_EQ(entries(generate(served(softmax, config), config)), row);
    if (is_ceiling_of(config)) continue;
    const std::pair<Problem, std::string> expected[] = {
        steps(forward, Reduction::none, true, false, row),
        steps(forward, Reduction::sum, true, false, row + " ce_sum"),
        steps(forward, Reduction::mean, true, false, "ce_count " + row + " ce_sum"),
        steps(forward, Reduction::mean, false, false, row + " ce_sum"),  // the sum counts by itself
        steps(forward, Reduction::mean, true, true, row + " ce_sum"),    // every row counts
        steps(backward, Reduction::none, true, false, row),
        steps(backward, Reduction::sum, true, false, row),
        steps(backward, Reduction::mean, true, false, "ce_count " + row),
        steps(backward, Reduction::mean, true, true, row),
    };
    for (auto [problem, wanted] : expected) {
      problem.strided = served(problem, config).strided;
      if (!serves(config, problem)) continue;
      problem.rows = most_fused_rows;  // whose kernel does it all
      EXPECT_EQ(entries(generate(problem, config)), problem.gradient ? row : wanted) << title(problem);
      ++problem.rows;
      EXPECT_EQ(entries(generate(problem, config)), wanted) << title(problem);
    }
  }
}

/// Each step but the first of a call waits by itself for the one before it.
TEST(Program, LaterStepsOverlapTheOneBefore) {
  for (const Config& config : points) {
    Problem problem = served(with_all_options(), config);
    for (const std::int64_t rows : {most_fused_rows, most_fused_rows + 1}) {
      problem.rows = rows;
      const Program program = generate(problem, config);
      for (std::size_t i = 0; i < program.steps.size(); ++i)
        EXPECT_EQ(program.steps[i].overlaps, i > 0) << to_text(config) << ": " << program.steps[i].entry;
    }
  }
}

TEST(Program, StepsAreLaunchedAsTheConfigSays) {
  struct Launched {
    Config config;
    std::int64_t blocks_of_64_rows;
    bool stay = false;  ///< and take rows
  };
  const Launched all[] = {
      {{.variant = "warp", .warps = 4, .vec = 4, .lanes = 16, .rows = 2}, 4},
      {block, 64},
      {{.variant = "two_pass", .warps = 8, .vec = 8, .tile = 4096}, 64},
      {{.variant = "cluster", .warps = 16, .vec = 8, .tile = 4096, .cluster = 4}, 256},
      {{.variant = "pipeline", .warps = 17, .vec = 8, .tile = 4096, .cluster = 2, .stages = 1}, 128, true},
      {{.variant = "persistent", .warps = 16, .vec = 8, .unroll = 2, .cluster = 1, .stages = 2, .hold = 8},
       64,
       true},
      {{.variant = "persistent_reduce", .warps = 13, .vec = 8, .unroll = 2, .cluster = 1, .stages = 3},
       64,
       true},
      {{.variant = "split", .warps = 8, .vec = 8, .split = 16}, 1024},
      {{.variant = "elementwise", .warps = 4, .vec = 8, .tile = 1024}, 64 * 32},
      {{.variant = "strided", .warps = 4, .tile = 8}, 2},
      {{.variant = "bandwidth", .warps = 8, .vec = 8, .tile = 8192}, 256},
  };
  for (const auto& [config, blocks, stay] : all) {
    SCOPED_TRACE(to_text(config));
    Problem problem = served(softmax, config);
    problem.columns = 32768;
    const Program program = generate(problem, config);
    EXPECT_EQ(program.config, config);
    for (const Step& step : program.steps) {
      EXPECT_EQ(step.source, 0u);
      EXPECT_EQ(step.threads, 32u * static_cast<unsigned>(config.warps));
      EXPECT_EQ(step.cluster, config.cluster == 0 ? 1u : static_cast<unsigned>(config.cluster));
      EXPECT_EQ(step.blocks(config, problem), blocks);
      EXPECT_EQ(step.persistent, stay);
      const std::string constant = "constexpr int shared_bytes = " + std::to_string(step.shared_bytes) + ";";
      EXPECT_NE(program.sources[0].text.find(constant), std::string::npos) << constant;
    }
    EXPECT_EQ(program.partial_bytes > 0, config.split > 0);
    EXPECT_EQ(program.takes_rows, stay);
  }
}

TEST(Program, SumsAreTheSameSourceForEveryConfigAndWidth) {
  Problem mean = cross_entropy_problem;
  mean.reduction = Reduction::mean;
  mean.gradient = true;
  const auto of_many_rows = [](const Problem& asked, const Config& config) {
    Problem problem = served(asked, config);
    problem.rows = most_fused_rows + 1;
    return problem;
  };
  const Program narrow = generate(of_many_rows(mean, block), block);
  ASSERT_EQ(narrow.sources.size(), 2u);
  for (const Config& config : points) {
    Problem other = mean;
    other.has.lse_out = other.has.smoothing = other.has.softcap = other.batched =
        true;  // nothing of it is summed
    other = of_many_rows(other, config);
    if (other.operation != mean.operation || other.gradient != mean.gradient) continue;
    other.columns = 65536;
    EXPECT_EQ(generate(other, config).sources.at(1).text, narrow.sources[1].text) << to_text(config);
  }
  mean.weights = true;  // looked up by class
  EXPECT_NE(generate(of_many_rows(mean, block), block).sources[1].text, narrow.sources[1].text);
}

TEST(Program, AVariantMustServeTheOperation) {
  const Config stream{.variant = "bandwidth", .warps = 8, .vec = 4, .tile = 4096};
  try {
    (void)generate(softmax, stream);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "config");
  }
  for (const Config& config : points) {
    Problem other = served(softmax, config);
    other.strided = !other.strided;
    if (is_ceiling_of(config)) other.operation = Operation::softmax;
    EXPECT_THROW((void)generate(other, config), InvalidArgument) << to_text(config);
  }
  Problem backward = cross_entropy_problem;
  backward.operation = Operation::cross_entropy_backward;
  EXPECT_THROW(
      (void)generate(cross_entropy_problem, {.variant = "elementwise", .warps = 4, .vec = 8, .tile = 1024}),
      InvalidArgument);
  EXPECT_THROW((void)generate(backward, block), InvalidArgument);
}

/// A change of any file that a kernel is made of makes its measurements those of another kernel.
TEST(TemplateDigest, IsOfEveryFileOfTheSources) {
  for (const auto operation : {Operation::softmax, Operation::log_softmax_backward, Operation::cross_entropy,
                               Operation::cross_entropy_backward, Operation::cross_entropy_shard,
                               Operation::cross_entropy_exchange, Operation::copy})
    for (const Variant& variant : variants()) {
      const Problem problem =
          test::nearest_served(variant, {.operation = operation, .rows = 64, .columns = 4096});
      if (problem.operation != operation) continue;
      const Config config = test::configs_of(variant, problem, test::limits_of(90)).front();
      SCOPED_TRACE(title(problem) + " " + to_text(config));
      std::set<std::string> files{std::string(variant.file)};
      for (const char* file : {"operations/softmax.cuh", "operations/softmax_backward.cuh",
                               "operations/cross_entropy.cuh", "operations/cross_entropy_ranks.cuh"})
        if (std::string_view(generate(problem, config).sources.front().flat())
                .find(template_text(file).substr(0, 60)) != std::string_view::npos)
          files.insert(file);
      if (is_cross_entropy(operation))
        files.insert({"kernels/loss_sum.cuh", "operations/logits.cuh", "operations/fused_sums.cuh",
                      "row/slice_weights.cuh"});
      std::string all;
      for (const std::string& file : files) all += template_text(file);
      for (const auto& [name, text] : included_files(all)) files.insert(name);
      std::vector<std::string> codes;
      for (const std::string& file : files) codes.push_back(without_comments(template_text(file)));
      const std::vector<std::string_view> parts(codes.begin(), codes.end());
      EXPECT_EQ(template_digest(operation, variant.name), digest_of(parts));
      for (const std::string& file : files) all += template_text(file);
      for (const Source& source : generate(problem, config).sources)
        for (const auto& [name, text] : source.headers)
          EXPECT_NE(all.find(text), std::string::npos) << name << " is not in the digest";
    }
}

/// The same of a race: an edit of any file that its ways are made of.
TEST(TemplateDigest, OfLinearLayersIsOfEveryFileOfTheirSources) {
  const LinearStatistics statistics{.exponentials = true};
  std::vector<Program> of_kernel, of_gradients{linear_factors({.statistics = statistics}),
                                               linear_weight_gradient(statistics, DType::bf16)};
  for (const ProductTile& tile : product_tiles()) of_kernel.push_back(linear_statistics(statistics, tile));
  for (const LinearStep step :
       {LinearStep::reference, LinearStep::scale, LinearStep::hidden_gradient, LinearStep::order})
    of_gradients.push_back(linear_step(step, statistics));
  std::set<std::string> files{"kernels/gemm/statistics.cuh"};
  const auto expect_digest_of_all = [&](const std::vector<Program>& programs, bool exponentials) {
    std::string all;
    for (const std::string& file : files) all += template_text(file);
    for (const auto& [name, text] : included_files(all)) files.insert(name);
    std::vector<std::string_view> parts;
    for (const std::string& file : files) parts.push_back(template_code(file));
    EXPECT_EQ(linear_template_digest(exponentials), digest_of(parts));
    for (const std::string& file : files) all += template_text(file);
    for (const Program& program : programs)
      for (const Source& source : program.sources)
        for (const auto& [name, text] : source.headers)
          EXPECT_NE(all.find(text), std::string::npos) << name << " is not in the digest";
  };
  expect_digest_of_all(of_kernel, false);
  for (const char* kernel : {"factors", "hidden_gradient", "order", "reference", "scale", "weight_gradient"})
    files.insert(fmt::format("linear/exponentials/{}.cuh", kernel));
  expect_digest_of_all(of_gradients, true);
  EXPECT_NE(linear_template_digest(true), linear_template_digest(false));
}

/// A comment in every line and other line breaks, as a person or a formatter would change them.
std::string with_other_comments(std::string_view text) {
  std::string changed = "/* A licence.\n\n Of several lines. */\n";
  bool continues = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const bool is_directive = continues || line.starts_with('#');
    continues = line.ends_with('\\');
    changed += is_directive ? std::string(line) : "   " + std::string(line) + "\t// \"why\" it's so\n\n";
    changed += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return changed;
}

TEST(TemplateDigest, CommentsAndSpacesOfNoTemplateChangeAKey) {
  ASSERT_FALSE(templates::files().empty());
  for (const templates::File& file : templates::files()) {
    EXPECT_EQ(without_comments(with_other_comments(file.text)), without_comments(file.text)) << file.name;
    EXPECT_LT(without_comments(file.text).size(), file.text.size()) << file.name;
  }
  Source source = generate(cross_entropy_problem, block).sources.front();
  const std::string key = compile_key(source, "nvrtc");
  source.text = with_other_comments(source.text);
  for (auto& [name, text] : source.headers) text = with_other_comments(text);
  EXPECT_EQ(compile_key(source, "nvrtc"), key);
  source.text += "int more;";
  EXPECT_NE(compile_key(source, "nvrtc"), key);
}

TEST(TemplateDigest, CodeDiffersWhereItsTokensDo) {
  const auto same = [](std::string_view a, std::string_view b) {
    return without_comments(a) == without_comments(b);
  };
  EXPECT_TRUE(same("int a = 1;  // one\n", "int a=1;"));
  EXPECT_TRUE(same("f(a,\n  b) /* both */ {", "f(a, b) {"));
  EXPECT_TRUE(same("#define A 1  // one\nint b;", "#define A 1\n\nint b;"));
  EXPECT_FALSE(same("int ab;", "int a b;"));
  EXPECT_FALSE(same("a & &b", "a && b"));
  EXPECT_FALSE(same("\"a  b\"", "\"a b\""));
  EXPECT_FALSE(same("\"//a\"", "\"//b\""));
  EXPECT_FALSE(same("#define A\nB", "#define A B"));
  EXPECT_FALSE(same("x = 1'000; y = '/';", "x = 1'000; y = '*';"));
}

TEST(TemplateDigest, DiffersBetweenVariantsAndOperations) {
  EXPECT_NE(template_digest(Operation::softmax, "block"), template_digest(Operation::softmax, "two_pass"));
  EXPECT_NE(template_digest(Operation::softmax, "block"), template_digest(Operation::cross_entropy, "block"));
  EXPECT_EQ(template_digest(Operation::softmax, "block"), template_digest(Operation::softmax, "block"));
}

TEST(Templates, AnUnknownFileIsNamed) {
  try {
    (void)template_text("nowhere.cuh");
    FAIL();
  } catch (const NotFound& error) {
    EXPECT_EQ(std::string(error.what()), "there is no template nowhere.cuh");
  }
}

TEST(Templates, AxisLinesAreRead) {
  const auto lines = axis_lines("// axis warps = 1 2\n// other\n// axis load = ca cs\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].axis, "warps");
  EXPECT_EQ(lines[1].values, (std::vector<std::string>{"ca", "cs"}));
  EXPECT_THROW((void)axis_lines("// axis warps 1 2\n"), InvalidArgument);
  EXPECT_THROW((void)axis_lines("// axis warps =\n"), InvalidArgument);
}

}  // namespace
}  // namespace ce::generator
