// Would the verification notice a wrong kernel? Each of these edits to a template must be caught on the host
// device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ce/base/error.hpp"
#include "covering.hpp"
#include "generator/source.hpp"
#include "runtime/host/device.hpp"
#include "tuner/kernel.hpp"
#include "tuner/verify.hpp"

namespace ce::test {
namespace {

using generator::Operation;
using generator::Problem;

struct Mutation {
  const char* what;
  const char* from;
  const char* to;
  bool cross_entropy;  ///< else softmax
};

const Mutation mutations[] = {
    {"a missing block barrier", "  block_barrier();\n  Part other;", "  Part other;", false},
    {"a part that has seen only -infinity", "max == -infinity() ? 0.f : max", "max", false},
    {"no maximum subtracted", "return (x - max) * c;", "return x * c;", false},
    {"one step of the reduction left out", "int mask = width / 2; mask > 0", "int mask = width / 2; mask > 1",
     false},
    {"the tail forgotten", "elements[0] = column >= 0", "elements[0] = column >= problem::columns - 1",
     false},
    {"the last vector forgotten", "(reaches || v < end)", "(v < end - 1)", false},
    {"vectors before the row", "(past || v >= cut.first)", "true", false},
    {"the target not left out of the sum", "tile.replace(target, -infinity());", "", true},
    {"the target's gradient not set", "const bool own = distance >= 0 &&",
     "const bool own = distance >= 1000000 &&", true},
    {"the gradient of the target one column off", "target_column() const { return target; }",
     "target_column() const { return target == 0 ? 1 : target - 1; }", true},
    {"ignored rows not skipped", "early.index == arguments.ignore_index;", "false;", true},
    {"a target beyond the row", "index < problem::columns; }", "index <= problem::columns; }", true},
    {"the count forgotten", "problem::counts_first ? a.workspace->count : a.rows", "a.rows", true},
    {"the counters not set back", "workspace.finished = 0;", "workspace.finished = 1;", true},
    {"a loss without the maximum", "u_target - finite_or_zero(part.max)", "u_target", true},
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
                                   const generator::Program& program) {
  std::vector<tuner::Image> images;
  for (const generator::Source& source : program.sources)
    images.push_back(
        device.compile({.name = source.name, .text = source.text, .headers = source.headers}).image);
  const tuner::Kernel kernel(device, images, program);
  tuner::Verifier verifier(device, problem, 1);
  try {
    return verifier.mismatch(kernel);
  } catch (const DeviceError& error) {
    return error.what();
  }
}

class Verification : public testing::TestWithParam<Mutation> {};

TEST_P(Verification, CatchesAPlantedMistake) {
  const Mutation& mutation = GetParam();
  const auto device = runtime::open_host_device();
  Problem problem{.operation = mutation.cross_entropy ? Operation::cross_entropy : Operation::softmax,
                  .alignment = generator::Alignment::shifted,
                  .rows = 64,
                  .columns = 1003};
  if (mutation.cross_entropy) {
    problem.reduction = Reduction::mean;
    problem.gradient = true;
  }
  const generator::Config config{.variant = "block", .warps = 4, .vec = 4};
  generator::Program program = generator::generate(problem, config);
  ASSERT_EQ(verdict(*device, problem, program), std::nullopt) << "right before the edit";
  ASSERT_GE(replace(program, mutation.from, mutation.to), 1)
      << "the template no longer has the text that this test edits";
  const auto wrong = verdict(*device, problem, program);
  EXPECT_TRUE(wrong) << mutation.what << " was not noticed";
  if (wrong) fmt::print("{}: {}\n", mutation.what, wrong->substr(0, wrong->find('\n')));
}

/// So that a failure shows what was planted.
void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.what; }

INSTANTIATE_TEST_SUITE_P(Mutations, Verification, testing::ValuesIn(mutations));

}  // namespace
}  // namespace ce::test
