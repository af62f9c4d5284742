#pragma once
/// \file
/// Selects the populations to compare.

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cli/analysis/findings.hpp"
#include "cli/analysis/populations.hpp"

namespace ce::cli {

/// The populations of one problem. They point into the measurements: a Case can be moved, but not copied.
struct Case {
  cache::Key key;
  std::string title;
  std::vector<cache::Measurement> measurements;  ///< those in this database
  std::vector<cache::Measurement> others;        ///< those in another database
  std::vector<tuner::Population> older, newer;   ///< the last one of each is the newest
  tuner::NoisePool noise{};                      ///< noise of all populations
  std::string left_out{};                        ///< why nothing is compared, in words
};

/// Computes the populations' figures, and keeps only the runs that are compared: all measurements of a large database
/// would be gigabytes.
void condense(Case& problem);

/// Compares the newest newer population with the newest older one with equal rows, if there are both. The noise is that
/// of all populations of a device. The cases must be condensed. Slower ones come first, see sort_by_verdict().
[[nodiscard]] std::vector<ProblemFinding> findings_of(const std::list<Case>& cases);

/// The cases of all problems in the database: the newest software against older software.
[[nodiscard]] std::list<Case> cases_by_software(const cache::Cache& cache);
/// The case of one problem.
[[nodiscard]] Case case_by_software(const cache::Cache& cache, const cache::Key& key);

/// The case of each key. `choose` gets it with the database's measurements, selects its populations and condenses it.
[[nodiscard]] std::list<Case> cases_of_keys(const cache::Cache& cache, const std::vector<cache::Key>& keys,
                                            const std::function<void(Case&)>& choose);

/// Cases that compare measurements in this database only with the newest in the other one.
[[nodiscard]] std::list<Case> cases_against(const cache::Cache& cache, const cache::Cache& other);

/// Cases for keys of a baseline: measurements that the database has made since the baseline was made.
[[nodiscard]] std::list<Case> cases_since(const cache::Cache& cache, const cache::Cache& baseline,
                                          const std::vector<cache::Key>& keys);

/// The winners of a database that are slower with its newest software than before, as in `regressions`.
class SlowerWinners {
 public:
  explicit SlowerWinners(const cache::Cache& cache) : SlowerWinners(cases_by_software(cache)) {}
  /// \param cases  from cases_by_software()
  explicit SlowerWinners(const std::list<Case>& cases);
  /// Null if the winner is not known to be slower.
  [[nodiscard]] const ProblemFinding* find(const cache::Key& key) const;

 private:
  std::map<std::string, ProblemFinding> slower_;  ///< by id
};

/// The reasons why problems have no finding, with the number of problems for each.
[[nodiscard]] std::map<std::string, std::size_t> left_out_of(const std::list<Case>& cases);

}  // namespace ce::cli
