#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cache/store.hpp"
#include "ce/error.hpp"
#include "cli/analysis/cases.hpp"
#include "cli/analysis/nodes.hpp"
#include "cli/analysis/populations.hpp"
#include "cli/analysis/retime.hpp"
#include "cli/commands.hpp"
#include "cli/commands/timing_process.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/interruption.hpp"
#include "cli/known.hpp"
#include "cli/options.hpp"
#include "cli/progress.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"
#include "tuner/key.hpp"
#include "tuner/strategy.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;

constexpr const char* check_notes =
    "\ncheck times each winner now, in turns with the runner-up and with a kernel that never changes, and "
    "compares it with\nits earlier measurements. The database keeps the new times, but they do not choose "
    "winners. Problems that move the\nmost bytes come first; kernels that do not fill the device come last, "
    "each in its own process.\n"
    "\nExamples:\n"
    "  ce-tune check --budget 2m              after a change of driver: is everything as fast as it was?\n"
    "  ce-tune check --top 20 --runs 5        more runs see smaller effects\n"
    "  ce-tune check --retune                 and repeat the final if the runner-up is faster than the "
    "winner\n";

/// Most configs of a repeated final.
constexpr std::size_t most_contenders = 8;

/// Largest factor on the number of launches of short kernels in a final: the address of a run's buffers matters more
/// than the scatter of launches.
constexpr int most_times_as_many_launches = 4;

struct CheckOptions {
  CommonOptions common;
  TuningOptions tuning;
  std::string top, budget, runs, against;
  bool retune = false, all = false;
};

std::vector<tuner::Run> runs_of(const std::vector<Measurement>& measurements) {
  std::vector<const Measurement*> pointers;
  pointers.reserve(measurements.size());
  for (const Measurement& measurement : measurements) pointers.push_back(&measurement);
  return tuner::to_runs(pointers);
}

/// A problem with a known winner, and its new times.
struct Checked {
  Known known;
  tuner::Noise noise;          ///< noise of the device, from all problems in the database
  int runs = 1;                ///< number of runs to make
  bool more_if_noisy = false;  ///< more runs if the noise is higher than expected; see choose_runs()
  bool in_processes = false;   ///< each run is made by a process of its own
  std::vector<Measurement> winner, second;  ///< times of the winner and of the second config, if there is one
  bool retuned = false;

  [[nodiscard]] const std::vector<tuner::Candidate>& ranking() const {
    return known.decision.value().ranking;
  }
  /// The second compared with the winner; nothing if there is no second.
  [[nodiscard]] std::optional<tuner::Comparison> rivalry() const {
    if (second.empty()) return std::nullopt;
    return tuner::compare(runs_of(winner), runs_of(second), noise);
  }
  [[nodiscard]] bool is_beaten() const {
    const auto found = rivalry();
    return found && found->verdict == tuner::Verdict::faster;
  }
};

/// The problems of the device, without ceilings: those that move the most bytes come first, but those that are timed in
/// processes come last.
std::vector<Checked> problems_to_check(const cache::Cache& cache, const runtime::Model& model,
                                       std::size_t most) {
  std::vector<Checked> found;
  tuner::NoisePool pool;
  for (const cache::KeySummary& summary : cache.keys()) {
    if (summary.key.device != model.key()) continue;
    Known known(cache, summary.key);
    pool.add(tuner::populations_of(known.measurements));
    if (!known.problem || generator::is_ceiling(known.problem->operation)) continue;
    if (!tuner::has_final(known.decision)) continue;
    Checked& problem = found.emplace_back(Checked{.known = std::move(known)});
    // A process only finds compiled kernels in the file.
    problem.in_processes =
        cache.status().persistent && !tuner::fills_device(problem.ranking().front().measurement);
  }
  std::stable_sort(found.begin(), found.end(), [](const Checked& a, const Checked& b) {
    return a.ranking().front().measurement.bytes > b.ranking().front().measurement.bytes;
  });
  if (found.size() > most) found.erase(found.begin() + static_cast<std::ptrdiff_t>(most), found.end());
  // While the process of a round runs, this one times nothing: each would be another user of the GPU to the other.
  std::stable_partition(found.begin(), found.end(),
                        [](const Checked& problem) { return !problem.in_processes; });
  const tuner::Noise noise = pool.noise();
  for (Checked& problem : found) problem.noise = noise;
  return found;
}

/// Short kernels need more samples.
void choose_runs(std::vector<Checked>& problems) {
  for (Checked& problem : problems) {
    problem.runs = problem.in_processes
                       ? tuner::fewest_runs_to_make
                       : tuner::runs_to_make(problem.ranking().front().measurement.median_us, problem.noise);
    problem.more_if_noisy = true;
  }
}

class Checker {
 public:
  Checker(runtime::Device& device, cache::Cache& cache, const TuningOptions& options,
          const tuner::Settings& settings, TuningRun& run)
      : samples_(settings.search.final_samples),
        options_(options),
        device_(device),
        cache_(cache),
        retimer_(device, cache, settings),
        run_(run) {}

  /// Times every problem once before any of them twice, so that its runs are spread over time.
  /// \returns number of problems that were not reached
  std::size_t check(std::vector<Checked>& problems, double budget_s) {
    std::size_t reached = 0;
    for (int number = 0, most = 1; number < most; ++number) {
      std::optional<TimingProcess> process;  // the timing process of this round
      if (number == 1) display_.begin(1, 1, "further runs");
      if (number > 0) display_.update({.stage = "run", .done = number + 1, .total = most});
      for (std::size_t i = 0; i < problems.size(); ++i) {
        Checked& problem = problems[i];
        if (number >= problem.runs) continue;
        if (seconds() > budget_s) return problems.size() - reached;
        reached = std::max(reached, i + 1);
        if (number == 0) display_.begin(i + 1, problems.size(), problem.known.title());
        if (!time(problem, 2, cache::stage_of_checks, number == 0 ? hooks_ : quiet_hooks_,
                  problem.in_processes ? &process : nullptr))
          return problems.size() - reached;
        if (problem.more_if_noisy && number + 1 == problem.runs)
          problem.runs = std::max(problem.runs, tuner::runs_to_make(runs_of(problem.winner)));
        most = std::max(most, problem.runs);
      }
    }
    return 0;
  }

  /// Repeats the finals of problems whose second config is faster than the winner.
  void retune(std::vector<Checked>& problems) {
    for (Checked& problem : problems) {
      if (!problem.is_beaten()) continue;
      display_.begin(1, 1, problem.known.title());
      problem.retuned = time(problem, most_contenders, cache::stage_of_finals, hooks_, nullptr);
    }
  }

 private:
  /// Times the first configs of the ranking in turns, and stores the results. An error is stored in the run, and the
  /// problem gets no further runs.
  /// \param process  does the timing, and is started if needed; none for this process
  /// \returns whether to go on
  bool time(Checked& checked, std::size_t most, int stage, const tuner::Hooks& hooks,
            std::optional<TimingProcess>* process) {
    const cache::Key& key = checked.known.key;  // even if fewer rows than the problem's are timed
    const Measurement& best = checked.ranking().front().measurement;
    generator::Problem problem = *checked.known.problem;
    problem.rows = best.rows;
    std::vector<generator::Config> configs;
    for (const tuner::Candidate& candidate : checked.ranking())
      if (configs.size() < most) configs.push_back(candidate.config);
    std::optional<Failure> failure;
    const bool go_on = attempt(failure, [&] {
      const int times = std::min(most_times_as_many_launches / tuner::launches_a_sample(best.median_us),
                                 tuner::times_as_many(best.median_us));
      const int samples = times * samples_, a_turn = times * tuner::samples_a_turn;
      if (process != nullptr && !*process) process->emplace(device_, cache_, options_);
      std::vector<Measurement> measurements =
          process != nullptr
              ? (*process)->time_beside(key, problem, configs, samples, a_turn, hooks.stop)
              : retimer_.time_beside(key, problem, configs, samples, a_turn, hooks).measurements;
      for (Measurement& measurement : measurements) measurement.stage = stage;
      cache_.add(measurements);
      if (hooks.progress)
        display_.finish(fmt::format("{}: {}", checked.known.title(), time_text(measurements[0].median_us)));
      if (stage == cache::stage_of_checks) {
        if (measurements.size() > 1) checked.second.push_back(std::move(measurements[1]));
        checked.winner.push_back(std::move(measurements[0]));
      }
    });
    if (failure) give_up(checked, *failure, process, go_on);
    return go_on;
  }

  void give_up(Checked& checked, const Failure& failure, std::optional<TimingProcess>* process, bool go_on) {
    display_.finish(fmt::format("{}: {}", checked.known.title(), failure.fields.at("message")));
    checked.runs = 0;
    if (process != nullptr) process->reset();  // it may have died
    if (!run_.failure || !go_on) run_.failure = failure;
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - run_.start).count();
  }

  int samples_;
  const TuningOptions& options_;
  runtime::Device& device_;
  cache::Cache& cache_;
  tuner::Retimer retimer_;
  TuningRun& run_;
  ProgressDisplay display_{Screen::standard_error()};
  LogThroughDisplay logging_{display_};
  Interruption interruption_{[this] { display_.note("ce-tune: stopping"); }};
  tuner::Hooks hooks_{.progress = [this](const tuner::Progress& progress) { display_.update(progress); },
                      .stop = interruption_.token()};
  tuner::Hooks quiet_hooks_{.stop = interruption_.token()};
};

/// Compares measurements from `started` on with earlier ones. Problems that were not checked contribute to the noise.
std::vector<ProblemFinding> findings_since(const cache::Cache& cache, const runtime::Model& model,
                                           const std::string& started) {
  const auto is_now = [&](const Measurement& m) {
    return m.stage == cache::stage_of_checks && m.created_at >= started;
  };
  const auto is_before = [&](const Measurement& m) { return m.created_at < started; };
  std::list<Case> cases;
  for (const cache::KeySummary& summary : cache.keys()) {
    if (summary.key.device != model.key()) continue;
    Case& problem = cases.emplace_back(Case{.key = summary.key, .title = title_of(summary.key)});
    problem.measurements = cache.history(problem.key);
    problem.newer = tuner::populations_of(problem.measurements, is_now);
    problem.older = tuner::populations_of(problem.measurements, is_before);
    condense(problem);
  }
  return findings_of(cases);
}

std::string rivals_text(const std::vector<Checked>& problems) {
  std::string text;
  for (const Checked& problem : problems)
    if (problem.is_beaten())
      text += fmt::format("\n{}: {} takes {:.3f} of the time of the winner, {}{}\n", problem.known.key.id(),
                          problem.ranking()[1].text(), problem.rivalry()->ratio, problem.ranking()[0].text(),
                          problem.retuned ? "; the final was repeated" : " (--retune repeats the final)");
  return text;
}

Json json_of_rivals(const std::vector<Checked>& problems) {
  Json list = Json::array();
  for (const Checked& problem : problems)
    if (const auto rivalry = problem.rivalry())
      list.push_back({{"key", problem.known.key.id()},
                      {"winner", problem.ranking()[0].text()},
                      {"second", problem.ranking()[1].text()},
                      {"ratio", rivalry->ratio},
                      {"interval", {rivalry->interval.low, rivalry->interval.high}},
                      {"beaten", problem.is_beaten()},
                      {"retuned", problem.retuned}});
  return list;
}

int count_in(const char* option, const std::string& text, int usual) {
  constexpr std::int64_t most = 1'000'000;
  return text.empty() ? usual : static_cast<int>(parse_count(option, text, 1, most));
}

/// Races of the device; only the calls that need them repeat them.
std::int64_t races_on(const cache::Cache& cache, const runtime::Model& model) {
  const std::vector<cache::KeySummary> keys = cache.keys();
  return std::ranges::count_if(keys, [&](const cache::KeySummary& summary) {
    return summary.key.device == model.key() && tuner::subject_of_race(summary.key);
  });
}

std::string races_text(std::int64_t races) {
  return races == 0 ? "" : counted(races, "race") + " not checked: only the calls that need a race time it\n";
}

Failure unreached(std::size_t problems, const std::string& budget) {
  return {
      .code = ExitCode::out_of_budget,
      .fields = {{"kind", "out of budget"},
                 {"message", fmt::format("{} not reached within --budget {}",
                                         counted(static_cast<std::int64_t>(problems), "problem"), budget)}}};
}

/// \param found, failed  the exit codes of the comparison and of the run
ExitCode decisive(ExitCode found, ExitCode failed) {
  return found == ExitCode::regression || failed == ExitCode::success ? found : failed;
}

/// Compares this GPU's new times with those of other GPUs.
ExitCode tell_against_fleet(const CheckOptions& options, const TuningRun& run, const cache::Cache& cache,
                            const std::string& started, std::size_t left_out, std::int64_t races) {
  const std::string own = gpu_of(run.environment);
  Fleet fleet = fleet_of(cache, [&](const Measurement& measurement) {
    return gpu_of(measurement.environment) != own || measurement.created_at >= started;
  });
  std::erase_if(fleet.nodes, [&](const Node& node) { return node.gpu != own; });
  std::erase_if(fleet.alone, [&](const std::string& gpu) { return gpu != own; });
  if (options.common.json) {
    Json document = json_of(run);
    document.update(json_of(fleet));
    document["not_reached"] = left_out;
    document["races_left_out"] = races;
    if (run.failure) document["error"] = json_of(*run.failure);
    print(document);
  } else {
    print_text("{}{}", text_of(fleet, true), races_text(races));
  }
  const ExitCode found = exit_code_of(fleet), failed = verdict(run, "what was measured", "");
  return decisive(found, failed);
}

ExitCode check(const CheckOptions& options) {
  if (!options.against.empty() && options.against != "fleet")
    throw InvalidArgument("--against", in_quotes(options.against), "fleet");
  const int top = count_in("--top", options.top, std::numeric_limits<int>::max());
  const double budget_s = options.budget.empty() ? std::numeric_limits<double>::infinity()
                                                 : parse_duration("--budget", options.budget);
  cache::Cache cache = open_database(options.common);
  require_record(cache, options.tuning);
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  const int runs = count_in("--runs", options.runs, 1);
  const tuner::Settings settings = settings_of(options.tuning, device->model());
  require_compiler(*device);

  TuningRun run = begin_run(*device);
  const std::string started = utc_now();
  std::vector<Checked> problems = problems_to_check(cache, device->model(), static_cast<std::size_t>(top));
  if (options.runs.empty() && !device->model().is_host())
    choose_runs(problems);
  else
    for (Checked& problem : problems) problem.runs = runs;
  std::size_t left_out = 0;
  {
    Checker checker(*device, cache, options.tuning, settings, run);
    left_out = checker.check(problems, budget_s);
    if (options.retune && !run.failure) checker.retune(problems);
  }
  end_run(run, cache);
  if (left_out > 0 && !run.failure) run.failure = unreached(left_out, options.budget);

  const std::int64_t races = races_on(cache, device->model());
  if (!options.against.empty()) return tell_against_fleet(options, run, cache, started, left_out, races);
  const std::vector<ProblemFinding> findings = findings_since(cache, device->model(), started);
  if (options.common.json) {
    Json document = json_of(run);
    document.update(json_of(findings));
    document["rivals"] = json_of_rivals(problems);
    document["not_reached"] = left_out;
    document["races_left_out"] = races;
    if (run.failure) document["error"] = json_of(*run.failure);
    print(document);
  } else {
    const std::string again = fmt::format("ce-tune regressions --since {}", started);
    print_text("{}{}{}", text_of(findings, options.all, again), rivals_text(problems), races_text(races));
  }
  const ExitCode found = exit_code_of(findings), failed = verdict(run, "what was measured", "");
  return decisive(found, failed);
}

}  // namespace

void add_check(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Time the winners again: are they as fast as they were?");
  command->footer(check_notes);
  command->add_option("--top", options->top, "Only the N problems that move the most bytes")->type_name("N");
  command
      ->add_option("--budget", options->budget, "Start nothing new after this time, such as 90s, 10m or 1.5h")
      ->type_name("TIME");
  command
      ->add_option(
          "--runs", options->runs,
          fmt::format("Runs of each problem (default: {} to {}, more for short kernels, and up to {} "
                      "processes\nfor kernels that do not fill the device; 1 on the host)",
                      tuner::fewest_runs_to_make, tuner::most_runs_to_make, tuner::most_processes_to_make))
      ->type_name("N");
  command->add_flag("--retune", options->retune,
                    "Repeat the final of the best 8 configs if the runner-up is faster than the winner");
  command->add_flag("--all", options->all, "Also list the problems that are as fast as before");
  command
      ->add_option("--against", options->against,
                   "fleet: compare this GPU with the others of its model in the database, instead of with "
                   "its\nown past")
      ->type_name("fleet");
  add_timing_options(*command, options->tuning);
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, &chosen] { chosen = [options] { return check(*options); }; });
}

}  // namespace ce::cli
