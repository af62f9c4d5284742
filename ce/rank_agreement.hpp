#pragma once
/// \file
/// Checks that the calls of ranks that share the classes match. Not installed.

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

/// The numbers that describe a rank's call. All except its columns and first class must be equal on every rank.
class RankCall {
 public:
  RankCall(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
           std::int64_t words);

  /// The options' amounts come between other numbers.
  static constexpr std::size_t before_amounts = 8, amounts = generator::cross_entropy_options.size(),
                               behind_amounts = 6, numbers = before_amounts + amounts + behind_amounts;
  enum Number : std::size_t { rows, columns, first_class, classes };
  [[nodiscard]] const std::array<std::int64_t, numbers>& all() const noexcept { return numbers_; }
  /// The description without exact rows: for the same power-of-two range, or for any.
  [[nodiscard]] RankCall of_bucket() const noexcept;
  [[nodiscard]] RankCall of_any_rows() const noexcept;

  friend auto operator<=>(const RankCall&, const RankCall&) = default;

 private:
  std::array<std::int64_t, numbers> numbers_;
};

/// \throws InvalidArgument for an invalid communicator
void require_communicator(const Communicator& communicator);

/// \param names  names of numbers that must be equal on every rank
/// \param numbers   these numbers of each rank, rank by rank
/// \throws InvalidArgument naming the first rank and number that differ from rank 0
void require_the_same(std::span<const std::string_view> names, std::span<const std::int64_t> numbers);

/// \param calls  RankCall::all() of each rank, rank by rank
/// \throws InvalidArgument naming the rank and the difference, or the classes that no rank or two ranks have
void require_agreement(std::span<const std::int64_t> calls);

/// The calls that ranks have agreed on, and whether they use CrossEntropyExchange. Thread-safe.
class RankAgreements {
 public:
  /// \param captured  accept an agreement on other rows, since ranks cannot compare calls now
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
