#pragma once
/// \file
/// What a report shows of a database.

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

/// A population of runs with the same software, and how it compares with the one before on as many rows.
struct ReportedPeriod {
  tuner::Software software;
  std::int64_t rows = 0;
  std::string first_at, last_at;
  std::string config;  ///< the winner
  double median_us = 0;
  double gbs = 0;
  std::size_t runs = 0;  ///< of the winner
  std::optional<tuner::Finding> change;
};

/// The fastest config of a variant, on as many rows as the winner.
struct VariantTime {
  std::string_view variant;
  double behind =
      0;  ///< its time over that of the winner under the same conditions, as far as there is one, less 1
};

struct ReportedProblem {
  int number = 0;  ///< of the page, from 1 on
  cache::KeySummary summary;
  std::string title;
  std::optional<generator::Problem>
      problem;                             ///< nothing for a race, and for a key that another version wrote
  std::vector<tuner::Candidate> best;      ///< the winner first; empty where there is none today
  std::size_t ranked = 0;                  ///< configs that `best` is the beginning of
  std::vector<VariantTime> variants;       ///< of those that were measured, the winner's first
  std::string reason;                      ///< why the winner won
  double ceiling_gbs = 0;                  ///< of the same kind of traffic; 0 where none is on record
  std::map<std::string, int> rejected;     ///< configs by the first line of the reason
  std::size_t history = 0;                 ///< measurements with templates of other versions
  std::vector<tuner::AxisEffect> effects;  ///< of the winner's axes
  std::vector<ReportedPeriod> periods;     ///< oldest first

  /// 1e9 bytes a second of the winner; 0 without one.
  [[nodiscard]] double gbs() const noexcept;
  /// GB/s of the winner over the ceiling's; nothing where one of them is missing.
  [[nodiscard]] std::optional<double> share() const noexcept;
  /// Of the newest period; nothing where there is nothing to compare with.
  [[nodiscard]] const tuner::Finding* finding() const noexcept;
};

struct ReportedDevice {
  std::string text;  ///< of its keys
  std::string name;
  std::vector<ReportedProblem> problems;  ///< by operation, options, dtype, columns and rows
  Ceilings ceilings;
  std::set<std::string> drivers, toolkits, libraries, uuids,
      hosts;  ///< of all measurements that are shown or counted

  /// Of each verdict, the problems whose newest period has it.
  [[nodiscard]] std::map<tuner::Verdict, int> verdicts() const;
  [[nodiscard]] int without_winner() const noexcept;
};

struct ReportData {
  std::string version, date;  ///< of ce; of the report, in UTC
  std::string database;
  std::vector<ReportedDevice> devices;  ///< those with most problems that became slower first
};

/// What to report of.
struct ReportScope {
  std::vector<cache::Key> keys;       ///< empty for all
  std::optional<std::string> device;  ///< the text of a key's device
  std::size_t top = 0;                ///< how many configs of each problem
};

[[nodiscard]] ReportData report_of(const cache::Cache& cache, const ReportScope& scope);

/// One value of an axis, over several problems.
struct AxisValue {
  std::string axis, value;
  int wins = 0;    ///< problems whose winner has it
  int others = 0;  ///< problems whose winner has another value, and this one was tried instead
  std::optional<double>
      cost;  ///< median over these: time with this value over that with the winner's, less 1
};

/// In the order of the axes and of their values.
[[nodiscard]] std::vector<AxisValue> axis_values(std::span<const ReportedProblem* const> problems);

}  // namespace ce::cli
