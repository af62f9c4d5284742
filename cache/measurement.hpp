#pragma once
/// \file
/// The values that a tuning database keeps: keys, measurements, and what is known of both.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/environment.hpp"

namespace ce::cache {

/// What one answer is good for. Both are canonical texts that callers compare byte for byte.
struct Key {
  std::string
      problem;  ///< operation, dtypes, options, columns, rows bucket, alignment class, measuring policy
  std::string device;  ///< the model of the device

  friend bool operator==(const Key&, const Key&) = default;
  /// 12 hexadecimal digits: how a person names this key.
  [[nodiscard]] std::string id() const;
};

enum class Outcome : std::uint8_t {
  measured,     ///< compiled, verified and timed
  quarantined,  ///< does not compile or fit, spills, faults or is wrong: `reason` says which
};

[[nodiscard]] std::string_view name(Outcome outcome) noexcept;

/// How configs were timed: samples of the highest stage decide. A check asks whether a winner is as fast as it
/// was; in a screening each config is timed once, in a final in turns with the others. What was left behind in turns
/// before the last ones counts as a screening, of more samples.
inline constexpr int stage_of_checks = -1, stage_of_screenings = 0, stage_of_finals = 1;

/// One Config tried on one Problem, with all that could have influenced the result. Never changed once
/// written.
struct Measurement {
  Key key;
  std::string config;           ///< text form
  std::string template_digest;  ///< of the templates it was generated from; of a race whose ways it compares
  std::string compile_key;      ///< names its binary
  Outcome outcome = Outcome::measured;
  std::string reason;  ///< of a quarantine; empty otherwise
  int stage = stage_of_screenings;
  std::int64_t rows = 0;   ///< rows timed
  std::int64_t bytes = 0;  ///< the fewest bytes any implementation must move for those rows
  std::vector<float> samples_us;
  double median_us = 0;  ///< of the samples; 0 when quarantined
  double spread = 0;     ///< interquartile range over median
  int registers = 0;     ///< per thread
  int local_bytes = 0;   ///< per thread
  Environment environment;
  std::string created_at;  ///< UTC, ISO 8601; filled in by add() when empty
};

/// A decision of a person: the config that serves for a key, whatever is measured.
struct Pin {
  Key key;
  std::string config;      ///< text form; empty where an earlier pin was taken away
  std::string why;         ///< in the person's words
  std::string created_at;  ///< UTC, ISO 8601: of two pins of one key the later one counts
};

/// A config that reached a final, with the figures of the one that counts: the last of its highest stage.
struct Finalist {
  std::string config;
  std::string template_digest;
  int stage = stage_of_finals;
  std::int64_t rows = 0;  ///< of the matrices that were timed
  double median_us = 0;
  int registers = 0;
  std::int64_t row = 0;    ///< where the database has it
  std::string created_at;  ///< the same for all of one final, which add() commits at once
};

/// Is given all finalists, to keep if it likes, and returns the one that is asked for, or null. May be called again.
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
