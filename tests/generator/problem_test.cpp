#include "generator/problem.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ce/error.hpp"
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

struct Change {
  Problem from, to;
};

/// Every way in which one input of the code generator can change.
std::vector<Change> changes() {
  std::vector<Change> changed;
  const auto change_of = [&](const Problem& from, const std::function<void(Problem&)>& edit) {
    changed.push_back({from, from});
    edit(changed.back().to);
  };
  const auto change = [&](const std::function<void(Problem&)>& edit) { change_of(base, edit); };
  change([](Problem& p) { p.dtype = DType::f16; });
  change([](Problem& p) { p.target_dtype = DType::i32; });
  change([](Problem& p) { p.loss_dtype = DType::bf16; });
  change([](Problem& p) { p.reduction = Reduction::sum; });
  change([](Problem& p) { p.reduction = Reduction::none; });
  change([](Problem& p) { p.upstream = Upstream::scalar; });
  change([](Problem& p) { p.upstream = Upstream::rows; });
  change([](Problem& p) { p.gradient = false; });
  change([](Problem& p) { p.probabilities = true; });
  change([](Problem& p) { p.has.smoothing = true; });
  change([](Problem& p) { p.weights = true; });
  change([](Problem& p) { p.has.z_loss = true; });
  change([](Problem& p) { p.has.softcap = true; });
  change([](Problem& p) { p.has.scale = true; });
  change([](Problem& p) { p.has.lse_out = true; });
  change([](Problem& p) { p.has.argmax_out = true; });
  change([](Problem& p) { p.has.hit_out = true; });
  change([](Problem& p) { p.in_place = false; });
  change([](Problem& p) { p.batched = true; });
  change([](Problem& p) { p.strided = true; });
  change([](Problem& p) { p.alignment = Alignment::shifted; });
  change([](Problem& p) { p.columns = 8193; });
  change([](Problem& p) { p.operation = Operation::cross_entropy_backward; });
  Problem with = base;
  with.weights = with.has.z_loss = true;
  change_of(with, [](Problem& p) { p.weight_dtype = DType::bf16; });
  change_of(with, [](Problem& p) { p.has.z_loss_out = true; });
  const Problem softmax{.operation = Operation::softmax, .dtype = DType::bf16, .rows = 4096, .columns = 8192};
  for (const Operation other :
       {Operation::log_softmax, Operation::softmax_backward, Operation::log_softmax_backward})
    change_of(softmax, [other](Problem& p) { p.operation = other; });
  return changed;
}

/// The rule of the design: change any input of the generator and the lookup key must change.
TEST(LookupKey, ChangesWithEveryInput) {
  for (const Change& change : changes()) {
    validate(change.to);
    EXPECT_NE(code_text(change.to), code_text(change.from)) << key_text(change.to);
    EXPECT_NE(key_text(change.to), key_text(change.from)) << key_text(change.to);
  }
}

/// No two of them are confused, and each is what its key says.
TEST(LookupKey, IsReadBack) {
  std::set<std::string> keys{key_text(base)};
  std::set<std::string> starts;
  for (const Change& change : changes()) {
    starts.insert(key_text(change.from));
    EXPECT_TRUE(keys.insert(key_text(change.to)).second) << key_text(change.to);
    EXPECT_EQ(parse_key_text(key_text(change.to)), bucketed(change.to)) << key_text(change.to);
  }
  for (const std::string& start : starts) EXPECT_EQ(key_text(parse_key_text(start)), start);
}

TEST(LookupKey, IsWhatTheDatabaseHolds) {
  EXPECT_EQ(key_text(base),
            "cross_entropy bf16 target=i64 loss=f32 mean gradient in_place cols=8192 align=vector rows<=4096 "
            "l2=cold");
  EXPECT_EQ(code_text({.operation = Operation::log_softmax,
                       .dtype = DType::f16,
                       .batched = true,
                       .strided = true,
                       .rows = 7,
                       .columns = 19}),
            "log_softmax f16 batched strided cols=19 align=vector");
}

TEST(LookupKey, OtherTextIsRefused) {
  for (const char* text : {
           "",
           "softmax",
           "sofmax bf16 cols=8 align=vector rows<=8 l2=cold",
           "softmax bf16 cols=8 align=vector rows<=8 l2=warm",
           "softmax bf16 cols=8 align=vector rows<=7 l2=cold",
           "softmax bf16 cols=0 align=vector rows<=8 l2=cold",
           "softmax bf16 cols=8 align=vector rows<=8 l2=cold ",
           "softmax bf16 cols=4611686018427387904 align=vector rows<=8 l2=cold",
           "softmax bf16 gradient cols=8 align=vector rows<=8 l2=cold",
           "softmax bf16 cols=8 align=vector rows<=8",
           "softmax bf17 cols=8 align=vector rows<=8 l2=cold",
           "softmax bf16 cols=8 align=corner rows<=8 l2=cold",
           "softmax bf16 mean cols=8 align=vector rows<=8 l2=cold",
           "softmax bf16 strided batched cols=8 align=vector rows<=8 l2=cold",
           "cross_entropy f32 target=i64 loss=f32 none softcaps cols=8 align=vector rows<=8 l2=cold",
           "cross_entropy f32 target=i64 loss=f32 none upstream=one cols=8 align=vector rows<=8 l2=cold",
       })
    EXPECT_THROW((void)parse_key_text(text), InvalidArgument) << text;
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
  const Limits limits{.capability = 90};
  const auto keys_of = [](const Problem& problem, const Config& point, std::string_view compiler) {
    std::string keys;
    const Program program = generate(problem, point);
    for (const Source& source : program.sources) keys += compile_key(source, compiler) + " ";
    return keys;
  };
  const Config config = space(base, limits).front();
  std::set<std::string> keys{keys_of(base, config, "nvrtc 13.0 sm_90")};
  EXPECT_TRUE(keys.insert(keys_of(base, config, "nvrtc 13.1 sm_90")).second);
  EXPECT_TRUE(keys.insert(keys_of(base, config, "nvrtc 13.0 sm_100")).second);
  Problem more_rows = base;
  more_rows.rows = 2 * base.rows;
  EXPECT_FALSE(keys.insert(keys_of(more_rows, config, "nvrtc 13.0 sm_90")).second) << "rows are an argument";
  for (const Change& change : changes()) {
    const auto [from, to] = change;
    const std::string of_from = keys_of(from, space(from, limits).front(), "nvrtc 13.0 sm_90"),
                      of_to = keys_of(to, space(to, limits).front(), "nvrtc 13.0 sm_90");
    if (from.in_place != to.in_place)
      EXPECT_EQ(of_from, of_to) << "where outputs go is an argument";
    else
      EXPECT_NE(of_from, of_to) << key_text(to);
  }
  for (const Config& other : space(base, limits)) {
    if (other == config) continue;
    EXPECT_TRUE(keys.insert(keys_of(base, other, "nvrtc 13.0 sm_90")).second) << to_text(other);
  }
}

/// Losses, z-losses and what is left of sums: never more than 32 bytes for each row and one MiB.
TEST(Workspace, IsSmall) {
  std::vector<Problem> problems{base};
  for (const Change& change : changes()) problems.push_back(change.to);
  for (Problem problem : problems)
    for (problem.rows = 1; problem.rows < (std::int64_t{1} << 31); problem.rows = 2 * problem.rows + 1) {
      const std::int64_t bytes = workspace_bytes(problem);
      EXPECT_LE(bytes, 32 * problem.rows + (1 << 20)) << title(problem);
      if (sums_losses(problem)) {
        EXPECT_GE(bytes, (problem.has.z_loss ? 8 : 4) * problem.rows) << title(problem);
      }
      EXPECT_EQ(bytes > 0, sums_losses(problem) || counts_first(problem)) << title(problem);
    }
  for (const Variant& variant : variants()) EXPECT_LE(variant.partial_bytes, 1 << 20) << variant.name;
}

TEST(Problem, SumsAndCountsFollowFromTheReduction) {
  for (const Operation operation : {Operation::cross_entropy, Operation::cross_entropy_backward})
    for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum})
      for (const bool probabilities : {false, true})
        for (const bool gradient : {false, true}) {
          const bool backward = operation == Operation::cross_entropy_backward;
          if (backward && !gradient) continue;
          const Problem problem{.operation = operation,
                                .reduction = reduction,
                                .gradient = gradient,
                                .probabilities = probabilities,
                                .rows = 8,
                                .columns = 8};
          EXPECT_EQ(sums_losses(problem), !backward && reduction != Reduction::none) << title(problem);
          EXPECT_EQ(counts_first(problem), gradient && !probabilities && reduction == Reduction::mean)
              << title(problem);
          EXPECT_EQ(has_output(problem), gradient) << title(problem);
          EXPECT_EQ(inputs(problem), probabilities ? 2 : 1) << title(problem);
          EXPECT_EQ(reduces(problem), !backward || probabilities) << title(problem);
        }
  Problem smoothed{
      .operation = Operation::cross_entropy_backward, .gradient = true, .has = {.smoothing = true}};
  EXPECT_FALSE(reduces(smoothed));
  smoothed.weights = true;
  EXPECT_TRUE(reduces(smoothed)) << "the weights of all classes are added up";
  EXPECT_FALSE(reduces({.operation = Operation::cross_entropy, .has = {.given_lse = true}}));
  EXPECT_FALSE(counts_first({.operation = Operation::cross_entropy,
                             .reduction = Reduction::mean,
                             .gradient = true,
                             .has = {.divisor = true}}))
      << "the caller gives what the mean divides by";
}

TEST(Problem, OptionsThatAskTheSameAreOne) {
  Problem backward{.operation = Operation::cross_entropy_backward,
                   .reduction = Reduction::sum,
                   .upstream = Upstream::rows,
                   .gradient = true,
                   .rows = 2,
                   .columns = 8};
  Problem same = backward;
  same.reduction = Reduction::none;
  EXPECT_EQ(canonical(backward), same);
  backward.rows = same.rows = 1;
  same.upstream = Upstream::scalar;
  EXPECT_EQ(canonical(backward), same);
  EXPECT_EQ(canonical(same), same);

  Problem forward = base;
  forward.reduction = Reduction::sum;
  EXPECT_EQ(canonical(forward), forward) << "the loss is another one";
  backward.reduction = Reduction::mean;
  EXPECT_EQ(canonical(backward).reduction, Reduction::mean);
}

struct Placed {
  std::vector<RowPlacement> matrices;
  std::int64_t rows;
  Alignment expected;
  std::int64_t row_bytes = 8000;  ///< fewer than from one row to the next
};

TEST(Alignment, FollowsAddressesAndStrides) {
  const Placed cases[] = {
      {{{0x1000, 8192}, {0x2000, 8192}}, 4, Alignment::vector},
      {{{0x1000, 8192}}, 4, Alignment::vector},
      {{{0x1000, 8194}}, 4, Alignment::shifted},
      {{{0x1000, 100514}, {0x2000, 100514}}, 4, Alignment::shifted},  // 50257 columns of bf16
      {{{0x1000, 100514}, {0x2000, 100608}}, 4, Alignment::element},  // a padded output
      {{{0x1002, 8192}, {0x2002, 8192}}, 4, Alignment::shifted},
      {{{0x1002, 8192}, {0x2000, 8192}}, 4, Alignment::element},
      {{{0x1002, 8192}, {0x2002, 8192}, {0x3004, 8192}}, 4, Alignment::element},  // of three
      {{{0x1000, 8192, 8192 * 3}, {0x2000, 8192, 8192 * 4}}, 4, Alignment::vector},
      {{{0x1000, 8192, 8192 * 3 + 2}, {0x2000, 8192, 8192 * 3 + 2}}, 4, Alignment::shifted},
      {{{0x1000, 8192, 8192 * 3 + 2}, {0x2000, 8192, 8192 * 3}}, 4, Alignment::element},
      {{{0x1000, 100514}, {0x2000, 100514}}, 1, Alignment::vector},  // one row: strides are never used
      {{{0x1000, 100514}, {0x2000, 2}}, 1, Alignment::vector},
      {{{0x1000, 20}, {0x2000, 20}}, 4, Alignment::dense, 20},
      {{{0x1000, 254}, {0x2000, 254}, {0x3000, 254}}, 2, Alignment::dense, 254},
      {{{0x1000, 32}, {0x2000, 32}}, 4, Alignment::vector, 32},
      {{{0x1000, 258}, {0x2000, 258}}, 4, Alignment::shifted, 258},  // wide
      {{{0x1002, 20}, {0x2002, 20}}, 4, Alignment::shifted, 20},
      {{{0x1000, 20}, {0x2000, 20}}, 4, Alignment::shifted, 18},  // a gap behind each row
      {{{0x1000, 20}, {0x2000, 36}}, 4, Alignment::shifted, 20},
      {{{0x1000, 20}, {0x2000, 24}}, 4, Alignment::element, 20},
      {{{0x1000, 20, 100}, {0x2000, 20, 100}}, 4, Alignment::shifted, 20},
      {{{0x1000, 20}, {0x2000, 20}}, 1, Alignment::vector, 20},
      {{{0x1002, 20}, {0x2002, 20}}, 1, Alignment::shifted, 20},
  };
  for (const Placed& placed : cases)
    EXPECT_EQ(alignment_of(placed.rows, placed.row_bytes, placed.matrices), placed.expected);
}

TEST(Alignment, OfDenseRowsAllowsTheVectorsThatDivideThem) {
  const auto rows = [](DType dtype, std::int64_t columns, Alignment alignment) {
    return Problem{.dtype = dtype, .alignment = alignment, .rows = 8, .columns = columns};
  };
  const Problem two = rows(DType::bf16, 2, Alignment::dense), ten = rows(DType::bf16, 10, Alignment::dense);
  EXPECT_TRUE(starts_on_vectors(two, 1) && starts_on_vectors(two, 2) && !starts_on_vectors(two, 4));
  EXPECT_TRUE(starts_on_vectors(ten, 2) && !starts_on_vectors(ten, 4) && !starts_on_vectors(ten, 8));
  EXPECT_FALSE(starts_on_vectors(rows(DType::f32, 3, Alignment::dense), 2));
  EXPECT_FALSE(starts_on_vectors(ten, 0));
  EXPECT_FALSE(starts_on_vectors(rows(DType::bf16, 10, Alignment::shifted), 2));
  EXPECT_TRUE(starts_on_vectors(rows(DType::bf16, 10, Alignment::vector), 8));
}

TEST(Validate, DenseRowsAreNarrowAndFollowEachOther) {
  const Problem dense{.dtype = DType::bf16, .alignment = Alignment::dense, .rows = 8, .columns = 127};
  EXPECT_NO_THROW(validate(dense));
  const auto refuse = [&](auto&& change) {
    Problem problem = dense;
    change(problem);
    try {
      validate(problem);
      ADD_FAILURE() << title(problem);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "alignment");
      EXPECT_EQ(error.value(), "dense");
    }
  };
  refuse([](Problem& p) { p.columns = 128; });
  refuse([](Problem& p) { p.columns = 129; });
  refuse([](Problem& p) { p.columns = 8; });
  refuse([](Problem& p) { p.rows = 1; });
  refuse([](Problem& p) { p.batched = true; });
  refuse([](Problem& p) { p.strided = true; });
}

TEST(Traffic, CountsTheFewestBytes) {
  const Problem softmax{.dtype = DType::bf16, .rows = 8192, .columns = 128256};
  EXPECT_EQ(traffic(softmax).read, 8192LL * 128256 * 2);
  EXPECT_EQ(traffic(softmax).total(), 2 * 8192LL * 128256 * 2);
  Problem loss = base;
  loss.gradient = false;
  EXPECT_EQ(traffic(loss).read, 4096LL * 8192 * 2 + 4096 * 8);
  EXPECT_EQ(traffic(loss).written, 4);
  const std::int64_t matrix = 4096LL * 8192 * 2;
  EXPECT_EQ(traffic(base).total(), 2 * matrix + 4096 * 8 + 4);
  Problem outputs = loss;
  outputs.reduction = Reduction::none;
  outputs.weights = outputs.has.z_loss = outputs.has.z_loss_out = outputs.has.lse_out =
      outputs.has.argmax_out = outputs.has.hit_out = true;
  EXPECT_EQ(traffic(outputs).read, matrix + 4096 * 8 + 8192 * 4);
  EXPECT_EQ(traffic(outputs).written, 4096 * (4 + 4 + 4 + 8 + 1));
  Problem given = loss;
  given.has.given_lse = given.has.row_weights = true;
  EXPECT_EQ(traffic(given).read, 4096LL * (2 + 8 + 4 + 4)) << "of a row its target's logit alone";
  Problem backward = base;
  backward.operation = Operation::cross_entropy_backward;
  backward.upstream = Upstream::rows;
  EXPECT_EQ(traffic(backward).total(), 2 * matrix + 4096 * (8 + 4 + 4));
  Problem probabilities = base;
  probabilities.probabilities = true;
  EXPECT_EQ(traffic(probabilities).total(), 3 * matrix + 4);
  const Problem softmax_backward{
      .operation = Operation::softmax_backward, .dtype = DType::bf16, .rows = 8, .columns = 64};
  EXPECT_EQ(traffic(softmax_backward).total(), 3 * 8 * 64 * 2);
  const std::pair<Operation, int> matrices[] = {
      {Operation::softmax, 2}, {Operation::log_softmax, 2}, {Operation::log_softmax_backward, 3},
      {Operation::copy, 2},    {Operation::read, 1},        {Operation::add, 3}};
  for (const auto& [operation, moved] : matrices)
    EXPECT_EQ(traffic({.operation = operation, .rows = 8, .columns = 64}).total(), moved * 8 * 64 * 4)
        << name(operation);
  const Problem huge{.dtype = DType::bf16, .rows = 1 << 20, .columns = 1 << 20};
  EXPECT_EQ(traffic(huge).total(), std::int64_t{4} << 40);
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
  EXPECT_EQ(message([](Problem& p) { p.rows = (std::int64_t{1} << 31) - 1; }), "nothing");
  EXPECT_EQ(message([](Problem& p) { p.columns = 1 << 30; }), "nothing");
  EXPECT_EQ(message([](Problem& p) { p.rows = std::int64_t{1} << 31; }),
            "rows is 2147483648; expected 1 to 2147483647");
  EXPECT_EQ(message([](Problem& p) { p.columns = (1 << 30) + 1; }),
            "columns is 1073741825; expected 1 to 1073741824");
  EXPECT_EQ(message([](Problem& p) {
              p.columns = 1 << 30;
              p.rows = (1 << 26) + 1;
            }),
            "rows is 67108865; expected at most 67108864 with 1073741824 columns");
  EXPECT_EQ(message([](Problem& p) { p.dtype = DType::i32; }), "dtype is i32; expected f32, f16 or bf16");
  EXPECT_EQ(message([](Problem& p) { p.target_dtype = DType::f32; }),
            "target dtype is f32; expected i32 or i64");
  EXPECT_EQ(message([](Problem& p) { p.loss_dtype = DType::f16; }),
            "loss dtype is f16; expected f32 or bf16");
  EXPECT_EQ(message([](Problem& p) { p.weight_dtype = DType::f16; }),
            "weight dtype is f16; expected f32 or bf16");
  EXPECT_EQ(message([](Problem& p) { p.has.z_loss_out = true; }),
            "z_loss_out is set; expected only with z_loss");
  EXPECT_EQ(message([](Problem& p) {
              p.operation = Operation::cross_entropy_backward;
              p.reduction = Reduction::sum;
              p.gradient = p.has.token_scaling = true;
            }),
            "saved_logprob is unset; expected set with token_scaling");
  EXPECT_EQ(message([](Problem& p) { p.has.hit_out = p.probabilities = true; }),
            "hit_out is set; expected only with class indices");
  EXPECT_EQ(message([](Problem& p) {
              p.gradient = false;
              p.upstream = Upstream::scalar;
            }),
            "upstream is set; expected only with a gradient");
  EXPECT_EQ(message([](Problem& p) {
              p.operation = Operation::cross_entropy_backward;
              p.has.lse_out = true;
            }),
            "lse_out is set; expected only with cross_entropy");
  EXPECT_EQ(message([](Problem& p) {
              p.operation = Operation::cross_entropy_merge;
              p.gradient = false;
              p.upstream = Upstream::one;
              p.has.lse_low_out = true;
            }),
            "lse_low_out is set; expected only with cross_entropy");
  EXPECT_EQ(message([](Problem& p) {
              p.operation = Operation::cross_entropy_backward;
              p.gradient = false;
            }),
            "gradient is unset; expected set, because cross_entropy_backward writes the gradient");
  const Problem softmax{.rows = 8, .columns = 64};
  for (bool Problem::*field : {&Problem::gradient, &Problem::probabilities, &Problem::weights}) {
    Problem wrong = softmax;
    wrong.*field = true;
    EXPECT_THROW(validate(wrong), InvalidArgument);
  }
  for (const CrossEntropyOption& option : cross_entropy_options) {
    Problem wrong = softmax;
    wrong.has.*option.field = true;
    EXPECT_THROW(validate(wrong), InvalidArgument) << option.word;
  }
}

TEST(Operation, CeilingsAndOperationsOfRanksCanBeLeftOut) {
  EXPECT_EQ(parse_operation("copy", "--op"), Operation::copy);
  EXPECT_EQ(parse_operation("cross_entropy_backward", "--op", Named::of_one_rank),
            Operation::cross_entropy_backward);
  for (const char* other : {"copy", "cross_entropy_shard"}) try {
      (void)parse_operation(other, "--op", Named::of_one_rank);
      FAIL() << other;
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(error.expected().ends_with(", cross_entropy, cross_entropy_backward")) << error.what();
    }
}

TEST(Operation, UnknownNamesListTheKnown) {
  try {
    (void)parse_operation("sofmax", "--op");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "--op is \"sofmax\"; expected one of softmax, log_softmax, softmax_backward, log_softmax_backward, "
        "cross_entropy, cross_entropy_backward, cross_entropy_shard, cross_entropy_merge, "
        "cross_entropy_shard_backward, cross_entropy_exchange, copy, read, add");
  }
}

}  // namespace
}  // namespace ce::generator
