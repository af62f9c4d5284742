#pragma once
/// \file
/// Races a few ways to do one thing at the caller's first call, where a search would be too much.

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

/// Ways that must all compute the same results.
struct Race {
  std::string_view subject;        ///< the maker of the ways, for messages
  std::vector<std::string> names;  ///< the first is the default way, which runs unless another is faster
  std::function<void(std::size_t)> launch;  ///< runs one of them on the device's trial stream
  std::function<void()> set_back;           ///< resets the memory that `read` reads, before each first launch
  std::function<std::vector<double>()> read;
  std::function<bool(const std::vector<double>& made, const std::vector<double>& right)> agrees;
  std::vector<double> right = {};  ///< the results that all must agree with; empty: those of the first
};

/// The record of one way.
struct RaceRun {
  std::string name;
  std::vector<float> samples_us;
  bool is_final = false;  ///< it was timed in turns until the end
  std::string wrong;      ///< why it did not take part; empty if it did
};

/// The result of a race.
struct RaceResult {
  std::string winner, first;  ///< names; `first` is the first that was right. Empty if none was
  double winner_us = 0, first_us = 0;
  int runners = 0;  ///< number that took part
  int wrong = 0;    ///< number that did not, because their results differ
  std::vector<RaceRun> runs;
  std::string cut_short;  ///< why not all took part until the end; empty if they did
};

/// Times all ways twice, then the fastest ones in turns.
/// \param seconds  time limit; 0: none. The race stops after the step that exceeds it
[[nodiscard]] RaceResult run(runtime::Device& device, const Race& race, double seconds);

/// Identifies a race.
struct RaceSubject {
  std::string text;   ///< determines which way is fastest; tokens are rounded up to a power of two
  std::string maker;  ///< library and version of the ways; winners of another version do not serve
  std::int64_t rows = 0, bytes = 0;  ///< tokens that are timed, and the fewest bytes that must move
};

/// Winners of races, from the database and its layers. Not thread-safe.
class RaceWinners {
 public:
  /// Both references must outlive this object.
  /// \param seconds  limit of each race in this process; 0: none
  RaceWinners(runtime::Device& device, cache::Cache& cache, double seconds = 0)
      : device_(device), cache_(cache), seconds_(seconds) {}

  struct Known {
    std::string winner;  ///< empty if none is known
    /// A race would improve the result: there was none, or one that was cut short with less time.
    bool open = true;
    bool all_wrong = false;  ///< none of the ways tried is right
  };
  /// Looks up the winner, once in the database.
  [[nodiscard]] const Known& of(const RaceSubject& subject);
  /// Commits all runs as measurements of one key. If only one way ran, this process just remembers it as the winner.
  void keep(const RaceSubject& subject, const RaceResult& result);

 private:
  runtime::Device& device_;
  cache::Cache& cache_;
  const double seconds_;
  std::map<std::pair<std::string, std::string>, Known> known_;  ///< by text and maker
};

}  // namespace ce::tuner
