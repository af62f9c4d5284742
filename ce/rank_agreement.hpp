#pragma once
/// \file
/// Whether the calls of ranks that share the classes fit each other. Not installed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <tuple>

#include "ce/operations.hpp"
#include "ce/ranks.hpp"

namespace ce {

/// What a rank is asked for. All but its columns and their place must be the same on every rank.
class RankCall {
 public:
  RankCall(const CrossEntropy& operation, const CrossEntropy::Tensors& tensors, const Shard& shard,
           std::int64_t words);

  static constexpr std::size_t numbers = 14;
  [[nodiscard]] const std::array<std::int64_t, numbers>& all() const noexcept { return numbers_; }
  /// The same for a call with other rows.
  [[nodiscard]] RankCall of_any_rows() const noexcept;

  friend auto operator<=>(const RankCall&, const RankCall&) = default;

 private:
  std::array<std::int64_t, numbers> numbers_;
};

/// \param calls  RankCall::all() of each rank, one after the other
/// \throws InvalidArgument that names the rank and what differs, or the classes that no rank or two ranks have
void require_agreement(std::span<const std::int64_t> calls);

/// The calls that ranks have agreed on. Thread-safe.
class RankAgreements {
 public:
  [[nodiscard]] bool has(const Communicator& communicator, const RankCall& call) {
    const std::lock_guard lock(mutex_);
    return known_.contains({communicator.state, communicator.rank, communicator.size, call.of_any_rows()});
  }
  void add(const Communicator& communicator, const RankCall& call) {
    const std::lock_guard lock(mutex_);
    known_.insert({communicator.state, communicator.rank, communicator.size, call.of_any_rows()});
  }

 private:
  std::mutex mutex_;
  std::set<std::tuple<const void*, int, int, RankCall>> known_;
};

}  // namespace ce
