#include "cli/commands/sweep_observer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

namespace ce::cli {
namespace {

constexpr double log_seconds = 1;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

SweepObserver::SweepObserver(ProgressDisplay& display, ProgressLog* log, std::vector<std::string> devices)
    : display_(display), log_(log), devices_(std::move(devices)), last_written_(devices_.size(), 0) {}

void SweepObserver::write(std::string_view event, std::size_t device, const Json& fields) {
  if (log_ == nullptr) return;
  Json all{{"device", devices_.at(device)}};
  all.update(fields);
  log_->write(event, all);
}

void SweepObserver::begin(std::size_t problem, std::size_t problems, const SweptProblem& swept,
                          std::size_t device) {
  const std::string title = generator::title(swept.problem);
  display_.begin(problem + 1, problems, title, device);
  write("begin", device,
        {{"problem", problem + 1}, {"problems", problems}, {"key", swept.key.id()}, {"title", title}});
}

void SweepObserver::update(const tuner::Progress& progress, std::size_t device) {
  display_.update(progress, device);
  if (log_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    const double now = seconds_now();
    if (now - last_written_.at(device) < log_seconds) return;
    last_written_[device] = now;
  }
  const Pace pace = display_.pace();
  write("progress", device,
        {{"stage", progress.stage},
         {"done", progress.done},
         {"total", progress.total},
         {"best", progress.best.empty() ? Json() : Json(progress.best)},
         {"best_us", progress.best_us},
         {"best_gbs", progress.best_gbs},
         {"share", pace.share},
         {"seconds_left", pace.seconds_left ? Json(*pace.seconds_left) : Json()}});
}

void SweepObserver::finish(const SweptProblem& swept, std::size_t device) {
  const bool left = swept.is_tuned_elsewhere && !swept.report && !swept.failure;
  display_.finish(finished_line(swept), device, !left);
  Json fields{{"key", swept.key.id()}, {"title", generator::title(swept.problem)}};
  if (swept.failure) fields["error"] = json_of(*swept.failure);
  if (left) fields["left"] = true;
  if (swept.report) {
    const tuner::Report& report = *swept.report;
    fields.update({{"winner", generator::to_text(report.winner)},
                   {"median_us", report.median_us},
                   {"gbs", report.gbs},
                   {"unfinished", report.unfinished.empty() ? Json() : Json(report.unfinished)},
                   {"measured", report.tried - report.known},
                   {"known", report.known},
                   {"seconds", report.seconds}});
  }
  write("finish", device, fields);
}

void SweepObserver::begin(const SweptCeiling& swept, std::size_t problems, std::size_t device) {
  display_.begin(0, problems, title_of(swept), device, "searching");
  write("ceiling_begin", device, {{"operation", generator::name(swept.kind)}});
}

void SweepObserver::finish(const SweptCeiling& swept, std::size_t device) {
  display_.finish(finished_line(swept), device, false);
  Json fields{{"operation", generator::name(swept.kind)}};
  if (swept.failure)
    fields["error"] = json_of(*swept.failure);
  else if (swept.is_tuned_elsewhere)
    fields["left"] = true;
  write("ceiling_finish", device, fields);
}

void SweepObserver::died(const Failure& failure, std::string_view then, bool counts, std::size_t device) {
  display_.finish(fmt::format("{}; {}", failure.fields.at("message"), then), device, counts);
  write("device_lost", device, {{"error", json_of(failure)}});
}

void SweepObserver::end(const SweepResult& result) {
  if (log_ == nullptr) return;
  Json fields = summary_of(result);
  fields["exit_code"] = static_cast<int>(result.run.failure ? result.run.failure->code : ExitCode::success);
  fields["error"] = result.run.failure ? json_of(*result.run.failure) : Json();
  log_->write("end", fields);
}

}  // namespace ce::cli
