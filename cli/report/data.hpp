#pragma once
/// \file
/// The contents of a report on a database.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "cli/analysis/explain.hpp"
#include "cli/analysis/finding.hpp"
#include "cli/commands/ceilings.hpp"
#include "generator/problem.hpp"
#include "tuner/decide.hpp"

namespace ce::cli {

/// A population of runs with the same software, compared with the previous one with equal rows.
struct ReportedPeriod {
  tuner::Software software;
  std::int64_t rows = 0;
  std::string first_at, last_at;
  std::string config;  ///< the winner
  double median_us = 0;
  double gbs = 0;
  std::size_t runs = 0;  ///< number of the winner's runs
  std::optional<tuner::Finding> change;
};

/// The fastest config of a variant, with the winner's rows.
struct VariantTime {
  std::string_view variant;
  double behind = 0;  ///< its time over the winner's in the most similar conditions, minus 1
};

struct ReportedProblem {
  int number = 0;  ///< number on the page, from 1
  cache::KeySummary summary;
  std::string title;
  std::optional<generator::Problem> problem;  ///< nothing for a race, and for a key of another version
  std::vector<tuner::Candidate> best;         ///< the winner first; empty if there is none now
  std::size_t ranked = 0;                     ///< total number of configs, of which `best` has the first
  std::vector<VariantTime> variants;          ///< of measured variants, the winner's first
  std::string reason;                         ///< why the winner won
  double ceiling_gbs = 0;                     ///< ceiling of the same kind of traffic; 0 if there is none
  std::map<std::string, int> rejected;        ///< number of configs by the first line of the reason
  std::size_t history = 0;                    ///< number of measurements with templates of other versions
  std::vector<tuner::AxisEffect> effects;     ///< for the winner's axes
  std::vector<ReportedPeriod> periods;        ///< oldest first

  /// Throughput of the winner in 1e9 bytes a second; 0 without one.
  [[nodiscard]] double gbs() const noexcept;
  /// GB/s of the winner over the ceiling's; nothing if one of them is missing.
  [[nodiscard]] std::optional<double> share() const noexcept;
  /// The newest period's comparison; nothing if there is nothing to compare with.
  [[nodiscard]] const tuner::Finding* finding() const noexcept;
};

struct ReportedDevice {
  std::string text;  ///< device text of its keys
  std::string name;
  std::vector<ReportedProblem> problems;  ///< by operation, options, dtype, columns and rows
  Ceilings ceilings;
  std::set<std::string> drivers, toolkits, libraries, uuids,
      hosts;  ///< host names in all measurements that are shown or counted

  /// The problems by the verdict on their newest period.
  [[nodiscard]] std::map<tuner::Verdict, int> verdicts() const;
  [[nodiscard]] int without_winner() const noexcept;
};

struct ReportData {
  std::string version, date;  ///< of ce; of the report, in UTC
  std::string database;
  std::vector<ReportedDevice> devices;  ///< devices with the most slower problems first
};

/// Selects the contents of a report.
struct ReportScope {
  std::vector<cache::Key> keys;       ///< empty for all
  std::optional<std::string> device;  ///< device text of a key
  std::size_t top = 0;                ///< number of configs for each problem
};

[[nodiscard]] ReportData report_of(const cache::Cache& cache, const ReportScope& scope);

/// One value of an axis, over several problems.
struct AxisValue {
  std::string axis, value;
  int wins = 0;    ///< number of problems whose winner has it
  int others = 0;  ///< number of problems whose winner has another value, and that tried this one
  std::optional<double>
      cost;  ///< median over `others`: time with this value over that with the winner's, minus 1
};

/// Sorted by axis and value.
[[nodiscard]] std::vector<AxisValue> axis_values(std::span<const ReportedProblem* const> problems);

}  // namespace ce::cli
