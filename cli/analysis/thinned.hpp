#pragma once
/// \file
/// Thins out long lists of values.

#include <cstddef>
#include <utility>
#include <vector>

namespace ce::tuner {

/// At most `most` of the values, evenly spread; all of them if `most` is 0.
template <class Value>
[[nodiscard]] std::vector<Value> thinned(std::vector<Value> values, int most) {
  const auto count = static_cast<std::size_t>(most);
  if (most <= 0 || values.size() <= count) return values;
  std::vector<Value> kept;
  kept.reserve(count);
  for (std::size_t i = 0; i < count; ++i) kept.push_back(std::move(values[i * values.size() / count]));
  return kept;
}

}  // namespace ce::tuner
