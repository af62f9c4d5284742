// Every Variant through NVRTC for every architecture, without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ce/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/environment.hpp"

namespace ce::generator {
namespace {

bool is_bandwidth(const Variant& variant) { return variant.serves({.operation = Operation::copy}); }
bool needs_clusters(const Variant& variant) {
  return variant.name == "cluster" || variant.name == "pipeline" || variant.name == "pipeline_decoupled" ||
         variant.name == "persistent" || variant.name == "persistent_reduce";
}

/// Every option at once, as far as they go together and the variant serves them.
Problem with_all_options(const Variant& variant, Problem problem) {
  problem.reduction = Reduction::mean;
  problem.upstream = Upstream::rows;
  problem.gradient = problem.smoothing = problem.weights = problem.z_loss = problem.softcap = problem.scale =
      true;
  if (problem.operation == Operation::cross_entropy) {
    problem.z_loss_out = problem.lse_out = problem.argmax_out = true;
    problem.hit_out = !problem.probabilities;
  }
  if (variant.name == "persistent" || variant.name == "pipeline") problem.softcap = false;
  if (variant.name == "pipeline") problem.weights = false;
  return problem;
}

/// Of the width that the variant is for.
Problem plain(const Variant& variant, Operation operation, DType dtype) {
  const bool strided = !is_bandwidth(variant) && variant.serves({.strided = true});
  return {.operation = operation,
          .dtype = dtype,
          .strided = strided,
          .rows = 64,
          .columns = variant.name == "warp"         ? 256
                     : variant.name == "block"      ? 4096
                     : variant.name == "persistent" ? 131072
                                                    : 32768};
}

/// What `elementwise` serves: nothing is reduced.
std::vector<Problem> problems_of_elementwise(const Variant& variant) {
  Problem usual = plain(variant, Operation::cross_entropy_backward, DType::bf16);
  usual.gradient = usual.in_place = true;
  usual.upstream = Upstream::scalar;
  Problem weights = with_all_options(variant, plain(variant, Operation::cross_entropy_backward, DType::f16)),
          smoothing = weights;
  weights.smoothing = smoothing.weights = false;
  smoothing.batched = true;
  return {usual, weights, smoothing};
}

/// What `persistent_reduce` serves: losses alone. Of weights that all rows need it has room for those of narrow rows.
std::vector<Problem> problems_of_persistent_reduce(const Variant& variant) {
  std::vector<Problem> problems;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Problem problem = with_all_options(variant, plain(variant, Operation::cross_entropy, dtype));
    problem.gradient = false;
    problem.upstream = Upstream::one;
    problem.weights = dtype != DType::bf16;
    problem.smoothing = !problem.weights;
    problems.push_back(problem);
  }
  problems[1].columns += 3;
  problems[1].alignment = Alignment::shifted;
  problems[1].batched = true;
  return problems;
}

/// What `pipeline_decoupled` serves: cross entropy with a soft cap or weights that all rows need.
std::vector<Problem> problems_of_pipeline_decoupled(const Variant& variant) {
  Problem backward = with_all_options(variant, plain(variant, Operation::cross_entropy_backward, DType::f16));
  backward.columns += 3;
  backward.alignment = Alignment::shifted;
  backward.batched = true;
  return {with_all_options(variant, plain(variant, Operation::cross_entropy, DType::bf16)), backward};
}

/// What `pipeline` serves of the backward operation: targets that are probabilities.
Problem backward_for(const Variant& variant, Problem problem) {
  if (variant.name == "pipeline") problem.probabilities = true;
  return problem;
}

/// Each operation once, cross entropy with all options.
std::vector<Problem> operations_of(const Variant& variant) {
  if (is_bandwidth(variant))
    return {plain(variant, Operation::copy, DType::f32), plain(variant, Operation::read, DType::f32),
            plain(variant, Operation::add, DType::f32)};
  if (variant.name == "elementwise") return problems_of_elementwise(variant);
  if (variant.name == "persistent_reduce") return problems_of_persistent_reduce(variant);
  if (variant.name == "pipeline_decoupled") return problems_of_pipeline_decoupled(variant);
  Problem log_softmax = plain(variant, Operation::log_softmax, DType::bf16);
  log_softmax.columns += 3;
  if (!log_softmax.strided) log_softmax.alignment = Alignment::shifted;
  Problem log_softmax_backward = plain(variant, Operation::log_softmax_backward, DType::f32);
  log_softmax_backward.batched = true;
  return {plain(variant, Operation::softmax, DType::f16),
          log_softmax,
          plain(variant, Operation::softmax_backward, DType::bf16),
          log_softmax_backward,
          with_all_options(variant, plain(variant, Operation::cross_entropy, DType::bf16)),
          with_all_options(
              variant, backward_for(variant, plain(variant, Operation::cross_entropy_backward, DType::f16)))};
}

/// Cross entropy as most call it, by itself, and with probabilities.
std::vector<Problem> more_of(const Variant& variant) {
  if (is_bandwidth(variant) || variant.name == "elementwise") return {};
  const bool writes_rows =
      variant.name == "pipeline" || variant.name == "pipeline_decoupled" || variant.name == "persistent";
  Problem usual = plain(variant, Operation::cross_entropy, DType::bf16);
  usual.target_dtype = DType::i32;
  usual.loss_dtype = DType::bf16;
  usual.reduction = Reduction::sum;
  usual.softcap = variant.name == "pipeline_decoupled";
  usual.weights = variant.name == "pipeline";  // of the targets alone
  if (variant.name != "persistent_reduce") {
    usual.upstream = Upstream::scalar;
    usual.gradient = usual.in_place = true;
  }
  Problem probabilities = plain(variant, Operation::cross_entropy, DType::f32);
  probabilities.probabilities = true;
  if (variant.name == "persistent_reduce")
    return {usual, probabilities, plain(variant, Operation::cross_entropy, DType::f32)};
  Problem loss = plain(variant, Operation::cross_entropy, DType::f32);
  if (!loss.strided && !needs_clusters(variant)) loss.alignment = Alignment::element;
  std::vector<Problem> problems{usual, with_all_options(variant, probabilities)};
  if (!writes_rows) problems.push_back(loss);
  return problems;
}

/// A config from the middle or the end of the problem's space.
std::optional<Config> config_of(const Variant& variant, const Problem& problem, int capability, bool last) {
  std::vector<Config> configs;
  const Limits limits{.capability = capability,
                      .shared_bytes_per_block = capability < 90 ? 48 * 1024 : 227 * 1024};
  for (const Config& config : space(problem, limits))
    if (config.variant == variant.name) configs.push_back(config);
  EXPECT_EQ(configs.empty(), needs_clusters(variant) && capability < 90)
      << variant.name << ", " << title(problem);
  if (configs.empty()) return std::nullopt;
  return last ? configs.back() : configs[configs.size() / 2];
}

/// Every source once: many programs have the same sums.
class Compiler {
 public:
  Compiler(const runtime::cuda::Nvrtc& nvrtc, int capability) : nvrtc_(nvrtc), capability_(capability) {}

  void expect_compiles(const Program& program) {
    for (const Source& source : program.sources) {
      if (!compiled_.insert(source.text).second) continue;
      SCOPED_TRACE(source.name);
      try {
        const auto binary = nvrtc_.compile(
            {.name = source.name, .text = source.text, .headers = source.headers}, capability_);
        EXPECT_GT(binary.image.size(), 0u);
        EXPECT_EQ(binary.log, "") << "warnings";
      } catch (const CompileError& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }

 private:
  const runtime::cuda::Nvrtc& nvrtc_;
  int capability_;
  std::set<std::string> compiled_;
};

/// What compiles below is all there is: no option or operation of a variant is left out.
TEST(CompiledProblems, ShowEveryOptionOfEveryVariant) {
  for (const Variant& variant : variants()) {
    if (is_bandwidth(variant)) continue;
    std::vector<Problem> problems = operations_of(variant);
    const std::vector<Problem> more = more_of(variant);
    problems.insert(problems.end(), more.begin(), more.end());
    std::set<std::string> shown;
    for (const Problem& problem : problems) {
      validate(problem);
      EXPECT_TRUE(variant.serves(problem)) << variant.name << ", " << title(problem);
      std::istringstream words(code_text(problem));
      for (std::string word; words >> word;) shown.insert(word);
    }
    std::vector<std::string> wanted{"smoothing", "weights=f32", "z_loss", "scale", "batched", "mean"};
    if (variant.name != "persistent" && variant.name != "pipeline") wanted.push_back("softcap");
    if (variant.name != "persistent_reduce")
      wanted.insert(wanted.end(),
                    {"cross_entropy_backward", "gradient", "upstream=scalar", "upstream=rows", "in_place"});
    if (variant.name != "elementwise")
      wanted.insert(wanted.end(), {"cross_entropy", "probabilities", "z_loss_out", "lse_out", "argmax_out",
                                   "hit_out", "sum", "target=i32", "loss=bf16", "f32", "f16", "bf16"});
    if (variant.name != "elementwise" && variant.name != "persistent_reduce" &&
        variant.name != "pipeline_decoupled")
      wanted.insert(wanted.end(), {"softmax", "log_softmax", "softmax_backward", "log_softmax_backward"});
    for (const std::string& word : wanted)
      EXPECT_TRUE(shown.contains(word)) << variant.name << " is not compiled with " << word;
  }
}

std::size_t count_of(std::string_view part, std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Words that are read one by one take several times as many instructions as vectors of four. In PTX, which NVRTC makes
/// for an architecture that it does not know.
TEST(CompiledProblems, ReadWeightsInSharedMemoryByVectors) {
  const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::shared().nvrtc.get();
  constexpr int unknown = 91;
  if (nvrtc == nullptr || nvrtc->target(unknown) != "compute_90")
    GTEST_SKIP() << "no NVRTC that makes PTX for sm_90";
  for (const Variant& variant : variants()) {
    if (variant.name != "pipeline_decoupled" && variant.name != "persistent" &&
        variant.name != "persistent_reduce")
      continue;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      Problem problem = plain(variant, Operation::cross_entropy, dtype);
      problem.smoothing = problem.weights = true;
      problem.gradient = variant.name != "persistent_reduce";
      validate(problem);
      if (!variant.serves(problem)) continue;
      const std::optional<Config> config = config_of(variant, problem, 90, false);
      if (!config) continue;
      SCOPED_TRACE(to_text(*config) + ", " + title(problem));
      const Source source = generate(problem, *config).sources.front();
      const auto binary =
          nvrtc->compile({.name = source.name, .text = source.text, .headers = source.headers}, unknown);
      const std::string_view ptx(reinterpret_cast<const char*>(binary.image.data()), binary.image.size());
      const std::size_t vectors = count_of("ld.shared.v4.", ptx);
      EXPECT_GT(vectors, 4U);
      EXPECT_LE(count_of("ld.shared.f32", ptx), vectors / 2);
    }
  }
}

class CompileForArchitecture : public testing::TestWithParam<int> {};

/// The oldest and the first with clusters see all, the newest each operation. Those between speak the language of one of
/// these; each of them sees every variant, and every third operation.
TEST_P(CompileForArchitecture, EveryVariant) {
  const int capability = GetParam();
  const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::shared().nvrtc.get();
  if (nvrtc == nullptr) {
    if (test::is_required("CE_REQUIRE_NVRTC")) FAIL() << "no NVRTC";
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const std::vector<int> supported = nvrtc->architectures_to_test();
  if (std::find(supported.begin(), supported.end(), capability) == supported.end())
    GTEST_SKIP() << "NVRTC " << nvrtc->version() << " does not know sm_" << capability;
  Compiler compiler(*nvrtc, capability);
  const auto compile = [&](const Variant& variant, const std::vector<Problem>& problems, bool last) {
    for (const Problem& problem : problems)
      if (const auto config = config_of(variant, problem, capability, last))
        compiler.expect_compiles(generate(problem, *config));
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const DType upstream : {DType::f32, dtype})
      compiler.expect_compiles(scale_gradient(dtype, upstream));
  const bool is_newest = capability == supported.back();
  for (const Variant& variant : variants()) {
    std::vector<Problem> problems = operations_of(variant);
    if (capability != 75 && capability != 90 && !is_newest) {
      std::vector<Problem> some;
      const auto place =
          static_cast<std::size_t>(std::ranges::find(supported, capability) - supported.begin());
      const std::size_t first = place % std::min<std::size_t>(3, problems.size());
      for (std::size_t i = first; i < problems.size(); i += 3) some.push_back(problems[i]);
      problems = std::move(some);
    }
    compile(variant, problems, false);
    if (capability == 75 || capability == 90) compile(variant, more_of(variant), true);
  }
}

std::string architecture(const testing::TestParamInfo<int>& capability) {
  return "sm_" + std::to_string(capability.param);
}

INSTANTIATE_TEST_SUITE_P(Nvrtc, CompileForArchitecture,
                         testing::ValuesIn(runtime::cuda::architectures_of_interest), architecture);

}  // namespace
}  // namespace ce::generator
