#pragma once
/// \file
/// Which of a few ways to do one thing is fastest here: what is raced on the caller's first call, not searched.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "runtime/device.hpp"

namespace ce::tuner {

/// Ways that are to make the same results.
struct Race {
  std::string_view subject;                 ///< in messages: whose ways they are
  std::vector<std::string> names;           ///< the one first that runs unless another is faster
  std::function<void(std::size_t)> launch;  ///< one of them, on the device's trial stream
  std::function<void()> set_back;           ///< what `read` reads, before each first launch
  std::function<std::vector<double>()> read;
  std::function<bool(const std::vector<double>& made, const std::vector<double>& right)> agrees;
  std::vector<double> right = {};  ///< what all must agree with; empty: what the first makes
};

/// What a race has found.
struct RaceResult {
  std::string winner, first;  ///< names; `first` is the first that was right. Empty where none was
  double winner_us = 0, first_us = 0;
  int runners = 0;  ///< that took part
  int wrong = 0;    ///< that did not, since their results differ
};

/// Times all of them twice, then the fastest in turns.
/// \param seconds  that it may take; 0: no bound. What has begun is finished
[[nodiscard]] RaceResult run(runtime::Device& device, const Race& race, double seconds);

/// The winners that are known, and what the database knows of them. Not thread-safe.
class RaceWinners {
 public:
  /// \param cache  must outlive it
  explicit RaceWinners(cache::Cache& cache) : cache_(cache) {}

  /// Of the race of that key; empty where none is known. Asks the database once.
  [[nodiscard]] const std::string& of(const std::string& key);
  /// \param maker  whose ways they are, with its version, and \param name what was raced: for those who look at the database
  void keep(const std::string& key, const RaceResult& result, const std::string& maker,
            const std::string& name);

 private:
  cache::Cache& cache_;
  std::map<std::string, std::string> known_;
};

}  // namespace ce::tuner
