#include "cli/commands/timing_process.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "base/time.hpp"
#include "cache/export.hpp"
#include "cache/store.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "cli/analysis/retime.hpp"
#include "cli/commands/conversation.hpp"
#include "generator/source.hpp"

namespace ce::cli {
namespace {

using cache::Measurement;
using runtime::cuda::Transfer;

/// The process's device, database and reference, kept from job to job.
struct Timer {
  explicit Timer(const Json& job)
      : device(ce::open_device(job.at("device").get<std::string>())),
        cache(cache::Cache::open(path_in(job.at("database")))),
        retimer(*device, cache,
                settings_of({.configs = {}, .scratch = job.at("scratch"), .strategy = {}, .samples = {}},
                            device->model())) {}

  std::unique_ptr<runtime::Device> device;
  cache::Cache cache;
  tuner::Retimer retimer;
};

/// The parent has the device open, too, and waits: it must not count as another user of the device, which would be a
/// doubt.
void leave_out_parent(cache::Environment& environment) {
  const auto known = environment.find("compute_processes");
  if (known == environment.end()) return;
  if (const int processes = std::atoi(known->second.c_str()); processes > 1)
    environment["compute_processes"] = fmt::to_string(processes - 1);
}

}  // namespace

TimingProcess::TimingProcess(const runtime::Device& device, const cache::Cache& cache,
                             const TuningOptions& options, const std::filesystem::path& program)
    : device_(device), cache_(cache), options_(options), process_(program, timing_worker_argument) {}

std::vector<Measurement> TimingProcess::time_beside(const cache::Key& key, const generator::Problem& problem,
                                                    std::span<const generator::Config> configs, int samples,
                                                    int a_turn, const std::stop_token& stop) {
  std::vector<std::string> texts;
  for (const generator::Config& config : configs) texts.push_back(generator::to_text(config));
  runtime::cuda::Channel& channel = process_.channel();
  const std::stop_callback stopping(stop, [&] { channel.shut_down(); });
  Transfer transfer = send(channel, {{"device", device_.name()},
                                     {"database", path_words(cache_.status().path)},
                                     {"scratch", options_.scratch},
                                     {"key", {key.problem, key.device}},
                                     {"problem", generator::key_text(problem)},
                                     {"rows", problem.rows},
                                     {"configs", texts},
                                     {"samples", samples},
                                     {"a_turn", a_turn}});
  std::optional<Json> answer;
  if (transfer == Transfer::done) answer = receive(channel, transfer);
  if (stop.stop_requested())
    throw Error(ErrorKind::interrupted, "stopped on request; what was measured is kept");
  if (!answer)
    throw Error(ErrorKind::device, fmt::format("timing {}: its process {}", generator::title(problem),
                                               process_.end(std::chrono::milliseconds(1000)).words));
  if (const auto error = error_in(*answer)) throw Error(*error);
  std::istringstream lines(answer->at("measurements").get<std::string>());
  return cache::read_export(lines, "the answer of a timing process");
}

int timing_worker_main(int in, int out) {
  std::optional<Timer> timer;
  return answer_jobs(in, out, timing_worker_argument, [&](const Json& job, runtime::cuda::Channel&) -> Json {
    if (!timer) timer.emplace(job);
    generator::Problem problem = generator::parse_key_text(job.at("problem").get<std::string>());
    problem.rows = job.at("rows");
    std::vector<generator::Config> configs;
    for (const Json& text : job.at("configs"))
      configs.push_back(generator::parse_config(text.get<std::string>()));
    const cache::Key key{job.at("key").at(0), job.at("key").at(1)};
    tuner::Beside beside =
        timer->retimer.time_beside(key, problem, configs, job.at("samples"), job.at("a_turn"));
    for (Measurement& measurement : beside.measurements) {
      measurement.created_at = utc_now();
      leave_out_parent(measurement.environment);
    }
    std::ostringstream lines;
    cache::write_export(lines, beside.measurements);
    return {{"measurements", lines.str()}};
  });
}

}  // namespace ce::cli
