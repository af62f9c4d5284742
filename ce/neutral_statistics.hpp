#pragma once
/// \file
/// The statistics of rows of which a rank has no class. Not installed.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/device.hpp"

namespace ce {

/// What a row's statistics are made of, as templates/operations/shard.cuh lays them out.
struct StatisticsLayout {
  std::int64_t words = 0;
  bool target = false, slope = false, indices = false;

  friend auto operator<=>(const StatisticsLayout&, const StatisticsLayout&) = default;
};

/// Statistics that change nothing they are merged with, in device memory that is written once and then only read.
/// Thread-safe.
class NeutralStatistics {
 public:
  explicit NeutralStatistics(runtime::Device& device) : device_(device) {}

  /// \param fixed  nothing may be made now
  /// \returns so many rows or more; null where they are not there and may not be made
  [[nodiscard]] const void* get(const StatisticsLayout& layout, std::int64_t rows, bool fixed);

 private:
  runtime::Device& device_;
  std::mutex mutex_;
  /// Buffers by layout; graphs may still use all but the largest, which is the last.
  std::map<StatisticsLayout, std::vector<runtime::Buffer>> all_;
};

}  // namespace ce
