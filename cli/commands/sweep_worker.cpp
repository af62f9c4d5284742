#include "cli/commands/sweep_worker.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "cli/commands/conversation.hpp"
#include "cli/options.hpp"
#include "generator/config.hpp"
#include "runtime/model_key.hpp"

namespace ce::cli {
namespace {

using runtime::cuda::Channel;
using runtime::cuda::Transfer;

// The conversation: "open" and its answer; then "tune" any number of times, each answered by any number of "progress" and
// one "swept". Either may be answered by "error".

Json options_words(const SearchOptions& options) {
  return {{"configs", options.tuning.configs},
          {"scratch", options.tuning.scratch},
          {"strategy", options.tuning.strategy},
          {"samples", options.tuning.samples},
          {"retune", options.retune},
          {"launch_limit_ms", options.launch_limit ? Json(options.launch_limit->count()) : Json()},
          {"left_s", deadline_words(options.end)}};
}

SearchOptions search_options_in(const Json& words) {
  SearchOptions options{.tuning = {.configs = words.at("configs"),
                                   .scratch = words.at("scratch"),
                                   .strategy = words.at("strategy"),
                                   .samples = words.at("samples")},
                        .retune = words.at("retune"),
                        .end = deadline_in(words.at("left_s"))};
  if (const Json& limit = words.at("launch_limit_ms"); !limit.is_null())
    options.launch_limit = std::chrono::milliseconds(limit.get<std::int64_t>());
  return options;
}

Json report_words(const tuner::Report& report) {
  return {{"winner", generator::to_text(report.winner)},
          {"reason", report.reason},
          {"median_us", report.median_us},
          {"spread", report.spread},
          {"gbs", report.gbs},
          {"ceiling_gbs", report.ceiling_gbs},
          {"timed_rows", report.timed_rows},
          {"configs", report.configs},
          {"tried", report.tried},
          {"known", report.known},
          {"compiled", report.compiled},
          {"unfinished", report.unfinished},
          {"is_cut_short", report.is_cut_short},
          {"quarantined", report.quarantined},
          {"seconds", report.seconds}};
}

tuner::Report report_in(const Json& words, const SweptProblem& swept) {
  return {.problem = swept.problem,
          .key = swept.key,
          .winner = generator::parse_config(words.at("winner").get<std::string>()),
          .reason = words.at("reason"),
          .median_us = words.at("median_us"),
          .spread = words.at("spread"),
          .gbs = words.at("gbs"),
          .ceiling_gbs = words.at("ceiling_gbs"),
          .timed_rows = words.at("timed_rows"),
          .configs = words.at("configs"),
          .tried = words.at("tried"),
          .known = words.at("known"),
          .compiled = words.at("compiled"),
          .unfinished = words.at("unfinished"),
          .is_cut_short = words.at("is_cut_short"),
          .quarantined = words.at("quarantined"),
          .seconds = words.at("seconds")};
}

Json failure_words(const Failure& failure) {
  return {{"code", static_cast<int>(failure.code)}, {"fields", failure.fields}};
}

Failure failure_in(const Json& words) {
  return {.code = static_cast<ExitCode>(words.at("code").get<int>()), .fields = words.at("fields")};
}

/// The device and database of a process, kept from problem to problem.
struct Open {
  explicit Open(const Json& words)
      : device(ce::open_device(words.at("device").get<std::string>())),
        cache(cache::Cache::open(path_in(words.at("database")))) {
    require_compiler(*device);
    if (const cache::Status status = cache.status(); !status.persistent)
      throw DatabaseError("several devices need a database that all their processes can write to: " +
                          status.problem);
    tuning.emplace(*device, cache, search_options_in(words.at("options")));
  }

  std::unique_ptr<runtime::Device> device;
  cache::Cache cache;
  std::optional<ProblemTuning> tuning;
};

Json open_answer(const Open& open) {
  const runtime::Model& model = open.device->model();
  return {{"model", model.key()},
          {"memory_bytes", model.memory_bytes},
          {"environment", open.device->environment()}};
}

Json tune_answer(Open& open, const Json& job, Channel& channel) {
  SweptProblem swept{.problem = generator::parse_key_text(job.at("problem").get<std::string>()), .key = {}};
  swept.problem.rows = job.at("rows");
  swept.key = open.tuning->key(swept.problem);
  const tuner::Hooks hooks{.progress = [&](const tuner::Progress& progress) {
    send(channel, {{"progress", words_of(progress)}});
  }};
  const bool go_on = open.tuning->tune(swept, job.at("waits"), hooks);
  open.cache.flush(patience_at_end);  // the sweep reads it
  return {{"swept",
           {{"report", swept.report ? report_words(*swept.report) : Json()},
            {"failure", swept.failure ? failure_words(*swept.failure) : Json()},
            {"is_tuned_elsewhere", swept.is_tuned_elsewhere},
            {"goes_on", go_on}}}};
}

constexpr std::chrono::milliseconds patience_with_worker{1000};

}  // namespace

SweepWorker::SweepWorker(std::string device, const std::filesystem::path& program)
    : device_(std::move(device)), process_(program, sweep_worker_argument) {}

void SweepWorker::open(const std::filesystem::path& database, const SearchOptions& options,
                       const std::stop_token& stop) {
  Channel& channel = process_.channel();
  const std::stop_callback stopping(stop, [&] { channel.shut_down(); });
  Transfer transfer = send(
      channel,
      {{"open",
        {{"device", device_}, {"database", path_words(database)}, {"options", options_words(options)}}}});
  std::optional<Json> answer;
  if (transfer == Transfer::done) answer = receive(channel, transfer);
  if (stop.stop_requested())
    throw Error(ErrorKind::interrupted, "stopped on request before anything was tuned");
  if (!answer)
    throw Error(ErrorKind::device,
                fmt::format("opening {}: its process {}", device_, process_.end(patience_with_worker).words));
  if (const auto error = error_in(*answer)) throw Error(*error);
  const auto model = runtime::parse_model_key(answer->at("model").get<std::string>());
  if (!model) throw Error(ErrorKind::device, fmt::format("opening {}: its model has no text", device_));
  model_ = *model;
  model_.memory_bytes = answer->at("memory_bytes");
  environment_ = answer->at("environment");
}

SweepWorker::End SweepWorker::tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks) {
  Channel& channel = process_.channel();
  const std::stop_callback stopping(hooks.stop, [&] { channel.shut_down(); });
  Transfer transfer = send(
      channel,
      {{"tune",
        {{"problem", generator::key_text(swept.problem)}, {"rows", swept.problem.rows}, {"waits", waits}}}});
  std::optional<Json> words;
  while (transfer == Transfer::done) {
    words = receive(channel, transfer);
    if (!words || !words->contains("progress")) break;
    if (hooks.progress) hooks.progress(progress_in(words->at("progress")));
  }
  if (hooks.stop.stop_requested()) {
    swept.failure = describe(Error(ErrorKind::interrupted, "stopped on request; what was measured is kept"));
    return End::stop;
  }
  if (!words || transfer != Transfer::done) {
    died_of_ = fmt::format("its process {}", process_.end(patience_with_worker).words);
    return End::died;
  }
  if (const auto error = error_in(*words)) {
    swept.failure = describe(*error);
    return End::stop;
  }
  const Json& found = words->at("swept");
  std::optional<Failure> failure;
  if (!found.at("failure").is_null()) failure = failure_in(found.at("failure"));
  swept.is_tuned_elsewhere = found.at("is_tuned_elsewhere");
  const bool go_on = found.at("goes_on");
  // After a fault its context is of no use, and another device may be well.
  if (!go_on && failure && failure->code == ExitCode::device) {
    died_of_ = failure->fields.at("message");
    return End::died;
  }
  swept.failure = std::move(failure);
  if (!found.at("report").is_null()) swept.report = report_in(found.at("report"), swept);
  return go_on ? End::next : End::stop;
}

int sweep_worker_main(int in, int out) {
  std::optional<Open> open;
  return answer_jobs(in, out, sweep_worker_argument, [&](const Json& job, Channel& channel) -> Json {
    if (job.contains("open")) {
      open.emplace(job.at("open"));
      return open_answer(*open);
    }
    if (!open) throw Error(ErrorKind::invalid_argument, "a problem before a device");
    return tune_answer(*open, job.at("tune"), channel);
  });
}

}  // namespace ce::cli
