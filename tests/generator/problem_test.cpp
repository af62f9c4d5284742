#include "generator/problem.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "ce/base/error.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"

namespace ce::generator {
namespace {

const Problem base{.operation = Operation::cross_entropy,
                   .dtype = DType::bf16,
                   .target_dtype = DType::i64,
                   .loss_dtype = DType::f32,
                   .reduction = Reduction::mean,
                   .gradient = true,
                   .in_place = true,
                   .alignment = Alignment::vector,
                   .rows = 4096,
                   .columns = 8192};

/// Every way in which one input of the code generator can change.
std::vector<Problem> changes() {
  std::vector<Problem> changed;
  const auto change = [&](const std::function<void(Problem&)>& edit) { edit(changed.emplace_back(base)); };
  change([](Problem& p) { p.dtype = DType::f16; });
  change([](Problem& p) { p.target_dtype = DType::i32; });
  change([](Problem& p) { p.loss_dtype = DType::bf16; });
  change([](Problem& p) { p.reduction = Reduction::sum; });
  change([](Problem& p) { p.reduction = Reduction::none; });
  change([](Problem& p) { p.gradient = false; });
  change([](Problem& p) { p.in_place = false; });
  change([](Problem& p) { p.alignment = Alignment::shifted; });
  change([](Problem& p) { p.columns = 8193; });
  change([](Problem& p) { p.rows = 4097; });  // another bucket
  changed.push_back({.operation = Operation::softmax, .dtype = DType::bf16, .rows = 4096, .columns = 8192});
  return changed;
}

/// The rule of the design: change any input of the generator and the lookup key must change.
TEST(LookupKey, ChangesWithEveryInput) {
  std::set<std::string> keys{key_text(base)};
  for (const Problem& problem : changes())
    EXPECT_TRUE(keys.insert(key_text(problem)).second) << key_text(problem);
}

TEST(LookupKey, IsSharedByABucketOfRows) {
  Problem other = base;
  other.rows = 2049;
  EXPECT_EQ(key_text(other), key_text(base));
  other.rows = 2048;
  EXPECT_NE(key_text(other), key_text(base));
}

/// The compile key must change with everything that can change the binary, and with nothing else.
TEST(CompileKey, ChangesWithEveryInputOfTheCode) {
  const Config config = safe_default(base, {.capability = 90});
  const auto keys_of = [](const Problem& problem, const Config& point, std::string_view compiler) {
    std::string keys;
    const Program program = generate(problem, point);
    for (const Source& source : program.sources) keys += compile_key(source, compiler) + " ";
    return keys;
  };
  std::set<std::string> keys{keys_of(base, config, "nvrtc 13.0 sm_90")};
  EXPECT_TRUE(keys.insert(keys_of(base, config, "nvrtc 13.1 sm_90")).second);
  EXPECT_TRUE(keys.insert(keys_of(base, config, "nvrtc 13.0 sm_100")).second);
  for (const Problem& problem : changes()) {
    const bool same_code = problem.rows != base.rows;
    EXPECT_EQ(keys.insert(keys_of(problem, config, "nvrtc 13.0 sm_90")).second, !same_code)
        << key_text(problem);
  }
  for (const Config& other : space(base, {.capability = 90})) {
    if (other == config) continue;
    EXPECT_TRUE(keys.insert(keys_of(base, other, "nvrtc 13.0 sm_90")).second) << to_text(other);
  }
}

struct Placed {
  RowPlacement input, output;
  std::int64_t rows;
  Alignment expected;
};

TEST(Alignment, FollowsAddressesAndStrides) {
  const Placed cases[] = {
      {{0x1000, 8192}, {0x2000, 8192}, 4, Alignment::vector},
      {{0x1000, 100514}, {0x2000, 100514}, 4, Alignment::shifted},  // 50257 columns of bf16
      {{0x1000, 100514}, {0x2000, 100608}, 4, Alignment::element},  // a padded output
      {{0x1002, 8192}, {0x2002, 8192}, 4, Alignment::shifted},
      {{0x1002, 8192}, {0x2000, 8192}, 4, Alignment::element},
      {{0x1000, 100514}, {0x2000, 100514}, 1, Alignment::vector},  // one row: strides are never used
      {{0x1000, 100514}, {0x2000, 2}, 1, Alignment::vector},
  };
  for (const Placed& placed : cases)
    EXPECT_EQ(alignment_of(placed.rows, placed.input, placed.output), placed.expected);
}

TEST(Traffic, CountsTheFewestBytes) {
  const Problem softmax{.dtype = DType::bf16, .rows = 8192, .columns = 128256};
  EXPECT_EQ(traffic(softmax).read, 8192LL * 128256 * 2);
  EXPECT_EQ(traffic(softmax).total(), 2 * 8192LL * 128256 * 2);
  Problem loss = base;
  loss.gradient = false;
  EXPECT_EQ(traffic(loss).read, 4096LL * 8192 * 2 + 4096 * 8);
  EXPECT_EQ(traffic(loss).written, 4);
}

TEST(Validate, NamesWhatIsWrong) {
  const auto message = [](const std::function<void(Problem&)>& edit) {
    Problem problem = base;
    edit(problem);
    try {
      validate(problem);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(message([](Problem&) {}), "nothing");
  EXPECT_EQ(message([](Problem& p) { p.columns = 0; }), "columns is 0; expected 1 to 1073741824");
  EXPECT_EQ(message([](Problem& p) { p.rows = -1; }), "rows is -1; expected 1 to 2147483647");
  EXPECT_EQ(message([](Problem& p) { p.dtype = DType::i32; }), "dtype is i32; expected f32, f16 or bf16");
  EXPECT_EQ(message([](Problem& p) { p.target_dtype = DType::f32; }),
            "target dtype is f32; expected i32 or i64");
  EXPECT_EQ(message([](Problem& p) { p.loss_dtype = DType::f16; }),
            "loss dtype is f16; expected f32 or bf16");
}

TEST(Operation, UnknownNamesListTheKnown) {
  try {
    (void)parse_operation("sofmax", "--op");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()),
              "--op is \"sofmax\"; expected one of softmax, cross_entropy, copy, read");
  }
}

}  // namespace
}  // namespace ce::generator
