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
#include "generator/linear.hpp"
#include "generator/operations/cross_entropy_rules.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/environment.hpp"
#include "tests/generator/served.hpp"

namespace ce::generator {
namespace {

/// Every option at once.
Problem with_all_options(Operation operation, DType dtype) {
  Problem problem{.operation = operation, .dtype = dtype, .rows = 64, .columns = 32768};
  problem.reduction = Reduction::mean;
  problem.upstream = Upstream::rows;
  problem.gradient = problem.weights = true;
  for (const CrossEntropyOption& option : cross_entropy_options) problem.has.*option.field = true;
  for (const CrossEntropyInput& input : cross_entropy_inputs)
    problem.has.*input.field = input.is_possible(problem);
  for (const CrossEntropyOutput& output : cross_entropy_outputs)
    problem.has.*output.field = output.is_possible(problem);
  return problem;
}

/// Each operation once, cross entropy with as many options as the variant serves together.
std::vector<Problem> operations_of(const Variant& variant) {
  const auto plain = [](Operation operation, DType dtype) {
    return Problem{.operation = operation, .dtype = dtype, .rows = 64, .columns = 32768};
  };
  Problem log_softmax = plain(Operation::log_softmax, DType::bf16);
  log_softmax.columns += 3;
  log_softmax.alignment = Alignment::shifted;
  Problem log_softmax_backward = plain(Operation::log_softmax_backward, DType::f32);
  log_softmax_backward.batched = true;
  std::vector<Problem> problems;
  for (const Problem& wanted :
       {plain(Operation::softmax, DType::f16), log_softmax, plain(Operation::softmax_backward, DType::bf16),
        log_softmax_backward, with_all_options(Operation::cross_entropy, DType::bf16),
        with_all_options(Operation::cross_entropy_backward, DType::f16),
        with_all_options(Operation::cross_entropy_shard, DType::bf16),
        with_all_options(Operation::cross_entropy_merge, DType::f32),
        with_all_options(Operation::cross_entropy_shard_backward, DType::f16),
        with_all_options(Operation::cross_entropy_exchange, DType::bf16), plain(Operation::copy, DType::f32),
        plain(Operation::read, DType::f32), plain(Operation::add, DType::f32)})
    if (const auto problem = test::nearest_served(
            variant, wanted, [&](const Problem& nearest) { return nearest.operation == wanted.operation; }))
      problems.push_back(*problem);
  return problems;
}

/// Cross entropy as most call it, and with whatever else the variant serves and no problem shows yet.
/// \param shown  words of problems that are compiled; these are added
/// \param full   also the loss by itself, and with probabilities
std::vector<Problem> more_of(const Variant& variant, std::set<std::string>& shown, bool full) {
  Problem usual{.operation = Operation::cross_entropy, .dtype = DType::bf16, .rows = 64, .columns = 32768};
  usual.target_dtype = DType::i32;
  usual.loss_dtype = DType::bf16;
  usual.reduction = Reduction::sum;
  usual.upstream = Upstream::scalar;
  usual.gradient = usual.in_place = true;
  Problem probabilities = with_all_options(Operation::cross_entropy, DType::f32);
  probabilities.probabilities = true;
  const Problem loss{
      .operation = Operation::cross_entropy, .alignment = Alignment::element, .rows = 64, .columns = 32768};
  std::vector<Problem> problems;
  std::vector<Problem> wanted_first{usual};
  if (full) wanted_first.insert(wanted_first.end(), {probabilities, loss});
  for (const Problem& wanted : wanted_first)
    if (const auto problem = test::nearest_served(variant, wanted, [](const Problem& nearest) {
          return nearest.operation == Operation::cross_entropy;
        }))
      problems.push_back(*problem);
  const auto show = [&](const Problem& problem) {
    std::istringstream words(code_text(problem));
    for (std::string word; words >> word;) shown.insert(word);
  };
  for (const Problem& problem : operations_of(variant)) show(problem);
  for (const Problem& problem : problems) show(problem);
  for (const std::string& word : test::words_served(variant, DType::bf16)) {
    if (shown.contains(word)) continue;
    problems.push_back(test::problem_with(variant, DType::bf16, word).value());
    show(problems.back());
  }
  return problems;
}

/// A config from the middle or the end of the problem's space.
std::optional<Config> config_of(const Variant& variant, const Problem& problem, int capability, bool last) {
  const Limits limits = test::limits_of(capability);
  const std::vector<Config> configs = test::configs_of(variant, problem, limits);
  EXPECT_EQ(configs.empty(), !variant.runs_on(limits)) << variant.name << ", " << title(problem);
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
        const auto binary = nvrtc_.compile({.name = source.name,
                                            .text = source.text,
                                            .headers = source.headers,
                                            .architecture_specific = source.architecture_specific},
                                           capability_);
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
    if (!variant.takes_rows) continue;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      Problem wanted{.operation = Operation::cross_entropy, .dtype = dtype, .rows = 64, .columns = 32768};
      wanted.has.smoothing = wanted.weights = wanted.gradient = true;
      const auto served = test::nearest_served(variant, wanted, [](const Problem& nearest) {
        return nearest.has.smoothing && nearest.weights && !nearest.has.softcap && !nearest.probabilities;
      });
      if (!served) continue;
      const Problem problem = *served;
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

class CompileForHopper : public testing::Test {
 protected:
  void SetUp() override {
    const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::shared().nvrtc.get();
    if (nvrtc == nullptr) {
      if (test::is_required("CE_REQUIRE_NVRTC")) FAIL() << "no NVRTC";
      GTEST_SKIP() << "no NVRTC on this machine";
    }
    compiler_.emplace(*nvrtc, 90);
  }
  std::optional<Compiler> compiler_;
};

/// Products are of Hopper's own instructions. One tile has every option, each of the others another one.
TEST_F(CompileForHopper, LinearStatistics) {
  const std::vector<LinearStatistics> wanted{
      {},
      {.input = DType::f16, .logits = DType::f16, .bias_dtype = DType::bf16, .bias = true, .softcap = true},
      {.scale = true, .exponentials = true},
      {.target_dtype = DType::i32, .scale = true, .row_scales = true, .moment = true}};
  const LinearStatistics all{.logits = DType::f32,
                             .bias = true,
                             .weights = true,
                             .smoothing = true,
                             .scale = true,
                             .softcap = true,
                             .row_scales = true,
                             .indices = true,
                             .moment = true};
  ASSERT_EQ(wanted.size(), product_tiles().size());
  compiler_->expect_compiles(linear_statistics(all, product_tiles().front()));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    compiler_->expect_compiles(linear_statistics(wanted[i], product_tiles()[i]));
}

TEST_F(CompileForHopper, LinearExponentials) {
  const LinearStatistics plain{.exponentials = true},
      capped{.logits = DType::f32, .target_dtype = DType::i32, .softcap = true, .exponentials = true};
  for (const LinearStatistics& statistics : {plain, capped}) {
    for (const LinearStep step :
         {LinearStep::reference, LinearStep::scale, LinearStep::hidden_gradient, LinearStep::order})
      compiler_->expect_compiles(linear_step(step, statistics));
    for (const DType dtype : {DType::f32, DType::bf16}) {
      compiler_->expect_compiles(
          linear_factors({.statistics = statistics, .upstream = dtype, .z_loss = dtype == DType::f32}));
      compiler_->expect_compiles(linear_weight_gradient(statistics, dtype));
    }
  }
  compiler_->expect_compiles(linear_statistics(capped, product_tiles().front()));
}

/// The instructions of the plan for Blackwell's products (docs/linear.md), of which nothing else is written: sums of two
/// tiles of 128 x 256 in tensor memory, the product of a stage, and sums that a warp takes into registers.
TEST(CompileForBlackwell, TheInstructionsOfThePlannedProduct) {
  const runtime::cuda::Nvrtc* nvrtc = runtime::cuda::Nvrtc::shared().nvrtc.get();
  if (nvrtc == nullptr || std::ranges::count(nvrtc->architectures(), 100) == 0)
    GTEST_SKIP() << "no NVRTC that knows sm_100";
  constexpr const char* text = R"(
__device__ unsigned address_of(const void* shared) { return unsigned(__cvta_generic_to_shared(shared)); }

extern "C" __global__ void planned(float* out, unsigned long long a, unsigned long long b, unsigned shape) {
  __shared__ unsigned sums;
  __shared__ unsigned long long made;
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address_of(&made)) : "memory");
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(address_of(&sums))
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const unsigned tile = sums;
  if (threadIdx.x == 0) {
    asm volatile(
        "{ .reg .pred adds; setp.ne.b32 adds, %4, 0;"
        "  tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, adds; }" ::"r"(tile),
        "l"(a), "l"(b), "r"(shape), "r"(0)
        : "memory");
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                     address_of(&made))
                 : "memory");
  }
  asm volatile(
      "{ .reg .pred done; wait: mbarrier.try_wait.parity.shared.b64 done, [%0], 0; @!done bra wait; }" ::"r"(
          address_of(&made))
      : "memory");
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  unsigned taken[4];
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(taken[0]), "=r"(taken[1]), "=r"(taken[2]), "=r"(taken[3])
               : "r"(tile + (threadIdx.x / 32 << 21)));
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = __uint_as_float(taken[i]);
  __syncthreads();
  if (threadIdx.x < 32)
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" ::"r"(tile));
}
)";
  const auto binary =
      nvrtc->compile({.name = "planned.cu", .text = text, .architecture_specific = true}, 100);
  EXPECT_GT(binary.image.size(), 0U);
  EXPECT_EQ(binary.log, "") << "warnings";
}

class CompileForArchitecture : public testing::TestWithParam<int> {};

/// With CE_FULL_TESTS the oldest, the newest and the first with clusters see every operation of every variant, the others,
/// which speak the language of one of these, a third of them. Else the first with clusters sees a fourth of them, and
/// each option once, and the others a twelfth.
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
      for (const bool gaps : {false, true}) compiler.expect_compiles(scale_gradient(dtype, upstream, gaps));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    compiler.expect_compiles(linear_convert(DType::f32, dtype));
    compiler.expect_compiles(linear_convert(dtype, DType::f32));
    compiler.expect_compiles(linear_column_sums(dtype));
    compiler.expect_compiles(linear_loss_sum(dtype));
  }
  for (const bool weights : {false, true})
    for (const bool scales : {false, weights})
      compiler.expect_compiles(linear_divisor({.weights = weights, .scales = scales}));
  compiler.expect_compiles(linear_divisor({.probabilities = true}));
  for (const DType target : {DType::i32, DType::i64}) compiler.expect_compiles(linear_places(target));
  for (const int unit_bytes : {1, 2, 4, 8, 16}) {
    compiler.expect_compiles(linear_gather(unit_bytes));
    compiler.expect_compiles(linear_scatter(unit_bytes));
  }
  const bool is_full = test::is_required("CE_FULL_TESTS");
  const bool sees_all = capability == 90 || capability == 75 || capability == supported.back();
  const std::size_t step = is_full ? (sees_all ? 1 : 3) : (capability == 90 ? 4 : 12);
  std::size_t turn = static_cast<std::size_t>(std::ranges::find(supported, capability) - supported.begin());
  std::set<std::string> shown;
  for (const Variant& variant : variants()) {
    const std::vector<Problem> all = operations_of(variant);
    std::vector<Problem> problems;
    for (std::size_t i = turn++ % std::min(step, all.size()); i < all.size(); i += step)
      problems.push_back(all[i]);
    compile(variant, problems, false);
    if (is_full) shown.clear();
    if (capability == 90 || (is_full && capability == 75))
      compile(variant, more_of(variant, shown, is_full), true);
  }
}

std::string architecture(const testing::TestParamInfo<int>& capability) {
  return "sm_" + std::to_string(capability.param);
}

INSTANTIATE_TEST_SUITE_P(Nvrtc, CompileForArchitecture,
                         testing::ValuesIn(runtime::cuda::architectures_of_interest), architecture);

}  // namespace
}  // namespace ce::generator
