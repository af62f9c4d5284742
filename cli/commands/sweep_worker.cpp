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

// The conversation: "open" and its answer; then "tune", "search_ceiling" and "time_ceiling" any number of times, each
// answered by any number of "progress" and one "swept". Any answer may be "error".

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

/// A process's device and database, kept from problem to problem.
struct Open {
  explicit Open(const Json& words)
      : device(ce::open_device(words.at("device").get<std::string>())),
        cache(cache::Cache::open(path_in(words.at("database")))) {
    require_compiler(*device);
    if (const cache::Status status = cache.status(); !status.persistent)
      throw DatabaseError("several devices need a database that all their processes can write to: " +
                          status.problem);
    tuning.emplace(*device, cache, search_options_in(words.at("options")), Processes::several);
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

tuner::Hooks telling(Channel& channel) {
  return {.progress = [&channel](const tuner::Progress& progress) {
    send(channel, {{"progress", words_of(progress)}});
  }};
}

template <class Swept>
Json swept_words(const Swept& swept, bool go_on) {
  return {{"failure", swept.failure ? failure_words(*swept.failure) : Json()},
          {"is_tuned_elsewhere", swept.is_tuned_elsewhere},
          {"goes_on", go_on}};
}

Json tune_answer(Open& open, const Json& job, Channel& channel) {
  SweptProblem swept{.problem = generator::parse_key_text(job.at("problem").get<std::string>()), .key = {}};
  swept.problem.rows = job.at("rows");
  swept.key = open.tuning->key(swept.problem);
  const bool go_on = open.tuning->tune(swept, job.at("waits"), telling(channel));
  Json words = swept_words(swept, go_on);
  words["report"] = swept.report ? report_words(*swept.report) : Json();
  return {{"swept", words}};
}

SweptCeiling ceiling_in(const Json& job) {
  return {.kind = generator::parse_operation(job.at("kind").get<std::string>())};
}

Json search_ceiling_answer(Open& open, const Json& job, Channel& channel) {
  SweptCeiling swept = ceiling_in(job);
  const bool go_on = open.tuning->search_ceiling(swept, job.at("waits"), telling(channel));
  Json words = swept_words(swept, go_on);
  words["is_searched"] = swept.is_searched;
  return {{"swept", words}};
}

Json time_ceiling_answer(Open& open, const Json& job) {
  SweptCeiling swept = ceiling_in(job);
  const bool go_on = open.tuning->time_ceiling(swept);
  Json words = swept_words(swept, go_on);
  words["gbs"] = swept.gbs;
  return {{"swept", words}};
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

struct SweepWorker::Answer {
  End end = End::next;
  Json swept = Json::object();      ///< the process's answer
  std::optional<Error> error = {};  ///< instead of an answer
};

SweepWorker::Answer SweepWorker::ask(const Json& job, const tuner::Hooks& hooks) {
  Channel& channel = process_.channel();
  const std::stop_callback stopping(hooks.stop, [&] { channel.shut_down(); });
  Transfer transfer = send(channel, job);
  std::optional<Json> words;
  while (transfer == Transfer::done) {
    words = receive(channel, transfer);
    if (!words || !words->contains("progress")) break;
    if (hooks.progress) hooks.progress(progress_in(words->at("progress")));
  }
  if (hooks.stop.stop_requested())
    return {.end = End::stop,
            .error = Error(ErrorKind::interrupted, "stopped on request; what was measured is kept")};
  if (!words || transfer != Transfer::done) {
    died_of_ = fmt::format("its process {}", process_.end(patience_with_worker).words);
    return {.end = End::died};
  }
  if (auto error = error_in(*words)) return {.end = End::stop, .error = std::move(error)};
  return {.swept = words->at("swept")};
}

template <class Swept>
SweepWorker::Answer SweepWorker::ask_for(Swept& swept, const Json& job, const tuner::Hooks& hooks) {
  Answer answer = ask(job, hooks);
  if (answer.error) swept.failure = describe(*answer.error);
  if (answer.end != End::next) return answer;
  std::optional<Failure> failure;
  if (const Json& words = answer.swept.at("failure"); !words.is_null()) failure = failure_in(words);
  swept.is_tuned_elsewhere = answer.swept.at("is_tuned_elsewhere");
  const bool go_on = answer.swept.at("goes_on");
  // A fault makes its context useless; other devices are not affected.
  if (!go_on && failure && failure->code == ExitCode::device) {
    died_of_ = failure->fields.at("message");
    return {.end = End::died};
  }
  swept.failure = std::move(failure);
  if (!go_on) answer.end = End::stop;
  return answer;
}

SweepWorker::End SweepWorker::tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks) {
  const Answer answer = ask_for(
      swept,
      {{"tune",
        {{"problem", generator::key_text(swept.problem)}, {"rows", swept.problem.rows}, {"waits", waits}}}},
      hooks);
  if (const auto report = answer.swept.find("report"); report != answer.swept.end() && !report->is_null())
    swept.report = report_in(*report, swept);
  return answer.end;
}

SweepWorker::End SweepWorker::search_ceiling(SweptCeiling& swept, bool waits, const tuner::Hooks& hooks) {
  const Answer answer =
      ask_for(swept, {{"search_ceiling", {{"kind", generator::name(swept.kind)}, {"waits", waits}}}}, hooks);
  swept.is_searched = answer.swept.value("is_searched", false);
  return answer.end;
}

SweepWorker::End SweepWorker::time_ceiling(SweptCeiling& swept, const std::stop_token& stop) {
  const Answer answer =
      ask_for(swept, {{"time_ceiling", {{"kind", generator::name(swept.kind)}}}}, {.stop = stop});
  swept.gbs = answer.swept.value("gbs", 0.0);
  return answer.end;
}

int sweep_worker_main(int in, int out) {
  std::optional<Open> open;
  return answer_jobs(in, out, sweep_worker_argument, [&](const Json& job, Channel& channel) -> Json {
    if (job.contains("open")) {
      open.emplace(job.at("open"));
      return open_answer(*open);
    }
    if (!open) throw Error(ErrorKind::invalid_argument, "a problem or a ceiling before a device");
    if (job.contains("search_ceiling"))
      return search_ceiling_answer(*open, job.at("search_ceiling"), channel);
    if (job.contains("time_ceiling")) return time_ceiling_answer(*open, job.at("time_ceiling"));
    return tune_answer(*open, job.at("tune"), channel);
  });
}

}  // namespace ce::cli
