// Rows of a few elements, on the host device: every way in which the variant `warp` shares them among lanes, with rows that
// follow each other, with or without gaps, and rows that lie far apart; and every way in which the variant `packed` gives
// lanes rows without gaps; against f64.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "covering.hpp"
#include "generator/ceil_div.hpp"
#include "runtime/host/device.hpp"
#include "templates/arguments.cuh"
#include "tests/environment.hpp"
#include "tests/seed.hpp"
#include "tuner/kernel.hpp"
#include "tuner/verify/elements.hpp"

namespace ce::test {
namespace {

using generator::Alignment;
using generator::Trial;
using generator::TrialTensor;

/// Where the rows of a matrix lie, in elements.
struct RowSpacing {
  std::int64_t first = 0, stride = 0;
};

/// Of each matrix.
struct Spacings {
  RowSpacing input, second, output;
};

std::int64_t rounded_up(std::int64_t columns, std::int64_t multiple) {
  return generator::ceil_div(columns, multiple) * multiple;
}

/// Of the problem's alignment class: rows that follow each other, an odd number of elements or vectors from one to the
/// next, padded to 32 elements, and padded to a line. Dense rows lie in one way.
std::vector<Spacings> spacings_of(const generator::Problem& problem) {
  const RowSpacing dense{0, problem.columns};
  if (problem.alignment == Alignment::dense) return {{.input = dense, .second = dense, .output = dense}};
  const std::int64_t size = size_of(problem.dtype), vector = 16 / size, columns = problem.columns;
  const bool aligned = problem.alignment == Alignment::vector;
  const std::int64_t unit = aligned ? vector : 1;
  const std::int64_t tight = rounded_up(columns, unit), odd = (tight / unit | 1) * unit;
  std::vector<Spacings> all;
  for (const std::int64_t stride : {tight, odd, rounded_up(columns, 32), rounded_up(columns, 128 / size)}) {
    const RowSpacing input{aligned ? 0 : 1, stride};
    // Rows of the other matrices are further apart. Of class `element` they do not lie like those of the input.
    const std::int64_t more = problem.alignment == Alignment::element ? 1 : vector;
    const std::int64_t first = problem.alignment == Alignment::element ? 0 : input.first;
    const RowSpacing output = problem.in_place ? input : RowSpacing{first, stride + more};
    all.push_back({.input = input, .second = {first, stride + 2 * more}, .output = output});
  }
  return all;
}

bool is_at(const TrialTensor& tensor, std::size_t argument) {
  return std::ranges::count(tensor.arguments, argument) > 0;
}

/// Moves the rows of a matrix that lie as `layout` says.
void move_rows(Trial& trial, std::size_t index, const Layout& layout, const RowSpacing& to) {
  constexpr std::int64_t behind = 32;
  TrialTensor& tensor = trial.tensors[index];
  const std::int64_t rows = trial.problem.rows, size = size_of(trial.problem.dtype);
  const auto bytes = static_cast<std::size_t>((to.first + rows * to.stride + behind) * size);
  if (tensor.initial.size() > 1) {
    std::vector<std::byte> moved(bytes, generator::poison);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(
          tensor.initial.begin() + static_cast<std::ptrdiff_t>(tensor.offset) + row * layout.row * size,
          trial.problem.columns * size, moved.begin() + (to.first + row * to.stride) * size);
    tensor.initial = std::move(moved);
  }
  tensor.bytes = bytes;
  tensor.offset = static_cast<std::size_t>(to.first * size);
  tensor.name += fmt::format(" with rows {} apart, the first at {}", to.stride, to.first);
  for (generator::Expected& expected : trial.expected)
    if (expected.tensor == index) expected.layout.row = to.stride;
}

Trial moved(Trial trial, const Spacings& to) {
  std::vector<generator::RowPlacement> placed;
  const auto move = [&](std::size_t argument, Layout& layout, const RowSpacing& spacing) {
    const auto found = std::ranges::find_if(
        trial.tensors, [&](const TrialTensor& tensor) { return is_at(tensor, argument); });
    if (found == trial.tensors.end()) return;
    const bool is_input = argument == offsetof(Arguments, output) && trial.problem.in_place;
    if (!is_input) move_rows(trial, static_cast<std::size_t>(found - trial.tensors.begin()), layout, spacing);
    layout.row = spacing.stride;
    const int size = size_of(trial.problem.dtype);
    placed.push_back({static_cast<std::uint64_t>(spacing.first * size), spacing.stride * size, 0});
  };
  move(offsetof(Arguments, input), trial.arguments.input_layout, to.input);
  move(offsetof(Arguments, second), trial.arguments.second_layout, to.second);
  move(offsetof(Arguments, output), trial.arguments.output_layout, to.output);
  if (placed.size() > 1 || trial.problem.alignment != Alignment::element) {
    const std::int64_t row_bytes = trial.problem.columns * size_of(trial.problem.dtype);
    EXPECT_EQ(alignment_of(trial.problem.rows, row_bytes, placed), trial.problem.alignment);
  }
  return trial;
}

std::vector<Trial> trials_of_spacings(const generator::Problem& problem, std::uint64_t seed) {
  std::vector<Trial> all;
  for (const Trial& trial : generator::verification_trials(problem, seed))
    for (const Spacings& spacings : spacings_of(problem)) all.push_back(moved(trial, spacings));
  return all;
}

/// Several blocks of the narrowest.
constexpr std::int64_t rows = 150, widest = 33;

/// Softmax and its gradient, losses, losses with gradients, and gradients alone, of rows that are reduced or not.
std::vector<generator::Problem> kinds() {
  std::vector<generator::Problem> all;
  for (const Reduction reduction : {Reduction::none, Reduction::mean}) {
    for (const bool gradient : {false, true})
      all.push_back(
          {.operation = generator::Operation::cross_entropy, .reduction = reduction, .gradient = gradient});
    all.push_back({.operation = generator::Operation::cross_entropy_backward,
                   .reduction = reduction,
                   .gradient = true});
  }
  for (const auto operation :
       {generator::Operation::softmax, generator::Operation::log_softmax,
        generator::Operation::softmax_backward, generator::Operation::log_softmax_backward})
    all.push_back({.operation = operation});
  return all;
}

/// How lanes share a row.
struct Sharing {
  Alignment alignment;
  int vec, lanes;
  friend auto operator<=>(const Sharing&, const Sharing&) = default;
};
/// A way in which they do, and the widths of rows for which it is one.
struct Shared {
  DType dtype;
  generator::Config config;
  std::vector<std::int64_t> widths;
};

/// By what they have in common.
std::map<Sharing, std::vector<Shared>> ways_to_share(const generator::Variant& warp,
                                                     const generator::Limits& limits) {
  std::map<Sharing, std::vector<Shared>> ways;
  for (const generator::Config& config : warp.points()) {
    if (config.warps != 2 || config.load != 0 || config.store != 0) continue;
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const Alignment alignment : generator::alignments) {
        Shared shared{dtype, config, {}};
        for (std::int64_t columns = 1; columns <= widest; ++columns) {
          const generator::Problem problem{
              .dtype = dtype, .alignment = alignment, .rows = rows, .columns = columns};
          if (alignment == Alignment::dense && !can_be_dense(problem)) continue;
          if (!warp.rejects(config, problem, limits)) shared.widths.push_back(columns);
        }
        if (!shared.widths.empty()) ways[{alignment, config.vec, config.lanes}].push_back(shared);
      }
  }
  return ways;
}

/// Of every way to share a row the narrowest, in which there is the least for each lane, and of a third of them one more.
/// The seed draws these, the dtype, and the rows that a lane has at once; with CE_FULL_TESTS there are all of them.
std::vector<Case> narrow_cases(const generator::Limits& limits, std::uint64_t seed) {
  const generator::Variant& warp = generator::variant("warp");
  const std::vector<generator::Problem> all = kinds();
  std::mt19937_64 random(seed);
  std::vector<Case> cases;
  std::size_t next = random() % all.size();
  const auto add = [&](Alignment alignment, const Shared& shared, std::int64_t columns) {
    generator::Problem problem = all[next++ % all.size()];
    problem.dtype = shared.dtype;
    problem.alignment = alignment;
    problem.rows = rows;
    problem.columns = columns;
    // The same memory is never misaligned with itself.
    problem.in_place = has_output(problem) && random() % 2 == 0 &&
                       (inputs(problem) == 2 || problem.alignment != Alignment::element);
    generator::validate(problem);
    if (!warp.rejects(shared.config, problem, limits)) cases.push_back({problem, shared.config});
  };
  std::size_t number = 0;
  for (auto& [sharing, ways] : ways_to_share(warp, limits)) {
    if (!is_required("CE_FULL_TESTS")) ways = {ways[random() % ways.size()]};
    for (const Shared& shared : ways) {
      add(sharing.alignment, shared, shared.widths.front());
      if (is_drawn(seed, number++, 3))
        add(sharing.alignment, shared, shared.widths[random() % shared.widths.size()]);
    }
  }
  return cases;
}

TEST(NarrowRows, AreRightHoweverFarTheyLieApart) {
  const std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  const std::vector<Case> cases = narrow_cases(tuner::limits_of(device->model()), seed);
  fmt::print("{} cases\n", cases.size());
  std::set<std::string> seen;
  for (const Case& one : cases) seen.insert(fmt::format("lanes={}", one.config.lanes));
  for (const int lanes : {1, 2, 4, 8, 16})
    EXPECT_TRUE(seen.contains(fmt::format("lanes={}", lanes))) << lanes;
  expect_right(*device, cache, cases, seed, trials_of_spacings);
}

/// Of every number of rows of a lane in every dtype the narrowest and the widest, and two more that the seed draws; with
/// CE_FULL_TESTS every width. Behind warps that have all their rows there is one that has none, one, part of a lane's, or
/// all but one.
std::vector<Case> packed_cases(const generator::Limits& limits, std::uint64_t seed) {
  const generator::Variant& packed = generator::variant("packed");
  std::mt19937_64 random(seed);
  std::vector<Case> cases;
  std::size_t next = random() % 1000;
  const auto add = [&](const generator::Config& config, DType dtype, std::int64_t columns) {
    const std::array operations{generator::Operation::softmax, generator::Operation::log_softmax_backward,
                                generator::Operation::log_softmax, generator::Operation::softmax_backward};
    const std::int64_t of_warp = 32 * config.rows, tails[] = {0, 1, config.rows + 1, of_warp - 1};
    generator::Problem problem{.operation = operations.at(next % 4), .dtype = dtype};
    problem.in_place = next / 4 % 2 == 0;
    problem.alignment = Alignment::dense;
    problem.rows = 3 * of_warp + tails[next / 8 % 4];
    problem.columns = columns;
    if (can_be_dense(problem) && !packed.rejects(config, problem, limits)) cases.push_back({problem, config});
  };
  for (const generator::Config& config : packed.points()) {
    if (config.load != 0 || config.store != 0) continue;
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      std::vector<std::int64_t> widths;
      for (std::int64_t columns = 1; columns <= 128; ++columns) {
        const generator::Problem problem{
            .dtype = dtype, .alignment = Alignment::dense, .rows = 150, .columns = columns};
        if (can_be_dense(problem) && !packed.rejects(config, problem, limits)) widths.push_back(columns);
      }
      if (!is_required("CE_FULL_TESTS"))
        widths = {widths.front(), widths.back(), widths[random() % widths.size()],
                  widths[random() % widths.size()]};
      for (const std::int64_t columns : widths) {
        add(config, dtype, columns);
        next += 1 + random() % 8;
      }
    }
  }
  return cases;
}

TEST(NarrowRows, ArePackedIntoVectors) {
  const std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const std::uint64_t seed = test_seed();
  const std::vector<Case> cases = packed_cases(tuner::limits_of(device->model()), seed);
  fmt::print("{} cases\n", cases.size());
  std::set<int> rows_of_lanes;
  for (const Case& one : cases) rows_of_lanes.insert(one.config.rows);
  EXPECT_THAT(rows_of_lanes, testing::ElementsAre(1, 2, 4, 8));
  expect_right(*device, cache, cases, seed);
}

/// A caller that asks for a kernel without asking the constraints.
TEST(NarrowRows, ArePackedOnlyWhereTheyFollowEachOther) {
  const std::unique_ptr<runtime::Device> device = runtime::open_host_device();
  cache::Cache cache = cache::Cache::in_memory();
  const generator::Config config{.variant = "packed", .warps = 4, .rows = 4};
  generator::Problem problem{
      .dtype = DType::bf16, .alignment = Alignment::dense, .rows = rows, .columns = 10};
  EXPECT_NO_THROW((void)tuner::build(*device, cache, problem, config));
  for (const Alignment alignment : {Alignment::vector, Alignment::shifted, Alignment::element}) {
    problem.alignment = alignment;
    EXPECT_THROW((void)tuner::build(*device, cache, problem, config), CompileError) << name(alignment);
  }
}

}  // namespace
}  // namespace ce::test
