#pragma once
/// \file
/// Statistics of rows for a rank without classes. Not installed.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/device.hpp"

namespace ce {

/// Determines the contents of a row's statistics, as templates/operations/shard.cuh lays them out.
struct StatisticsLayout {
  std::int64_t words = 0;
  bool target = false, slope = false, indices = false;

  friend auto operator<=>(const StatisticsLayout&, const StatisticsLayout&) = default;
};

/// Statistics that do not change what they are merged with, in device memory that is written once and then only read.
/// Thread-safe.
class NeutralStatistics {
 public:
  explicit NeutralStatistics(runtime::Device& device) : device_(device) {}

  /// \param fixed  whether allocation is forbidden now
  /// \returns at least `rows` rows; null if they are not there and may not be allocated
  [[nodiscard]] const void* get(const StatisticsLayout& layout, std::int64_t rows, bool fixed);

 private:
  runtime::Device& device_;
  std::mutex mutex_;
  /// Buffers by layout; the last is the largest, and graphs may still use the others.
  std::map<StatisticsLayout, std::vector<runtime::Buffer>> all_;
};

}  // namespace ce
