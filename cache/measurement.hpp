#pragma once
/// \file
/// The values in a tuning database: keys, measurements and summaries of both.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/environment.hpp"

namespace ce::cache {

/// Identifies a problem on a model of device. Both members are canonical texts that are compared byte for byte.
struct Key {
  std::string
      problem;  ///< operation, dtypes, options, columns, rows bucket, alignment class, measuring policy
  std::string device;  ///< the model of the device

  friend bool operator==(const Key&, const Key&) = default;
  /// 12 hexadecimal digits, the name of this key for people.
  [[nodiscard]] std::string id() const;
};

enum class Outcome : std::uint8_t {
  measured,     ///< compiled, verified and timed
  quarantined,  ///< does not compile or fit, spills, faults or is wrong: `reason` says which
};

[[nodiscard]] std::string_view name(Outcome outcome) noexcept;

/// How a config was timed: samples of the highest stage decide. A check asks whether a winner is as fast as it was; in
/// a screening each config is timed once, and in a final in turns with others. A config that left the turns before the
/// last round counts as a screening with more samples.
inline constexpr int stage_of_checks = -1, stage_of_screenings = 0, stage_of_finals = 1;

/// One Config measured on one Problem, with everything that could have influenced the result. Never changed once
/// written.
struct Measurement {
  Key key;
  std::string config;           ///< text form
  std::string template_digest;  ///< digest of the config's templates; of a race, its maker
  std::string compile_key;      ///< identifies its binary
  Outcome outcome = Outcome::measured;
  std::string reason;  ///< why it was quarantined; empty otherwise
  int stage = stage_of_screenings;
  std::int64_t rows = 0;   ///< rows timed
  std::int64_t bytes = 0;  ///< the fewest bytes any implementation must move for those rows
  std::vector<float> samples_us;
  double median_us = 0;  ///< median of the samples; 0 if quarantined
  double spread = 0;     ///< interquartile range over median
  int registers = 0;     ///< per thread
  int local_bytes = 0;   ///< per thread
  Environment environment;
  std::string created_at;  ///< UTC, ISO 8601; filled in by add() when empty
};

/// A person's decision: the config that serves a key, whatever the measurements say.
struct Pin {
  Key key;
  std::string config;      ///< text form; empty: an earlier pin was removed
  std::string why;         ///< the person's reason
  std::string created_at;  ///< UTC, ISO 8601: the later of two pins of a key counts
};

/// A config that reached a final, with the figures that count: those of its last measurement in the highest stage.
struct Finalist {
  std::string config;
  std::string template_digest;
  int stage = stage_of_finals;
  std::int64_t rows = 0;  ///< rows of the matrices that were timed
  double median_us = 0;
  int registers = 0;
  std::int64_t row = 0;    ///< row id in the database
  std::string created_at;  ///< equal for all configs of one final, which add() commits at once
};

/// Receives all finalists, which it may keep, and returns the chosen one, or null. May be called again.
using ChooseFinalist = std::function<const Finalist*(std::vector<Finalist>&)>;

/// One line of `db list`.
struct KeySummary {
  Key key;
  std::int64_t measurements = 0;
  std::int64_t configs = 0;
  std::int64_t quarantined = 0;  ///< configs that were quarantined at least once
  std::string first_at, last_at;
};

struct BinaryInfo {
  std::string compiler;
  std::string name;
};

}  // namespace ce::cache
