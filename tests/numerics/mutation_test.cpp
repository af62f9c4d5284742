// Would the verification notice a wrong kernel? Each of these edits to a template must be caught on the host
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ce/error.hpp"
#include "covering.hpp"
#include "generator/source.hpp"
#include "runtime/host/device.hpp"
#include "templates/arguments.cuh"
#include "tests/seed.hpp"
#include "tests/tuner/device_decorator.hpp"
#include "tuner/kernel.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::test {
namespace {

using generator::Config;
using generator::Operation;
using generator::Problem;

struct Mutation {
  const char* what;
  const char* from;
  const char* to;
  bool cross_entropy;  ///< else softmax
  std::int64_t rows = 64;
};

constexpr std::int64_t many = most_fused_rows + 1;

const Mutation mutations[] = {
    {"a missing block barrier", "  block_barrier();\n  Stats other;", "  Stats other;", false},
    {"statistics of nothing but -infinity", "max == -infinity() ? 0.f : max", "max", false},
    {"no maximum subtracted", "return (x - max) * c;", "return x * c;", false},
    {"one step of the reduction left out", "int mask = width / 2; mask > 0", "int mask = width / 2; mask > 1",
     false},
    {"the epilogue forgotten", "elements[0] = column >= 0", "elements[0] = column >= problem::columns - 1",
     false},
    {"the last vector forgotten", "(reaches || v < end)", "(v < end - 1)", false},
    {"vectors before the row", "(past || v >= partition.first)", "true", false},
    {"the target not left out of the sum", "tile.replace(target, padding());", "", true},
    {"the target's gradient not set", "const bool own = distance >= 0 &&",
     "const bool own = distance >= 1000000 &&", true},
    {"the gradient of the target one column off", "target_column() const { return target; }",
     "target_column() const { return target == 0 ? 1 : target - 1; }", true},
    {"ignored rows not skipped", "prefetch.index == arguments.ignore_index;", "false;", true},
    {"a target beyond the row", "index < class_count(arguments);", "index <= class_count(arguments);", true},
    {"the count forgotten", "return int(is_counted(arguments, row));", "return 1;", true},
    {"the count of many rows forgotten", "return {a.workspace->count, a.workspace->weight};",
     "return {a.rows, 1.f};", true, many},
    {"losses added before the last one is there", "== arguments.rows - 1;", "== arguments.rows - 2;", true},
    {"results of ignored rows not stored", "operation.store_row_results();\n    if constexpr", "if constexpr",
     true},
    {"the counter not set back", "workspace->finished = 0;", "workspace->finished = 1;", true},
    {"the counter of many rows not set back", "workspace->finished = 0;", "workspace->finished = 1;", true,
     many},
    {"a loss without the maximum", "u_target - finite_or_zero(stats.max)", "u_target", true},
};

/// How often the text was replaced, over the sources of the program and what they include.
int replace(generator::Program& program, std::string_view from, std::string_view to) {
  int count = 0;
  const auto edit = [&](std::string& text) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
      ++count;
    }
  };
  for (generator::Source& source : program.sources) {
    edit(source.text);
    for (auto& [name, text] : source.headers) edit(text);
  }
  return count;
}

/// Of a kernel after an edit of its program: what the verification says, or the fault of the host device.
std::optional<std::string> verdict(runtime::Device& device, const Problem& problem,
                                   generator::Program program) {
  for (generator::Source& source : program.sources)
    source.binary =
        device.compile({.name = source.name, .text = source.text, .headers = source.headers}).image;
  const tuner::Kernel kernel(device, program);
  tuner::Verifier verifier(device, problem, 1);
  try {
    return verifier.mismatch(kernel);
  } catch (const DeviceError& error) {
    return error.what();
  }
}

/// Of a kernel that is right before the edit. One in four is planted, or with CE_FULL_TESTS each.
template <class Edit>
void expect_noticed(const Edit& edit, const Problem& problem, const Config& config,
                    std::unique_ptr<runtime::Device> device = runtime::open_host_device()) {
  const generator::Program right = generator::generate(problem, config);
  generator::Program program = right;
  ASSERT_GE(replace(program, edit.from, edit.to), 1)
      << "the template no longer has the text that this test edits";
  if (!is_drawn(test_seed(), 0, 4)) GTEST_SKIP() << "not drawn; CE_FULL_TESTS=1 plants each";
  ASSERT_EQ(verdict(*device, problem, right), std::nullopt) << "right before the edit";
  const auto wrong = verdict(*device, problem, program);
  EXPECT_TRUE(wrong) << edit.what << " was not noticed";
  if (wrong) fmt::print("{}: {}\n", edit.what, wrong->substr(0, wrong->find('\n')));
}

class Verification : public testing::TestWithParam<Mutation> {};

TEST_P(Verification, CatchesAPlantedMistake) {
  const Mutation& mutation = GetParam();
  Problem problem{.operation = mutation.cross_entropy ? Operation::cross_entropy : Operation::softmax,
                  .alignment = generator::Alignment::shifted,
                  .rows = mutation.rows,
                  .columns = 1003};
  if (mutation.cross_entropy) {
    problem.reduction = Reduction::mean;
    problem.gradient = true;
  }
  expect_noticed(mutation, problem, {.variant = "block", .warps = 4, .vec = 4});
}

/// Of three columns, which two lanes share: the second one has a vector less.
TEST(VerificationOfNarrowRows, CatchesLanesThatHoldWhatIsNotInTheRow) {
  for (const Operation operation : {Operation::softmax, Operation::cross_entropy})
    for (const auto alignment : {generator::Alignment::vector, generator::Alignment::shifted})
      expect_noticed(Mutation{"a logit beyond the row", "Elements<T, vec>::filled(padding);",
                              "Elements<T, vec>::filled(3.f);", true},
                     {.operation = operation, .alignment = alignment, .rows = 150, .columns = 3},
                     {.variant = "warp", .warps = 2, .vec = 1, .lanes = 2, .rows = 1});
}

/// Of three columns in 16 bits. A warp has 64 rows, and the last one 22.
TEST(VerificationOfPackedRows, CatchesAPlantedMistake) {
  const Problem problem{.operation = Operation::softmax,
                        .dtype = DType::bf16,
                        .alignment = generator::Alignment::dense,
                        .rows = 150,
                        .columns = 3};
  for (const Mutation& mutation :
       {Mutation{"the next row in place of padding", "filled.data.word[0] & 0xffff0000u",
                 "rows.bits(first + 1) << 16", false},
        Mutation{"rows that other lanes have not written yet", "    warp_barrier();\n#pragma unroll",
                 "#pragma unroll", false},
        Mutation{"vectors of rows that are not there", "left >= lanes * config::rows", "left > 0", false},
        Mutation{"rows at the end that are left out", "if (i < count) store_element",
                 "if (i + 1 < count) store_element", false}})
    expect_noticed(mutation, problem, {.variant = "packed", .warps = 4, .rows = 2});
}

/// A warp has 16 rows of two lanes, and the last one 6.
TEST(VerificationOfTransposedRows, CatchesAPlantedMistake) {
  const Problem problem{
      .operation = Operation::cross_entropy, .dtype = DType::bf16, .rows = 150, .columns = 64};
  for (const Mutation& mutation :
       {Mutation{"the target among the others", "lane == 0 && target >= 0", "false", true},
        Mutation{"others that still have the target", "    warp_barrier();\n    TileWithoutTarget",
                 "    TileWithoutTarget", true},
        Mutation{"rows that other lanes have not written yet", "  vectors.write(rows);\n  warp_barrier();",
                 "  vectors.write(rows);", true},
        Mutation{"the first row in place of others", "first + (own < last ? own : last)", "first", true},
        Mutation{"a row whose loss nobody writes", "exists && lane == 0", "exists && lane == 0 && own > 0",
                 true}})
    expect_noticed(mutation, problem, {.variant = "transpose", .warps = 4, .vec = 8, .lanes = 2});
}

/// So that a failure shows what was planted.
void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.what; }

INSTANTIATE_TEST_SUITE_P(Mutations, Verification, testing::ValuesIn(mutations));

/// Of logits, which are put under a soft cap in place.
struct CapMutation {
  const char* what;
  const char* from;
  const char* to;
  Config config;
  std::int64_t columns;
  bool argmax = false;  ///< is asked for: rows without a class are read, too
  DType dtype = DType::f32;
};

const Config warp{.variant = "warp", .warps = 2, .vec = 4, .lanes = 32, .rows = 1};
const Config block{.variant = "block", .warps = 4, .vec = 4};
const Config two_pass{.variant = "two_pass", .warps = 4, .vec = 4, .tile = 1024};
const Config split{.variant = "split", .warps = 4, .vec = 4, .split = 2};
const Config cluster{.variant = "cluster", .warps = 4, .vec = 4, .tile = 2048, .cluster = 2};
const Config pipeline{.variant = "pipeline", .warps = 17, .vec = 4, .tile = 2048, .cluster = 1, .stages = 2};
const Config decoupled{.variant = "pipeline_decoupled",
                       .warps = 18,
                       .reducers = 8,
                       .vec = 4,
                       .tile = 2048,
                       .cluster = 1,
                       .stages = 4,
                       .hold = 2};

const Config narrow_decoupled{.variant = "pipeline_decoupled",
                              .warps = 18,
                              .reducers = 8,
                              .vec = 8,
                              .tile = 8192,
                              .cluster = 1,
                              .stages = 2,
                              .hold = 4};

const CapMutation cap_mutations[] = {
    {"elements outside of the row under the cap", "tile.inside(i) ? held(x, u) : Vec::filled(-infinity())",
     "true ? held(x, u) : Vec{}", block, 1003},
    {"the slope forgotten", "slope[k] = HyperbolicTangent::slope_of(t[k]);", "slope[k] = 1.f;", block, 1003},
    {"two caps in registers", "Logits::bounded)) cap(tile);", "Logits::bounded)) cap(tile), cap(tile);",
     block, 1003},
    {"no cap of the edge", "  if constexpr (!Partition::whole) operation.add(stats, edge);", "", warp, 203},
    {"the largest logit found under the cap, where others are as large", "observe_largest(stats, tile);",
     "if constexpr (Stats::indices)\n      if (const float largest = operation.maximum_of(tile); largest >= "
     "stats.largest && largest > -infinity())\n"
     "        stats.observe(largest, first_where(tile, [&](float x) { return operation.logits.of(x) == "
     "largest; "
     "}));",
     two_pass, 2051, true},
    {"no cap where the row is read again", "      cap(operation, tile);\n", "", two_pass, 2051},
    {"two caps where the row is read again", "      cap(operation, tile);\n",
     "      cap(operation, tile);\n      cap(operation, tile);\n", split, 1027},
    {"no cap of the edge that is read again", "    cap(operation, edge);\n", "", split, 1027},
    {"shared memory not put under the cap",
     "{ shared.row[0][v - begin] = tile.elements[i].of_input[0].data; }", "{}", cluster, 4099},
    {"reducers leave logits as they were", "{ place[v - at] = tile.elements[i].of_input[0].data; }", "{}",
     decoupled, 6083},
    {"two caps, by reducers and by writers", "    leave();\n    return tile;",
     "    leave();\n    Logits(block.arguments).put_under_cap(tile);\n    return tile;", decoupled, 6083},
    {"reducers do not arrive when they have",
     "      if constexpr (caps_in_ring) mbarrier_arrive(published);\n", "", decoupled, 6083},
    {"chunks taken before they are under the cap", "caps ? 0 : hold * writers / chunk_vectors",
     "hold * writers / chunk_vectors", decoupled, 6083},
    {"results of another row", "rows_for_writers[reduction.slot] = {",
     "rows_for_writers[reduction.slot ^ 1] = {", decoupled, 6083},
    {"writers ahead of the finalizer",
     "    DecoupledRing::wait(block.shared.finalized[reduction.slot], reduction.parity);\n", "", decoupled,
     6083},
    {"16 bits: the slope forgotten", "slope[k] = multiply_add(-t[k], t[k], c * c);", "slope[k] = c * c;",
     block, 1003, false, DType::bf16},
    {"16 bits: logits far from 0 in the form of others",
     "are_near_zero(absolute(x[k])) ? u[k] : ratio * x[k]", "u[k]", block, 1003, false, DType::f16},
    {"16 bits: all of a tile taken for near 0", "(holds_exponents() && has_near_form(",
     "(holds_exponents() || has_near_form(", block, 1003, false, DType::bf16},
    {"16 bits: tiles left as they were", "vector = held(y, x);", "", two_pass, 2051, false, DType::f16},
    {"16 bits: the same where all are near 0",
     "vector = Vector<f16, n>::of(x).template as<problem::Element>();", "", block, 1003, false, DType::bf16},
    {"16 bits: chunks far from 0 not marked", "if (!extend(operation, stats, tile)) not_simple.merge(mark);",
     "extend(operation, stats, tile);", narrow_decoupled, 12163, false, DType::bf16},
    {"16 bits: the target's chunk taken for one without",
     "plain.leave_out(distance / (Ring::chunk_vectors * vec));", ";", narrow_decoupled, 12163, false,
     DType::bf16},
    {"16 bits: chunks that end outside of the row taken for full",
     "- ((Ring::Chunk::count - 1) * Ring::team + lanes);", "+ Ring::chunk_vectors;", narrow_decoupled, 12163,
     false, DType::bf16},
    {"16 bits: chunks that begin outside of the row taken for full", "all.leave_out(0);", "",
     narrow_decoupled, 16389, false, DType::bf16},
};

class CapVerification : public testing::TestWithParam<CapMutation> {};

TEST_P(CapVerification, CatchesAPlantedMistake) {
  const CapMutation& mutation = GetParam();
  const Problem problem{.operation = Operation::cross_entropy,
                        .dtype = mutation.dtype,
                        .reduction = Reduction::mean,
                        .gradient = true,
                        .has = {.softcap = true, .argmax_out = mutation.argmax},
                        .alignment = generator::Alignment::shifted,
                        .rows = 40,
                        .columns = mutation.columns};
  expect_noticed(mutation, problem, mutation.config);
}

void PrintTo(const CapMutation& mutation, std::ostream* out) { *out << mutation.what; }

INSTANTIATE_TEST_SUITE_P(Mutations, CapVerification, testing::ValuesIn(cap_mutations));

/// Of what a row has of its own: entropy, log-probability, weight, scale, logsumexp.
struct RowMutation {
  const char* what;
  const char* from;
  const char* to;
  void (*ask)(Problem& problem);
  Config config = block;
};

void ask_for_entropy(Problem& problem) { problem.has.entropy_out = true; }
/// Of 16 bits, two of which are bounded by one instruction.
void ask_for_entropy_of_pairs(Problem& problem) {
  problem.dtype = DType::bf16;
  problem.alignment = generator::Alignment::vector;
  problem.columns = 1008;
  ask_for_entropy(problem);
}
/// Whose exponents are what 16 bits hold.
void ask_for_its_gradient_under_a_cap(Problem& problem) {
  problem.dtype = DType::bf16;
  problem.gradient = problem.has.entropy_upstream = problem.has.softcap = true;
}
void ask_for_its_gradient(Problem& problem) { problem.gradient = problem.has.entropy_upstream = true; }
void ask_for_weights(Problem& problem) {
  problem.gradient = problem.has.row_weights = problem.has.z_loss = true;
}
void ask_for_token_scaling(Problem& problem) { problem.gradient = problem.has.token_scaling = true; }
void ask_for_divisor(Problem& problem) {
  problem.reduction = Reduction::mean;
  problem.gradient = problem.has.divisor = true;
}
void ask_for_gradient_of_lse(Problem& problem) {
  problem.gradient = problem.has.lse_upstream = problem.has.scale = true;
}
void ask_for_scales(Problem& problem) {
  problem.gradient = problem.has.row_scales = problem.has.scale = problem.has.entropy_out = true;
}
void ask_for_scales_under_a_cap(Problem& problem) {
  problem.gradient = problem.has.row_scales = problem.has.softcap = true;
  problem.columns = 6083;
}
void ask_for_losses_of_lse(Problem& problem) {
  problem.has.given_lse = problem.has.logprob_out = problem.has.z_loss = true;
}
void ask_for_backward(Problem& problem) {
  problem.operation = Operation::cross_entropy_backward;
  problem.gradient = problem.has.saved_logprob = true;
}

void ask_for_backward_without_loss(Problem& problem) {
  problem.operation = Operation::cross_entropy_backward;
  problem.gradient = problem.has.saved_lse_low = problem.has.scale = true;
}

const Config elementwise{.variant = "elementwise", .warps = 4, .vec = 4, .tile = 512};

const RowMutation row_mutations[] = {
    {"a moment that a new maximum leaves as it was",
     "this->moment = multiply_add(at_least(shift, -256.f), sum, this->moment) * factor;", "",
     ask_for_entropy},
    {"a moment that is not of the whole warp", "stats.moment = warp_sum<width>(stats.moment);", "",
     ask_for_entropy},
    {"an entropy without the target's moment", "moment += moment_of(Exponent::power(own), own);", "",
     ask_for_entropy},
    {"an entropy without the target's power", "powers += Exponent::power(own);", "", ask_for_entropy},
    {"an entropy to the base 2 of one to the base e", "if_scaled(total.log_sum - (mean",
     "if_scaled(total.log_sum * 1.442695f - (mean", ask_for_entropy},
    {"exponents of pairs that nothing bounds", "at_least_pair<T>(vector.data.word[i], bound)",
     "vector.data.word[i]", ask_for_entropy_of_pairs},
    {"a bound of pairs that is not far below the maximum", "-0x1p40f / exponent.c", "-0x1p1f / exponent.c",
     ask_for_entropy_of_pairs},
    {"no row that its leader finalizes", "if (!has_output && !leader) return;", "if (!has_output) return;",
     ask_for_entropy_of_pairs},
    {"a row that its leader alone finalizes", "if (!has_output && !leader) return;", "if (!leader) return;",
     ask_for_its_gradient},
    {"exponents near 0 that are not relative to the maximum",
     "for (int k = 0; k < n; ++k) x[k] -= exponent.s;", ";", ask_for_its_gradient_under_a_cap},
    {"a log-probability of a confident target from a difference", "total.own > total.rest", "false",
     [](Problem& problem) { problem.has.logprob_out = true; }},
    {"a gradient of the entropy with the wrong sign", "-of_rows * per_slope}", "of_rows * per_slope}",
     ask_for_its_gradient},
    {"a gradient of the entropy without it", "amplitude - of_rows * total.entropy", "amplitude",
     ask_for_its_gradient},
    {"a gradient of the entropy that leaves out the target", "at_target -= prefetch.of_entropy",
     "at_target -= 0.f * prefetch.of_entropy", ask_for_its_gradient},
    {"a gradient without the row's weight", "logits.scale * total.row_factor;", "logits.scale;",
     ask_for_weights},
    {"a loss without the row's weight", "loss = weigh(total.row_factor, loss);", "", ask_for_weights},
    {"a z-loss without the row's weight", "z_loss = weigh(total.row_factor, z_loss);", "", ask_for_weights},
    {"a weight that the scaling takes the place of", "total.row_factor *= power", "total.row_factor = power",
     [](Problem& problem) {
       ask_for_token_scaling(problem);
       problem.has.row_weights = true;
     }},
    {"a scaling by the probability itself",
     "arguments.amounts[problem::token_scaling_amount] * total.logprob", "total.logprob * 2.f",
     ask_for_token_scaling},
    {"a scaling far below 1 that is not 0", "power < -32.f ? 0.f : exponential(power)", "exponential(power)",
     ask_for_token_scaling},
    {"a gradient without the divisor", "per_row = per_weight = 1.f / *a.divisor;",
     "per_row = per_weight = 1.f / float(a.rows);", ask_for_divisor},
    {"a loss without the divisor", "loss /= *arguments.divisor;", "loss /= float(arguments.rows);",
     ask_for_divisor},
    {"a gradient of the logsumexp without the scale", "prefetch.of_lse * logits.scale", "prefetch.of_lse",
     ask_for_gradient_of_lse},
    {"no gradient of the logsumexp", "* per_row * up : 0.f) + of_lse;", "* per_row * up : 0.f);",
     ask_for_gradient_of_lse},
    {"no scale of the row", "is_scale(row_scale) ? scale * row_scale", "is_scale(row_scale) ? scale",
     ask_for_scales},
    {"a scale of the row alone", "is_scale(row_scale) ? scale * row_scale", "is_scale(row_scale) ? row_scale",
     ask_for_scales},
    {"a number for a row without a scale", "return is_scaled ? value : not_a_number();", "return value;",
     ask_for_scales},
    {"a negative scale", "scale * row_scale >= 0x1p-60f && ", "",
     [](Problem& problem) {
       ask_for_scales(problem);
       problem.has.softcap = true;  // without a cap what is -infinity makes the row NaN
     }},
    {"outputs with the scale of another row",
     "operation.logits = Logits(operation.arguments).of_row(this->kept_scale());", ";",
     ask_for_scales_under_a_cap, decoupled},
    {"a log-probability that is given and not read", "distance = problem::logprob_of(arguments)[row];", "",
     ask_for_backward, elementwise},
    {"what the logsumexp lost, that is given and not read", "total.log_sum += low;", "",
     ask_for_backward_without_loss, elementwise},
    {"a quotient of the logsumexp that is taken for exact",
     "total.log_sum = multiply_add(-logits.unit(), reference, total.lse);", "total.log_sum = 0.f;",
     ask_for_backward_without_loss, elementwise},
    {"a loss without the logsumexp that is given", "multiply_add(logits.unit(), u_target, -total.lse)",
     "logits.unit() * u_target", ask_for_losses_of_lse, elementwise},
    {"rows that are not there, of losses from logsumexps", "Operation operation(arguments, own, exists);",
     "Operation operation(arguments, own, true);", ask_for_losses_of_lse, elementwise},
};

class RowVerification : public testing::TestWithParam<RowMutation> {};

TEST_P(RowVerification, CatchesAPlantedMistake) {
  const RowMutation& mutation = GetParam();
  Problem problem{.operation = Operation::cross_entropy,
                  .alignment = generator::Alignment::shifted,
                  .rows = 40,
                  .columns = 1003};
  mutation.ask(problem);
  generator::validate(problem);
  expect_noticed(mutation, problem, mutation.config);
}

void PrintTo(const RowMutation& mutation, std::ostream* out) { *out << mutation.what; }

INSTANTIATE_TEST_SUITE_P(Mutations, RowVerification, testing::ValuesIn(row_mutations));

TEST(WeightVerification, CatchesAWarpThatDoesNotAddUpItsWeights) {
  const Mutation forgets{"weights of a lane for those of its warp", "    of_warp = warp_sum(of_warp);\n", "",
                         true};
  const Problem problem{.operation = Operation::cross_entropy,
                        .reduction = Reduction::mean,
                        .gradient = true,
                        .weights = true,
                        .has = {.smoothing = true},
                        .alignment = generator::Alignment::vector,
                        .rows = 40,
                        .columns = 6144};
  expect_noticed(forgets, problem, decoupled);
}

/// 40 rows leave 24 threads of a second block without one.
TEST(StridedVerification, CatchesRowsThatAreNotThere) {
  const Mutation counts{"a last row that is counted by threads that have none", "exists && warp_index() == 0",
                        "warp_index() == 0", true};
  const Problem problem{.operation = Operation::cross_entropy,
                        .reduction = Reduction::mean,
                        .gradient = true,
                        .strided = true,
                        .alignment = generator::Alignment::vector,
                        .rows = 40,
                        .columns = 100};
  expect_noticed(counts, problem, {.variant = "strided", .warps = 2, .tile = 4});
}

/// As a GPU has more multiprocessors than a trial has rows.
class WideDevice : public DeviceDecorator {
 public:
  WideDevice() : DeviceDecorator(runtime::open_host_device()) {}
  int resident_blocks(runtime::Function, const runtime::Launch& launch) const override {
    return 132 * static_cast<int>(launch.cluster);
  }
};

TEST(WideVerification, CatchesARowThatIsSkippedByWhoHasHadOne) {
  const Mutation skips{"every second row of a cluster skipped", "known + atomic_add(",
                       "known + 1 + atomic_add(", false};
  const Problem problem{.operation = Operation::softmax,
                        .alignment = generator::Alignment::vector,
                        .rows = 8192,
                        .columns = 8192};
  expect_noticed(skips, problem, pipeline, std::make_unique<WideDevice>());
}

}  // namespace
}  // namespace ce::test
