#pragma once
/// \file
/// Rank 0 decides for all ranks that share the classes: which plan a kind of call uses, and with which kernels. Not
/// installed.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ce/context.hpp"
#include "ce/ranks.hpp"
#include "runtime/device.hpp"

namespace ce {

struct RankDecision {
  bool exchange = false;
  /// Choice::key and Choice::config of kernels that stay; not of provisional ones.
  std::vector<std::pair<std::string, std::string>> configs = {};

  void add(const Choice& choice) {
    if (!choice.provisional) configs.emplace_back(choice.key, choice.config);
  }
};

/// Rank 0 decides while the others wait in the all-gather that tells them. It waits for none of them, so no ranks wait
/// in a circle.
/// \param decide  called on rank 0 alone
/// \throws the error of `decide` on rank 0, and on all others an Error of the same kind that quotes it; DeviceError
[[nodiscard]] RankDecision decided_by_rank_0(runtime::Device& device, const Communicator& communicator,
                                             const std::function<RankDecision()>& decide, Stream stream);

/// Microseconds of an all-gather: the mean of several in a row, after a warm-up. All ranks call it at once.
[[nodiscard]] double time_all_gather(runtime::Device& device, const Communicator& communicator,
                                     const void* send, void* receive, std::size_t bytes, Stream stream);

/// The figures by which the two plans are compared.
struct RankTimes {
  double shard, merge, backward, exchange;  ///< microseconds a row; 0: unknown
  double all_gather;                        ///< microseconds
};

/// Whether one kernel takes no longer than three kernels and an all-gather; true if a time is unknown.
/// \param width  width of the widest shard, as a multiple of this one's
[[nodiscard]] bool exchange_is_faster(const RankTimes& times, std::int64_t rows, double width);

}  // namespace ce
