#pragma once
/// \file
/// Whether a change may pass: what a baseline has of this device must be compared and not be slower, but for what people
/// accepted.

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

/// What people accepted of one problem.
struct Accepted {
  double up_to = 1;         ///< the time after over the time before that passes
  bool is_missing = false;  ///< it need not be compared
  std::string why;
};

/// By the key's id. The text is {"accepted": [{"key", "up_to" and/or "missing": true, "why"}]}.
/// \param name  of the text, for messages
/// \throws InvalidArgument naming the entry and its field
[[nodiscard]] std::map<std::string, Accepted> read_accepted(std::string_view text, const std::string& name);

enum class GateResult : std::uint8_t {
  passed,        ///< compared, and not slower
  accepted,      ///< slower, or not compared, as people accepted
  slower,        ///< beyond what was accepted
  unsure,        ///< may be slower: there are too few runs to say
  not_compared,  ///< must be, and could not be
};

[[nodiscard]] std::string_view name(GateResult result) noexcept;

struct GatedProblem {
  cache::Key key;
  std::string title;
  GateResult result = GateResult::passed;
  const ProblemFinding* finding = nullptr;  ///< null where it was not compared
  std::string text;                         ///< in words
};

struct Gate {
  std::vector<ProblemFinding> findings;
  std::vector<GatedProblem> problems;  ///< those that hold it up first
  std::vector<std::string> notes;      ///< on what was accepted and need not be any more
  std::int64_t races_left_out = 0;     ///< that were not made again, which is nothing that a check does

  Gate() = default;
  Gate(const Gate&) = delete;  // the problems point into the findings
  Gate& operator=(const Gate&) = delete;
  Gate(Gate&&) = default;
  Gate& operator=(Gate&&) = default;

  [[nodiscard]] std::size_t count(GateResult result) const;
  /// Whether any kernel was: a gate that compared nothing else than races does not pass.
  [[nodiscard]] bool compares_kernels() const;
  /// ExitCode::regression where anything is slower; else nothing_compared where something that must be was not, or
  /// no kernel was; else unsure_regression, unless those pass; else success.
  [[nodiscard]] ExitCode code(bool unsure_pass) const;
};

/// \param cases  all that must be compared, and no more
[[nodiscard]] Gate gate_of(const std::list<Case>& cases, const std::map<std::string, Accepted>& accepted);

[[nodiscard]] Json json_of(const Gate& gate, bool unsure_pass);
[[nodiscard]] std::string text_of(const Gate& gate);
/// JUnit's XML: a test case for each problem.
[[nodiscard]] std::string junit_of(const Gate& gate, bool unsure_pass);
/// GitHub's workflow commands: an error or a warning for each problem that holds the gate up, and a notice of the count.
[[nodiscard]] std::string annotations_of(const Gate& gate, bool unsure_pass);

}  // namespace ce::cli
