#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "cli/analysis/retime.hpp"
#include "cli/commands.hpp"
#include "cli/commands/bench_result.hpp"
#include "cli/commands/suite.hpp"
#include "cli/interruption.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/problem_options.hpp"
#include "cli/progress.hpp"
#include "cli/say.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr const char* notes =
    "\nSuites:\n"
    "  widths    128 to 262144 columns; the number of rows is the largest power of two with which the logits "
    "take\n            1 GiB at most, so each problem takes half a GiB to one GiB\n"
    "  vocab     8192 rows of the vocabularies of language models; softmax and cross entropy with gradient,\n"
    "            f32 and bf16\n"
    "  few-rows  1, 8, 32 and 64 rows of 32000, 128256 and 262144 columns, beside a bound:\n"
    "            1.4 x bytes / ceiling of 1 GiB + 3 x launch floor. The launch floor is the time of a kernel "
    "that\n"
    "            reads one row of 128 columns, measured in the same way.\n"
    "--op, --dtype, --rows and --cols override the suite.\n"
    "Without --op, widths and few-rows time softmax, log_softmax, the backward operations of both, the "
    "loss\nalone, loss and gradient, and cross_entropy_backward.\n"
    "\nExamples:\n"
    "  ce-tune bench --plot widths.svg\n"
    "  ce-tune bench --suite vocab --json > vocab.json\n"
    "  ce-tune bench --suite few-rows --op cross_entropy --loss-only --dtype bf16\n"
    "  ce-tune bench --op softmax --dtype f32 --rows 8 --cols 64,128 --device host --db my.db\n"
    "\n"
    "bench first tunes a problem without a known winner. Then it times the winner in turns with the ceiling: "
    "the fastest\nkernel that only moves as many bytes in the same way. It prints these times, and does not "
    "keep them in the\ndatabase.\n";

struct BenchOptions {
  CommonOptions common;
  ProblemOptions problems;
  TuningOptions tuning;
  std::string suite, samples, plot;
};

int samples_of(const BenchOptions& options, const runtime::Model& model) {
  if (options.samples.empty()) return model.is_host() ? 5 : 30;
  return static_cast<int>(parse_count("--samples", options.samples, 1, most_samples));
}

class Bencher {
 public:
  Bencher(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings, BenchResult& result)
      : tuner_(device, cache, settings), retimer_(device, cache, settings), result_(result) {}

  void run(const std::vector<generator::Problem>& problems, bool bounded) {
    if (bounded) result_.launch_floor_us = retimer_.launch_floor_us(result_.samples);
    for (const generator::Problem& problem : problems) {
      BenchedProblem& benched = result_.problems.emplace_back(BenchedProblem{problem, tuner_.key(problem)});
      display_.begin(result_.problems.size(), problems.size(), generator::title(problem));
      const bool go_on = time(benched);
      display_.finish(finished_line(benched));
      if (benched.failure && (!result_.run.failure || !go_on)) result_.run.failure = benched.failure;
      if (!go_on) return;
    }
  }

 private:
  /// An error is stored in the result. \returns whether to go on with the next problem
  bool time(BenchedProblem& benched) {
    return attempt(benched.failure, [&] {
      const generator::Config winner = winner_of(benched);
      benched.timing = retimer_.time(benched.problem, winner, result_.samples, hooks_);
      if (result_.launch_floor_us > 0) benched.bound_us = bound_us(*benched.timing);
    });
  }

  /// The winner of an earlier search, or of a new one.
  generator::Config winner_of(BenchedProblem& benched) {
    const auto known = tuner_.known_winner(benched.problem);
    if (tuner::has_final(known)) return known->winner.config;
    const tuner::Report report = tuner_.tune(benched.problem, hooks_);
    benched.tuned = report.tried > report.known;
    return report.winner;
  }

  double bound_us(const tuner::Retiming& timing) {
    const double ceiling_gbs = tuner_.ceiling(timing.problem, hooks_);
    return 1.4 * static_cast<double>(timing.winner.bytes) / ceiling_gbs * 1e-3 + 3 * result_.launch_floor_us;
  }

  tuner::Tuner tuner_;
  tuner::Retimer retimer_;
  BenchResult& result_;
  ProgressDisplay display_{Screen::standard_error()};
  LogThroughDisplay logging_{display_};
  Interruption interruption_{
      [this] { display_.note("ce-tune: stopping after this kernel; interrupt again to stop at once"); }};
  tuner::Hooks hooks_{.progress = [this](const tuner::Progress& progress) { display_.update(progress); },
                      .stop = interruption_.token()};
};

ExitCode bench(const BenchOptions& options, const std::string& command_line) {
  const Suite suite = options.suite.empty() ? Suite::widths : parse_suite(options.suite);
  const std::vector<generator::Problem> problems = problems_of(suite, options.problems);
  const std::filesystem::path path = database_path(options.common);
  const std::unique_ptr<runtime::Device> device = open_device(options.common);
  const tuner::Settings settings = settings_of(options.tuning, device->model());
  require_compiler(*device);
  BenchResult result{.asked = problems.size(),
                     .suite = std::string(name(suite)),
                     .command = command_line,
                     .samples = samples_of(options, device->model()),
                     .run = begin_run(*device)};
  if (!options.plot.empty()) require_output("--plot", options.plot, options.common.json);
  cache::Cache cache = cache::Cache::open(path);
  require_record(cache, options.tuning);

  Bencher(*device, cache, settings, result).run(problems, suite == Suite::few_rows);
  end_run(result.run, cache);
  const bool any = std::any_of(result.problems.begin(), result.problems.end(),
                               [](const BenchedProblem& benched) { return benched.timing.has_value(); });
  if (!options.plot.empty() && any)
    write_output("--plot", options.plot, [&](std::ostream& file) { file << svg_of(plot_of(result)); });
  if (options.common.json)
    print(json_of(result));
  else
    print_text("{}", text_of(result));
  return verdict(result.run, "what was tuned", "; the times are not kept");
}

}  // namespace

void add_bench(CLI::App& app, Action& chosen, const std::string& command_line) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Time the winners now, and compare them with the memory's ceiling");
  command->footer(notes);
  command->add_option("--suite", options->suite, "widths, vocab or few-rows (default: widths)")
      ->type_name("WORD");
  add_problem_options(*command, options->problems);
  command
      ->add_option("--samples", options->samples,
                   "Samples of each winner and ceiling (default: 30; 5 on the host)")
      ->type_name("N");
  command->add_option("--plot", options->plot, "Draw GB/s over the columns into an SVG file")
      ->type_name("FILE");
  add_tuning_options(*command, options->tuning);
  add_device_option(*command, options->common);
  add_database_option(*command, options->common);
  add_json_option(*command, options->common);
  add_wide_option(*command);
  command->callback([options, command_line, &chosen] {
    chosen = [options, command_line] { return bench(*options, command_line); };
  });
}

}  // namespace ce::cli
