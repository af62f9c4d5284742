#pragma once
/// \file
/// Whether the calls of ranks that share the classes fit each other. Not installed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include "ce/operations.hpp"
#include "ce/ranks.hpp"
#include "generator/operations/cross_entropy.hpp"

namespace ce {

/// What a rank is asked for. All but its columns and their place must be the same on every rank.
class RankCall {
 public:
  RankCall(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
           std::int64_t words);

  /// The amounts of options lie between others.
  static constexpr std::size_t before_amounts = 8, amounts = generator::cross_entropy_options.size(),
                               behind_amounts = 6, numbers = before_amounts + amounts + behind_amounts;
  enum Number : std::size_t { rows, columns, first_class, classes };
  [[nodiscard]] const std::array<std::int64_t, numbers>& all() const noexcept { return numbers_; }
  /// The same for calls with other rows: of the same power-of-two range, or any.
  [[nodiscard]] RankCall of_bucket() const noexcept;
  [[nodiscard]] RankCall of_any_rows() const noexcept;

  friend auto operator<=>(const RankCall&, const RankCall&) = default;

 private:
  std::array<std::int64_t, numbers> numbers_;
};

/// \throws InvalidArgument where it is none
void require_communicator(const Communicator& communicator);

/// \param names  of what every rank tells the same of
/// \param told   so many numbers of each rank, one rank after the other
/// \throws InvalidArgument that names the first rank and what differs from rank 0
void require_the_same(std::span<const std::string_view> names, std::span<const std::int64_t> told);

/// \param calls  RankCall::all() of each rank, one after the other
/// \throws InvalidArgument that names the rank and what differs, or the classes that no rank or two ranks have
void require_agreement(std::span<const std::int64_t> calls);

/// The calls that ranks have agreed on, and whether they go through CrossEntropyExchange. Thread-safe.
class RankAgreements {
 public:
  /// \param captured  what was agreed on for other rows will do, since ranks cannot agree now
  [[nodiscard]] std::optional<bool> find(const Communicator& communicator, const RankCall& call,
                                         bool captured) {
    const std::lock_guard lock(mutex_);
    auto known = known_.find(key(communicator, call.of_bucket()));
    if (known == known_.end() && captured) known = known_.find(key(communicator, call.of_any_rows()));
    return known == known_.end() ? std::nullopt : std::optional(known->second);
  }
  void add(const Communicator& communicator, const RankCall& call, bool exchange) {
    const std::lock_guard lock(mutex_);
    for (const RankCall& kind : {call.of_bucket(), call.of_any_rows()})
      known_.insert_or_assign(key(communicator, kind), exchange);
  }

 private:
  using Key = std::tuple<const void*, int, int, RankCall>;
  static Key key(const Communicator& communicator, const RankCall& call) {
    return {communicator.state, communicator.rank, communicator.size, call};
  }

  std::mutex mutex_;
  std::map<Key, bool> known_;
};

}  // namespace ce
