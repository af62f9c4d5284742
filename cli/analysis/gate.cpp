#include "cli/analysis/gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/bounded_json.hpp"
#include "base/printable.hpp"
#include "ce/error.hpp"
#include "cli/known.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "tuner/key.hpp"

namespace ce::cli {
namespace {

/// A baseline's problem that was accepted as slower by more than this was accepted by mistake.
constexpr double most_accepted = 1000;

/// \throws InvalidArgument naming the entry and its field
std::pair<std::string, Accepted> accepted_in(const nlohmann::json& entry, const std::string& where) {
  const auto expect = [&](bool holds, const char* field, const std::string& expected) {
    if (holds) return;
    const auto found = entry.is_object() ? entry.find(field) : entry.end();
    const bool is_there = entry.is_object() && found != entry.end();
    throw InvalidArgument(where + (*field == '\0' ? "" : std::string(": ") + field),
                          is_there ? found->dump().substr(0, 80) : "missing", expected);
  };
  const auto text = [&](const char* field, const std::string& expected) {
    expect(entry.contains(field) && entry[field].is_string() && !entry[field].get<std::string>().empty(),
           field, expected);
    return entry[field].get<std::string>();
  };
  expect(entry.is_object(), "", "an object with key, with up_to or missing, and with why");
  Accepted accepted{.why = text("why", "the reason, in words")};
  const std::string key = text("key", "12 hexadecimal digits, as db list shows them");
  constexpr std::size_t digits = 12;
  expect(key.size() == digits && key.find_first_not_of("0123456789abcdef") == std::string::npos, "key",
         "12 hexadecimal digits, as db list shows them");
  if (entry.contains("missing")) {
    expect(entry["missing"].is_boolean(), "missing", "true or false");
    accepted.is_missing = entry["missing"].get<bool>();
  }
  if (entry.contains("up_to")) {
    expect(entry["up_to"].is_number(), "up_to",
           "1 or more: the largest ratio of the time after to the time before");
    accepted.up_to = entry["up_to"].get<double>();
    expect(1 <= accepted.up_to && accepted.up_to <= most_accepted, "up_to",
           "1 or more: the largest ratio of the time after to the time before");
  }
  expect(accepted.is_missing || entry.contains("up_to"), "up_to", "a ratio, or \"missing\": true");
  for (const auto& [field, value] : entry.items())
    if (field != "key" && field != "why" && field != "missing" && field != "up_to")
      throw InvalidArgument(fmt::format("{}: {}", where, field), "there", "only key, up_to, missing and why");
  return {key, std::move(accepted)};
}

/// \param byte  where reading ended, from 1
InvalidArgument no_json(std::string_view text, std::size_t byte, const std::string& name) {
  const std::string_view read = text.substr(0, std::max<std::size_t>(byte, 1) - 1);
  const std::size_t begin = read.rfind('\n') + 1;  // npos + 1 is 0
  const std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  return {fmt::format("{} line {}", name, 1 + std::count(read.begin(), read.end(), '\n')),
          in_quotes(line.substr(0, 80)), R"(JSON: {"accepted": [...]})"};
}

std::string ratio_text(const tuner::Comparison& winner) {
  return fmt::format("{:.3f} of the time before ({:.3f} .. {:.3f}, {} + {} runs)", winner.ratio,
                     winner.interval.low, winner.interval.high, winner.before, winner.after);
}

/// \param accepted  null if nothing was accepted
void judge(GatedProblem& problem, const Accepted* accepted, const std::string& why_not) {
  if (problem.finding == nullptr) {
    const bool passes = accepted != nullptr && accepted->is_missing;
    problem.result = passes ? GateResult::accepted : GateResult::not_compared;
    problem.text = "not compared: " + why_not + (passes ? "; accepted: " + accepted->why : "");
    return;
  }
  const tuner::Comparison& winner = problem.finding->finding.winner;
  if (winner.verdict == tuner::Verdict::slower) {
    const bool passes = accepted != nullptr && winner.ratio <= accepted->up_to;
    problem.result = passes ? GateResult::accepted : GateResult::slower;
    problem.text = slower_text(*problem.finding);
    if (passes)
      problem.text += fmt::format("; accepted up to {:.3f}: {}", accepted->up_to, accepted->why);
    else if (accepted != nullptr && accepted->up_to > 1)
      problem.text += fmt::format("; this is more than the accepted {:.3f}", accepted->up_to);
  } else if (winner.may_be_slower()) {
    const bool passes = accepted != nullptr && winner.narrow.high <= accepted->up_to;
    problem.result = passes ? GateResult::accepted : GateResult::unsure;
    problem.text = "may be slower: " + ratio_text(winner);
  } else {
    problem.result = GateResult::passed;
    problem.text = fmt::format("{}: {}", name(winner.verdict), ratio_text(winner));
  }
}

bool holds_up(GateResult result, bool unsure_pass) {
  return result == GateResult::slower || result == GateResult::not_compared ||
         (result == GateResult::unsure && !unsure_pass);
}

std::string in_xml(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

/// Escapes a property of a workflow command, or its message.
std::string in_command(std::string_view text, bool is_property) {
  std::string escaped;
  for (const char c : printable(text)) {
    if (c == '%')
      escaped += "%25";
    else if (is_property && c == ':')
      escaped += "%3A";
    else if (is_property && c == ',')
      escaped += "%2C";
    else
      escaped += c;
  }
  return escaped;
}

std::string count_text(const Gate& gate) {
  std::string text;
  for (const GateResult result : {GateResult::slower, GateResult::not_compared, GateResult::unsure,
                                  GateResult::accepted, GateResult::passed})
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", gate.count(result), name(result));
  if (gate.races_left_out > 0)
    text += fmt::format("; {} not compared (not repeated)", counted(gate.races_left_out, "race"));
  return text;
}

}  // namespace

std::string_view name(GateResult result) noexcept {
  switch (result) {
    case GateResult::passed: return "passed";
    case GateResult::accepted: return "accepted";
    case GateResult::slower: return "slower";
    case GateResult::unsure: return "unsure";
    case GateResult::not_compared: return "not compared";
  }
  return "?";
}

std::map<std::string, Accepted> read_accepted(std::string_view text, const std::string& name) {
  nlohmann::json document;
  try {
    document = parse_json<nlohmann::json>(text);
  } catch (const nlohmann::json::exception& error) {
    const auto* where = dynamic_cast<const nlohmann::json::parse_error*>(&error);
    throw no_json(text, where == nullptr ? 0 : where->byte, name);
  }
  if (!document.is_object() || document.size() != 1 || !document.contains("accepted") ||
      !document["accepted"].is_array())
    throw InvalidArgument(name, document.dump().substr(0, 80), R"({"accepted": [...]})");
  std::map<std::string, Accepted> all;
  std::size_t number = 0;
  for (const nlohmann::json& entry : document["accepted"]) {
    const std::string where = fmt::format("entry {} of {}", ++number, name);
    auto [key, accepted] = accepted_in(entry, where);
    if (!all.emplace(key, std::move(accepted)).second)
      throw InvalidArgument(where + ": key", key, "each key only once");
  }
  return all;
}

std::size_t Gate::count(GateResult result) const {
  return static_cast<std::size_t>(
      std::count_if(problems.begin(), problems.end(), [&](const auto& p) { return p.result == result; }));
}

bool Gate::compares_kernels() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const ProblemFinding& finding) { return !tuner::subject_of_race(finding.key); });
}

ExitCode Gate::code(bool unsure_pass) const {
  if (count(GateResult::slower) > 0) return ExitCode::regression;
  if (!compares_kernels() || count(GateResult::not_compared) > 0) return ExitCode::nothing_compared;
  if (count(GateResult::unsure) > 0 && !unsure_pass) return ExitCode::unsure_regression;
  return ExitCode::success;
}

Gate gate_of(const std::list<Case>& cases, const std::map<std::string, Accepted>& accepted) {
  Gate gate;
  gate.findings = findings_of(cases);
  std::map<std::string, const ProblemFinding*> findings;
  for (const ProblemFinding& finding : gate.findings) findings[finding.key.id()] = &finding;
  std::map<std::string, const Accepted*> unused;
  for (const auto& [key, one] : accepted) unused[key] = &one;
  for (const Case& one : cases) {
    const std::string id = one.key.id();
    const auto finding = findings.find(id);
    // No check times a race again: a missing race is not the change's fault.
    if (finding == findings.end() && tuner::subject_of_race(one.key)) {
      ++gate.races_left_out;
      continue;
    }
    const auto exception = accepted.find(id);
    GatedProblem problem{.key = one.key,
                         .title = one.title,
                         .finding = finding == findings.end() ? nullptr : finding->second,
                         .text = {}};
    // Foreign text must stay on one line: a runner executes commands on lines of their own.
    judge(problem, exception == accepted.end() ? nullptr : &exception->second, one.left_out);
    problem.text = printable(problem.text);
    if (problem.result == GateResult::accepted) unused.erase(id);
    gate.problems.push_back(std::move(problem));
  }
  for (const auto& [key, one] : unused)
    gate.notes.push_back(printable(
        fmt::format("{} is accepted ({}), but passes without that: remove it from the accepted problems", key,
                    one->why)));
  const auto rank = [](const GatedProblem& problem) {
    constexpr std::array order{GateResult::slower, GateResult::not_compared, GateResult::unsure,
                               GateResult::accepted, GateResult::passed};
    return std::tuple(std::find(order.begin(), order.end(), problem.result),
                      problem.finding == nullptr ? 0 : -problem.finding->finding.winner.ratio,
                      problem.key.device, problem.key.problem);
  };
  std::sort(gate.problems.begin(), gate.problems.end(),
            [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return gate;
}

Json json_of(const Gate& gate, bool unsure_pass) {
  Json problems = Json::array(), summary;
  for (const GatedProblem& problem : gate.problems)
    problems.push_back({{"key", problem.key.id()},
                        {"title", problem.title},
                        {"device", device_name_of(problem.key)},
                        {"result", name(problem.result)},
                        {"text", problem.text},
                        {"finding", problem.finding == nullptr ? Json() : json_of(*problem.finding)}});
  for (const GateResult result : {GateResult::slower, GateResult::not_compared, GateResult::unsure,
                                  GateResult::accepted, GateResult::passed})
    summary[result == GateResult::not_compared ? "not_compared" : std::string(name(result))] =
        gate.count(result);
  return {{"problems", problems},
          {"summary", summary},
          {"races_left_out", gate.races_left_out},
          {"notes", gate.notes},
          {"exit_code", static_cast<int>(gate.code(unsure_pass))}};
}

std::string text_of(const Gate& gate) {
  Table table({{.title = "PROBLEM", .least = 26},
               {.title = "DEVICE", .rank = 1, .least = 8},
               {"KEY"},
               {"RESULT"},
               {.title = "", .least = 24}});
  for (const GatedProblem& problem : gate.problems)
    if (problem.result != GateResult::passed)
      table.add({problem.title, device_name_of(problem.key), problem.key.id(),
                 std::string(name(problem.result)), problem.text});
  std::string text = table.empty() ? "" : table.text() + "\n";
  for (const std::string& note : gate.notes) text += note + "\n";
  return text + fmt::format("{}: {}\n", counted(std::ssize(gate.problems), "problem"), count_text(gate));
}

std::string junit_of(const Gate& gate, bool unsure_pass) {
  const std::size_t unsure = gate.count(GateResult::unsure);
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"ce-tune gate\" "
      "tests=\"{}\" "
      "failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n",
      gate.problems.size(), gate.count(GateResult::slower) + (unsure_pass ? 0 : unsure),
      gate.count(GateResult::not_compared), unsure_pass ? unsure : 0);
  for (const GatedProblem& problem : gate.problems) {
    text += fmt::format("<testcase classname=\"{}\" name=\"{} ({})\"", in_xml(device_name_of(problem.key)),
                        in_xml(problem.title), problem.key.id());
    const std::string words = in_xml(problem.text);
    switch (problem.result) {
      case GateResult::slower: text += fmt::format("><failure message=\"{}\"/></testcase>\n", words); break;
      case GateResult::not_compared:
        text += fmt::format("><error message=\"{}\"/></testcase>\n", words);
        break;
      case GateResult::unsure:
        text += fmt::format("><{} message=\"{}\"/></testcase>\n", unsure_pass ? "skipped" : "failure", words);
        break;
      case GateResult::accepted:
      case GateResult::passed: text += fmt::format("><system-out>{}</system-out></testcase>\n", words); break;
    }
  }
  return text + "</testsuite>\n</testsuites>\n";
}

std::string annotations_of(const Gate& gate, bool unsure_pass) {
  std::string text;
  for (const GatedProblem& problem : gate.problems) {
    const bool holds = holds_up(problem.result, unsure_pass);
    if (!holds && problem.result != GateResult::unsure) continue;
    const std::string title = fmt::format("{}: {}", name(problem.result), problem.title);
    text += fmt::format("::{} title={}::{}\n", holds ? "error" : "warning", in_command(title, true),
                        in_command(fmt::format("{} on {} (key {})", problem.text, device_name_of(problem.key),
                                               problem.key.id()),
                                   false));
  }
  for (const std::string& note : gate.notes)
    text += fmt::format("::warning title=ce-tune gate::{}\n", in_command(note, false));
  return text + fmt::format("::notice title=ce-tune gate::{}\n", in_command(count_text(gate), false));
}

}  // namespace ce::cli
