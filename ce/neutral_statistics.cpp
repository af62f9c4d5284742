#include "ce/neutral_statistics.hpp"

#include <bit>
#include <cstddef>
#include <limits>

#include "generator/problem.hpp"

namespace ce {

const void* NeutralStatistics::get(const StatisticsLayout& layout, std::int64_t rows, bool fixed) {
  const std::lock_guard lock(mutex_);
  std::vector<runtime::Buffer>& known = all_[layout];
  const auto row_bytes = static_cast<std::size_t>(layout.words) * 4;
  if (!known.empty() && known.back().size() >= static_cast<std::size_t>(rows) * row_bytes)
    return known.back().data();
  if (fixed) return nullptr;

  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> row(static_cast<std::size_t>(layout.words));
  std::size_t at = 0;
  if (layout.target) row.at(at++) = -infinity;
  if (layout.slope) row.at(at++) = 1;
  row.at(at) = -infinity;  // the maximum; sums stay 0
  if (layout.indices) {
    row.at(row.size() - 2) = -infinity;
    row.back() = std::bit_cast<float>(std::numeric_limits<std::int32_t>::max());  // no column
  }
  const auto many = static_cast<std::size_t>(generator::rows_bucket(rows));
  std::vector<float> all;
  all.reserve(many * row.size());
  for (std::size_t i = 0; i < many; ++i) all.insert(all.end(), row.begin(), row.end());
  runtime::Buffer& memory = known.emplace_back(device_, many * row_bytes);
  device_.upload(memory.data(), all.data(), memory.size());
  return memory.data();
}

}  // namespace ce
