#pragma once
/// \file
/// The random order in which a group's threads run.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "templates/device/host_abi.cuh"

namespace ce::runtime::host {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((next() >> 32) * bound >> 32);
  }

 private:
  std::uint64_t state_;
};

/// Removes and returns one of the items at random.
template <class Items>
auto take_any(Items& items, Random& random) {
  auto& chosen = items[random.below(static_cast<std::uint32_t>(items.size()))];
  const auto taken = chosen;
  chosen = items.back();
  items.pop_back();
  return taken;
}

/// Chooses which of a group's threads runs next, in a random and greedy order: a warp runs until none of its lanes is
/// ready, so the others see nothing of it until all of its lanes wait.
class Order {
 public:
  /// Makes all threads ready.
  void start(std::size_t warps) {
    ready_lanes_.resize(warps);
    ready_warps_.clear();
    for (std::size_t warp = 0; warp < warps; ++warp) add_warp(warp);
    current_ = none;
  }

  /// Makes all lanes of a warp ready; none of them is ready before.
  void add_warp(std::size_t warp) {
    fill(warp);
    ready_warps_.push_back(warp);
  }

  /// Makes all lanes of the running warp ready; none of them is ready before.
  void add_running_warp() { fill(current_); }

  void add(std::size_t thread) {
    const std::size_t warp = thread / host_abi::lanes;
    std::vector<int>& ready = ready_lanes_[warp];
    if (ready.empty() && warp != current_) ready_warps_.push_back(warp);
    ready.push_back(static_cast<int>(thread % host_abi::lanes));
  }

  /// The next thread; nothing if no thread is ready.
  [[nodiscard]] std::optional<std::size_t> next(Random& random) {
    // A warp that ran on after add_warp() is in the list although none of its lanes is ready any more.
    while (current_ == none || ready_lanes_[current_].empty()) {
      current_ = none;
      if (ready_warps_.empty()) return std::nullopt;
      current_ = take_any(ready_warps_, random);
    }
    return current_ * host_abi::lanes + take_any(ready_lanes_[current_], random);
  }

 private:
  void fill(std::size_t warp) {
    std::vector<int>& ready = ready_lanes_[warp];
    ready.resize(host_abi::lanes);
    for (int lane = 0; lane < host_abi::lanes; ++lane) ready[lane] = lane;
  }

  static constexpr std::size_t none = ~std::size_t{0};
  std::vector<std::vector<int>> ready_lanes_;  // for each warp
  std::vector<std::size_t> ready_warps_;
  std::size_t current_ = none;  // the warp that runs
};

}  // namespace ce::runtime::host
