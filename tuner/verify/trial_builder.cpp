#include "tuner/verify/trial_builder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "generator/constraints.hpp"
#include "templates/exchange_layout.cuh"
#include "tuner/verify/elements.hpp"
#include "tuner/verify/trial_values.hpp"

namespace ce::generator {
namespace {

/// Values that f32 may round to 0: half of the smallest step, and values below its normal range.
double smallest_step(DType dtype) {
  return dtype == DType::f16 ? 0x1p-24 : is_floating(dtype) ? 0x1p-124 : 0.;
}

}  // namespace

double rounding(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0;
  }
}

TrialBuilder::TrialBuilder(const Problem& problem, bool padded, float CrossEntropyOption::Trials::*amounts)
    : placements_(placements(problem, padded)) {
  trial_.problem = problem;
  Arguments& arguments = trial_.arguments;
  arguments.input_layout = placements_.input.layout;
  arguments.second_layout = placements_.second.layout;
  arguments.output_layout = placements_.output.layout;
  arguments.rows = problem.rows;
  arguments.batch_rows = placements_.batch_rows;
  arguments.ignore_index = trial_ignore_index;
  for (const CrossEntropyOption& option : cross_entropy_options)
    arguments.amounts[index_of(option)] = problem.has.*option.field ? option.trials.*amounts : option.neutral;
}

TrialMatrix TrialBuilder::matrix(std::vector<double> values, const Placement& placement) const {
  TrialMatrix matrix{std::move(values), std::vector<std::byte>(placement.bytes, poison)};
  const Expected placed{.layout = placement.layout, .batch_rows = placements_.batch_rows};
  const auto width = static_cast<std::size_t>(problem().columns);
  for (std::int64_t row = 0; row < problem().rows; ++row)
    write_elements(problem().dtype, matrix.bytes.data() + placement.offset, placed.row_offset(row),
                   placement.layout.column,
                   std::span(matrix.values).subspan(static_cast<std::size_t>(row) * width, width));
  return matrix;
}

std::size_t TrialBuilder::add(TrialTensor tensor) {
  if (tensor.bytes == 0) tensor.bytes = tensor.initial.size();
  trial_.tensors.push_back(std::move(tensor));
  return trial_.tensors.size() - 1;
}

void TrialBuilder::add_input(std::vector<std::byte> initial) {
  TrialTensor tensor{.name = "input",
                     .arguments = {offsetof(Arguments, input)},
                     .bytes = placements_.input.bytes,
                     .offset = placements_.input.offset,
                     .initial = std::move(initial),
                     .changes = problem().in_place,
                     .read_only = !problem().in_place};
  if (problem().in_place) tensor.arguments.push_back(offsetof(Arguments, output));
  output_ = add(std::move(tensor));
}

void TrialBuilder::add_second(std::vector<std::byte> initial) {
  add({.name = "second",
       .arguments = {offsetof(Arguments, second)},
       .bytes = placements_.second.bytes,
       .offset = placements_.second.offset,
       .initial = std::move(initial),
       .read_only = true});
}

void TrialBuilder::add_output() {
  if (problem().in_place || !has_output(problem())) return;
  output_ = add({.name = "output",
                 .arguments = {offsetof(Arguments, output)},
                 .bytes = placements_.output.bytes,
                 .offset = placements_.output.offset,
                 .initial = {poison},
                 .changes = true});
}

void TrialBuilder::add_vector(std::string name, std::size_t argument, DType dtype, std::span<double> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  write_elements(dtype, bytes.data(), 0, 1, values);
  add({.name = std::move(name), .arguments = {argument}, .initial = std::move(bytes), .read_only = true});
}

std::size_t TrialBuilder::add_result(std::string name, std::size_t argument, DType dtype, std::int64_t size) {
  constexpr std::size_t behind = 16;
  result_dtype_ = dtype;
  result_ = add({.name = std::move(name),
                 .arguments = {argument},
                 .bytes = static_cast<std::size_t>(size * size_of(dtype)) + behind,
                 .initial = {poison},
                 .changes = true});
  return result_;
}

void TrialBuilder::add_scratch() {
  if (is_cross_entropy(problem().operation))
    status_ = add({.name = "status",
                   .arguments = {offsetof(Arguments, status)},
                   .initial = bytes_of(TargetStatus{0, std::numeric_limits<long long>::max()}),
                   .changes = true});
  // Variants with a row queue need its counters for every problem: zero between calls, and so again after each.
  constexpr std::size_t counters = offsetof(Workspace, count);
  const auto bytes =
      static_cast<std::size_t>(std::max<std::int64_t>(workspace_bytes(problem()), sizeof(Workspace)));
  std::vector<std::byte> initial(bytes, poison);
  std::fill_n(initial.begin(), counters, std::byte{0});
  const std::size_t workspace = add(
      {.name = "workspace", .arguments = {offsetof(Arguments, workspace)}, .initial = std::move(initial)});
  expect_bytes({workspace, std::vector<std::byte>(counters)});
  if (problem().rows <= most_split_rows)
    add({.name = "partials",
         .arguments = {offsetof(Arguments, partials)},
         .bytes = static_cast<std::size_t>(most_split_blocks * split_partial_bytes),
         .initial = {poison}});
}

void TrialBuilder::expect_matrix(std::vector<double> values, double relative, double absolute,
                                 std::vector<float> slack) {
  const Problem& asked = problem();
  trial_.expected.push_back({.tensor = output_,
                             .dtype = asked.dtype,
                             .rows = asked.rows,
                             .columns = asked.columns,
                             .layout = placements_.output.layout,
                             .batch_rows = placements_.batch_rows,
                             .values = std::move(values),
                             .relative = relative + rounding(asked.dtype),
                             .absolute = absolute + smallest_step(asked.dtype),
                             .slack = std::move(slack)});
}

void TrialBuilder::expect_result(std::vector<double> values, double relative, double absolute,
                                 std::vector<float> slack) {
  const auto size = static_cast<std::int64_t>(values.size());
  trial_.expected.push_back({.tensor = result_,
                             .dtype = result_dtype_,
                             .rows = size,
                             .columns = 1,
                             .values = std::move(values),
                             .relative = relative + rounding(result_dtype_),
                             .absolute = absolute + smallest_step(result_dtype_),
                             .slack = std::move(slack)});
}

void TrialBuilder::expect_statistics(std::vector<double> quantities, std::vector<float> slack,
                                     std::int64_t words, std::vector<float> units) {
  const auto rows = static_cast<std::int64_t>(quantities.size()) / words;
  trial_.expected.push_back({.tensor = result_,
                             .dtype = DType::f32,
                             .rows = rows,
                             .columns = words,
                             .layout = {.row = words, .batch = 0, .column = 1},
                             .values = std::move(quantities),
                             .slack = std::move(slack),
                             .statistics = true,
                             .units = std::move(units)});
}

void TrialBuilder::set_shard(std::int64_t first_class, std::int64_t classes, std::int64_t ranks) {
  trial_.arguments.first_class = first_class;
  trial_.arguments.classes = classes;
  trial_.arguments.ranks = ranks;
  trial_.arguments.statistics_words = statistics_words(problem());
}

void TrialBuilder::add_statistics(std::span<const std::uint32_t> words) {
  const auto bytes = std::as_bytes(words);
  add({.name = "statistics",
       .arguments = {offsetof(Arguments, statistics)},
       .initial = {bytes.begin(), bytes.end()},
       .read_only = true});
}

void TrialBuilder::add_statistics_result() {
  add_result("statistics_out", offsetof(Arguments, statistics_out), DType::f32,
             problem().rows * statistics_words(problem()));
}

void TrialBuilder::add_exchange(std::span<const std::vector<std::uint32_t>> words, std::int64_t own,
                                const ExchangeLag& lag) {
  const ExchangeLayout layout{.ranks = static_cast<long long>(words.size()),
                              .words = statistics_words(problem())};
  const auto row_words = static_cast<std::size_t>(layout.words);
  constexpr std::size_t per_packet = ExchangeLayout::words_of_packet;
  constexpr std::uint32_t call = 1;
  constexpr unsigned long long patience = 2'000'000'000;
  std::vector<std::byte> memory(static_cast<std::size_t>(layout.bytes(problem().rows)));
  PeerExchange header{.rank = static_cast<int>(own),
                      .calls = 0,
                      .missing = 0,
                      .lag = lag.least,
                      .patience = patience,
                      .lag_of_cluster = lag.of_cluster,
                      .reserved = 0};
  std::memcpy(memory.data(), &header, sizeof header);
  std::byte* packet = memory.data() + layout.packets();
  for (std::size_t row = 0; row < static_cast<std::size_t>(problem().rows); ++row)
    for (const std::vector<std::uint32_t>& of_rank : words)
      for (std::size_t from = 0; from < row_words;
           from += per_packet, packet += ExchangeLayout::packet_bytes) {
        if (of_rank.empty()) continue;
        std::memcpy(packet, of_rank.data() + row * row_words + from,
                    4 * std::min(per_packet, row_words - from));
        std::memcpy(packet + 4 * per_packet, &call, sizeof call);
      }
  const std::size_t exchange = add(
      {.name = "exchange", .arguments = {offsetof(Arguments, exchange)}, .initial = memory, .changes = true});
  memory.resize(static_cast<std::size_t>(layout.packets()));
  header.calls = call;
  std::memcpy(memory.data(), &header, sizeof header);
  std::memcpy(memory.data() + layout.finished() + 4 * own, &call, sizeof call);
  expect_bytes({exchange, std::move(memory)});
}

void TrialBuilder::expect_status(const TargetStatus& status) { expect_bytes({status_, bytes_of(status)}); }

}  // namespace ce::generator
