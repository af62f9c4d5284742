#pragma once
/// \file
/// What is compared with what.

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/analysis/findings.hpp"
#include "cli/analysis/populations.hpp"

namespace ce::cli {

/// One problem. The populations point into the measurements: it is moved, but not copied.
struct Case {
  cache::Key key;
  std::string title;
  std::vector<cache::Measurement> measurements;  ///< of this database
  std::vector<cache::Measurement> others;        ///< of another one
  std::vector<tuner::Population> older, newer;   ///< the newest of each last
  tuner::NoisePool noise{};                      ///< of all populations
  std::string left_out{};                        ///< why nothing is compared, in words
};

/// Notes what the populations say, and keeps of the measurements only the runs that are compared: of a large database all
/// would be gigabytes.
void condense(Case& problem);

/// The newest of the newer held against the newest of the older that were timed on as many rows, where there are
/// both; the noise is that of all populations of a device. Of cases that were condensed. Slower ones first, see sort_by_verdict().
[[nodiscard]] std::vector<ProblemFinding> findings_of(const std::list<Case>& cases);

/// Each problem of the database, its newest software against what was before.
[[nodiscard]] std::list<Case> cases_by_software(const cache::Cache& cache);
/// The same of one problem.
[[nodiscard]] Case case_by_software(const cache::Cache& cache, const cache::Key& key);

/// What only this database has against the newest that the other one knows.
[[nodiscard]] std::list<Case> cases_against(const cache::Cache& cache, const cache::Cache& other);

/// Of these keys of a baseline, what the database has measured since the baseline was made.
[[nodiscard]] std::list<Case> cases_since(const cache::Cache& cache, const cache::Cache& baseline,
                                          const std::vector<cache::Key>& keys);

/// The winners of a database that are slower with its newest software than before, as `regressions` finds them.
class SlowerWinners {
 public:
  explicit SlowerWinners(const cache::Cache& cache) : SlowerWinners(cases_by_software(cache)) {}
  /// \param cases  as cases_by_software() has them
  explicit SlowerWinners(const std::list<Case>& cases);
  /// Null where nothing says that it is slower.
  [[nodiscard]] const ProblemFinding* find(const cache::Key& key) const;

 private:
  std::map<std::string, ProblemFinding> slower_;  ///< by id
};

/// Why problems have no finding, in words, and how many for each reason.
[[nodiscard]] std::map<std::string, std::size_t> left_out_of(const std::list<Case>& cases);

}  // namespace ce::cli
