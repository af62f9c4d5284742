#pragma once
/// \file
/// Which of a few ways to do one thing is fastest here: what is raced on the caller's first call, not searched.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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

/// One of them, as it was timed.
struct RaceRun {
  std::string name;
  std::vector<float> samples_us;
  bool is_final = false;  ///< timed in turns to the end
  std::string wrong;      ///< why it took no part; empty where it did
};

/// What a race has found.
struct RaceResult {
  std::string winner, first;  ///< names; `first` is the first that was right. Empty where none was
  double winner_us = 0, first_us = 0;
  int runners = 0;  ///< that took part
  int wrong = 0;    ///< that did not, since their results differ
  std::vector<RaceRun> runs;
  std::string cut_short;  ///< why not all took part to the end; empty where they did
};

/// Times all of them twice, then the fastest in turns.
/// \param seconds  that it may take; 0: no bound. What has begun is finished
[[nodiscard]] RaceResult run(runtime::Device& device, const Race& race, double seconds);

/// What is raced.
struct RaceSubject {
  std::string text;   ///< what decides which way is fastest, with tokens rounded up to a power of two
  std::string maker;  ///< whose ways they are, with its version: winners of another one do not serve
  std::int64_t rows = 0, bytes = 0;  ///< tokens that are timed, and the fewest bytes that must move
};

/// The winners that are known, by what the database and its layers have measured. Not thread-safe.
class RaceWinners {
 public:
  /// Both must outlive it.
  /// \param seconds  that each race of this process may take; 0: no bound
  RaceWinners(runtime::Device& device, cache::Cache& cache, double seconds = 0)
      : device_(device), cache_(cache), seconds_(seconds) {}

  struct Known {
    std::string winner;  ///< empty where none is known
    /// A race would find something new: there was none, or one that was cut short and had less time.
    bool open = true;
    bool all_wrong = false;  ///< none of the ways that were tried is right
  };
  /// Asks the database once.
  [[nodiscard]] const Known& of(const RaceSubject& subject);
  /// Commits all runs as measurements of one key, unless there was one alone: then this process keeps the winner.
  void keep(const RaceSubject& subject, const RaceResult& result);

 private:
  runtime::Device& device_;
  cache::Cache& cache_;
  const double seconds_;
  std::map<std::pair<std::string, std::string>, Known> known_;  ///< by text and maker
};

}  // namespace ce::tuner
