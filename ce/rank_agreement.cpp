#include "ce/rank_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "generator/problem.hpp"

namespace ce {
namespace {

/// The names of the numbers that ranks compare, in their order.
template <class T>
constexpr std::array<T, RankCall::numbers> in_order(const std::array<T, RankCall::before_amounts>& before,
                                                    const std::array<T, RankCall::amounts>& amounts,
                                                    const std::array<T, RankCall::behind_amounts>& behind) {
  std::array<T, RankCall::numbers> all{};
  std::ranges::copy(behind, std::ranges::copy(amounts, std::ranges::copy(before, all.begin()).out).out);
  return all;
}

/// Applies `of` to each option that has an amount.
template <class Of>
constexpr auto of_amounts(const Of& of) {
  std::array<std::invoke_result_t<Of, generator::CrossEntropyOption>, RankCall::amounts> all{};
  std::ranges::transform(generator::cross_entropy_options, all.begin(), of);
  return all;
}

constexpr std::array<std::string_view, RankCall::numbers> names = in_order<std::string_view>(
    {"logits.rows", "logits.columns", "first_class", "classes", "logits.dtype", "target.dtype", "reduction",
     "ignore_index"},
    of_amounts([](const generator::CrossEntropyOption& option) { return option.name; }),
    {"words of a row", "plan", "gradients", "lse and argmax", "row_scale", "weight, row_weight and divisor"});

std::int64_t bits_of(float amount) { return std::bit_cast<std::int32_t>(amount); }

[[noreturn]] void throw_different(std::string_view name, const std::string& value, std::size_t rank,
                                  const std::string& of_first) {
  throw InvalidArgument(name, fmt::format("{} on rank {}", value, rank),
                        fmt::format("{}, as on rank 0", of_first));
}

std::string text_of(std::size_t number, std::int64_t value) {
  if (number >= RankCall::before_amounts && number < RankCall::before_amounts + RankCall::amounts)
    return fmt::to_string(std::bit_cast<float>(static_cast<std::int32_t>(value)));
  if (names[number].ends_with("dtype")) return std::string(name(static_cast<DType>(value)));
  if (names[number] == "row_scale") return value != 0 ? "set" : "null";
  if (names[number] == "plan") return std::string(name(static_cast<RankPlan>(value)));
  if (names[number] == "reduction") return std::string(name(static_cast<Reduction>(value)));
  return fmt::to_string(value);
}

}  // namespace

std::string_view name(RankPlan plan) noexcept {
  switch (plan) {
    case RankPlan::automatic: return "automatic";
    case RankPlan::gather: return "gather";
    case RankPlan::exchange: return "exchange";
  }
  return "?";
}

void require_communicator(const Communicator& communicator) {
  const auto& [rank, size, all_gather, state, failure, patience] = communicator;
  if (all_gather == nullptr) throw InvalidArgument("communicator.all_gather", "null", "a function");
  if (size < 1) throw InvalidArgument("communicator.size", fmt::to_string(size), "1 or more");
  if (rank < 0 || rank >= size)
    throw InvalidArgument("communicator.rank", fmt::to_string(rank), fmt::format("0 to {}", size - 1));
  if (!(patience > 0)) throw InvalidArgument("communicator.patience", fmt::to_string(patience), "above 0");
}

void require_the_same(std::span<const std::string_view> names, std::span<const std::int64_t> numbers) {
  for (std::size_t at = names.size(); at < numbers.size(); ++at) {
    const std::size_t rank = at / names.size(), which = at % names.size();
    if (numbers[at] != numbers[which])
      throw_different(names[which], fmt::to_string(numbers[at]), rank, fmt::to_string(numbers[which]));
  }
}

RankCall::RankCall(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
                   std::int64_t words)
    : numbers_(in_order<std::int64_t>(
          {tensors.logits.rows, tensors.logits.columns, shard.first_class, shard.classes,
           static_cast<std::int64_t>(tensors.logits.dtype), static_cast<std::int64_t>(tensors.target.dtype),
           static_cast<std::int64_t>(operation.reduction), operation.ignore_index},
          of_amounts([&](const generator::CrossEntropyOption& option) {
            return bits_of(operation.*option.of<CrossEntropy>());
          }),
          {words, static_cast<std::int64_t>(shard.plan),
           tensors.grad.data != nullptr && tensors.logits.rows > 0 ? 1 : 0,
           // Without either, kernels skip rows that have no class in the shard.
           (tensors.lse.data != nullptr ? 1 : 0) + (tensors.argmax.data != nullptr ? 2 : 0),
           tensors.row_scale.data != nullptr ? 1 : 0,
           (tensors.weight.data != nullptr ? 1 : 0) + (tensors.row_weight.data != nullptr ? 2 : 0) +
               (tensors.divisor.data != nullptr ? 4 : 0)})) {}

RankCall RankCall::of_bucket() const noexcept {
  RankCall call = *this;
  call.numbers_[rows] = generator::rows_bucket(call.numbers_[rows]);
  return call;
}

RankCall RankCall::of_any_rows() const noexcept {
  RankCall call = *this;
  call.numbers_[rows] = -1;
  return call;
}

void require_agreement(std::span<const std::int64_t> calls) {
  const std::size_t ranks = calls.size() / RankCall::numbers;
  const auto number = [&](std::size_t rank, std::size_t which) {
    return calls[rank * RankCall::numbers + which];
  };
  for (std::size_t rank = 1; rank < ranks; ++rank)
    for (std::size_t which = 0; which < RankCall::numbers; ++which)
      if (which != RankCall::columns && which != RankCall::first_class &&
          number(rank, which) != number(0, which))
        throw_different(names[which], text_of(which, number(rank, which)), rank,
                        text_of(which, number(0, which)));

  const std::int64_t classes = number(0, RankCall::classes);
  struct Classes {
    std::int64_t first, end;
    std::size_t rank;
  };
  std::vector<Classes> shards;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t first = std::min(number(rank, RankCall::first_class), classes);
    shards.push_back({first, first + number(rank, RankCall::columns), rank});
  }
  // A shard without classes is sorted before the shard that begins at the same class.
  std::ranges::sort(shards, {}, [](const Classes& shard) { return std::pair(shard.first, shard.end); });
  std::int64_t next = 0;
  for (const Classes& shard : shards) {
    if (shard.first != next)
      throw InvalidArgument("first_class", fmt::format("{} on rank {}", shard.first, shard.rank),
                            fmt::format("{}, because each class must be on exactly one rank", next));
    next = shard.end;
  }
  if (next != classes)
    throw InvalidArgument("classes", fmt::to_string(classes),
                          fmt::format("{}, the number of columns in the logits of all ranks", next));
}

}  // namespace ce
