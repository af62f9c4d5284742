#pragma once
/// \file
/// Decides whether a change may pass: each problem in a baseline of this device must be compared, and must not be
/// slower, except where a person accepted that.

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/analysis/cases.hpp"
#include "cli/exit_codes.hpp"
#include "cli/json.hpp"

namespace ce::cli {

/// What a person accepted for one problem.
struct Accepted {
  double up_to = 1;         ///< largest ratio of the new time to the old one that passes
  bool is_missing = false;  ///< the problem need not be compared
  std::string why;
};

/// Accepted problems by the key's id. The text is {"accepted": [{"key", "up_to" and/or "missing": true, "why"}]}.
/// \param name  name of the text, for messages
/// \throws InvalidArgument naming the entry and its field
[[nodiscard]] std::map<std::string, Accepted> read_accepted(std::string_view text, const std::string& name);

enum class GateResult : std::uint8_t {
  passed,        ///< compared, and not slower
  accepted,      ///< slower or not compared, but accepted
  slower,        ///< beyond what was accepted
  unsure,        ///< may be slower: there are too few runs
  not_compared,  ///< must be compared, and could not be
};

[[nodiscard]] std::string_view name(GateResult result) noexcept;

struct GatedProblem {
  cache::Key key;
  std::string title;
  GateResult result = GateResult::passed;
  const ProblemFinding* finding = nullptr;  ///< null if it was not compared
  std::string text;                         ///< in words
};

struct Gate {
  std::vector<ProblemFinding> findings;
  std::vector<GatedProblem> problems;  ///< those that fail the gate come first
  std::vector<std::string> notes;      ///< on accepted problems that need no acceptance any more
  std::int64_t races_left_out = 0;     ///< races that were not repeated, which a check never does

  Gate() = default;
  Gate(const Gate&) = delete;  // the problems point into the findings
  Gate& operator=(const Gate&) = delete;
  Gate(Gate&&) = default;
  Gate& operator=(Gate&&) = default;

  [[nodiscard]] std::size_t count(GateResult result) const;
  /// Whether any kernel was compared: a gate that compared only races does not pass.
  [[nodiscard]] bool compares_kernels() const;
  /// ExitCode::regression if anything is slower; else nothing_compared if a required problem was not compared, or no
  /// kernel was; else unsure_regression, unless unsure problems pass; else success.
  [[nodiscard]] ExitCode code(bool unsure_pass) const;
};

/// \param cases  exactly the problems that must be compared
[[nodiscard]] Gate gate_of(const std::list<Case>& cases, const std::map<std::string, Accepted>& accepted);

[[nodiscard]] Json json_of(const Gate& gate, bool unsure_pass);
[[nodiscard]] std::string text_of(const Gate& gate);
/// JUnit's XML: a test case for each problem.
[[nodiscard]] std::string junit_of(const Gate& gate, bool unsure_pass);
/// GitHub's workflow commands: an error or a warning for each problem that fails the gate, and a notice with the
/// counts.
[[nodiscard]] std::string annotations_of(const Gate& gate, bool unsure_pass);

}  // namespace ce::cli
