#include "ce/chooser.hpp"

#include <fmt/format.h>

#include <utility>

#include "ce/base/log.hpp"
#include "generator/source.hpp"
#include "tuner/ranking.hpp"

namespace ce {
namespace {

using generator::Problem;

std::string sentence(const tuner::Report& report, const runtime::Device& device) {
  int wrong = 0;
  for (const auto& [reason, count] : report.quarantined) wrong += count;
  return fmt::format(
      "tuned {} on {}: {} of {} configs ({} quarantined), winner {}, {:.4g} GB/s, took {:.1f} s",
      generator::title(report.problem), device.model().name, report.tried, report.configs, wrong,
      report.winner, report.gbs, report.seconds);
}

}  // namespace

std::string_view name(Origin origin) noexcept {
  switch (origin) {
    case Origin::tuned: return "tuned";
    case Origin::database: return "database";
    case Origin::nearest: return "nearest";
    case Origin::fallback: return "fallback";
  }
  return "?";
}

Chooser::Chooser(runtime::Device& device, cache::Cache& cache, const tuner::Settings& settings, Policy policy)
    : device_(device), cache_(cache), policy_(policy), tuner_(device, cache, settings) {}

const Chosen& Chooser::choose(const Problem& problem, Stream stream) {
  const Problem bucket = generator::bucketed(problem);
  const Chosen* known = plans_.find(bucket);
  if (known != nullptr && !known->provisional) return *known;
  generator::validate(problem);
  const bool may_tune = policy_ == Policy::tune && !device_.capturing(stream);
  if (known != nullptr && !may_tune) return *known;

  const std::lock_guard lock(tuning_);
  known = plans_.find(bucket);  // another thread may have been here meanwhile
  if (known != nullptr && (!known->provisional || !may_tune)) return *known;
  std::unique_ptr<Chosen> chosen = from_database(problem);
  if (!chosen) chosen = may_tune ? from_tuning(problem) : without_tuning(problem);
  return plans_.put(bucket, std::move(chosen));
}

std::unique_ptr<Chosen> Chooser::load(const Problem& problem, const tuner::Built& built, Choice choice) {
  compiled_ += built.compiled;
  if (built.compiled > 0) keep(cache_, built);
  choice.config = generator::to_text(built.program.config);
  choice.key = tuner_.key(problem).id();
  return std::make_unique<Chosen>(Chosen{built.load(device_), std::move(choice)});
}

std::unique_ptr<Chosen> Chooser::from_database(const Problem& problem) {
  const auto decision = tuner_.known_winner(problem);
  if (!decision) return nullptr;
  const generator::Config config = generator::parse_config(decision->winner.config);
  auto built = tuner::find_built(cache_, problem, config, decision->winner.measurement.compile_key);
  if (!built) built = tuner::build(device_, cache_, problem, config);
  return load(problem, *built, {.origin = Origin::database, .reason = decision->reason});
}

std::unique_ptr<Chosen> Chooser::from_tuning(const Problem& problem) {
  const tuner::Report report = tuner_.tune(problem);
  compiled_ += report.compiled;
  log(LogLevel::info, sentence(report, device_));
  const tuner::Built built = tuner::build(device_, cache_, problem, generator::parse_config(report.winner));
  return load(problem, built, {.origin = Origin::tuned, .reason = report.reason});
}

std::unique_ptr<Chosen> Chooser::without_tuning(const Problem& problem) {
  const std::string why = policy_ == Policy::tune ? "the stream is being captured" : "the policy is lookup";
  std::unique_ptr<Chosen> chosen;
  if (const auto near = tuner_.nearest_winner(problem))
    chosen = load(problem, tuner::build(device_, cache_, problem, *near),
                  {.origin = Origin::nearest, .reason = "won for the nearest known problem; " + why});
  else
    chosen =
        load(problem, tuner::build(device_, cache_, problem, tuner::safe_default(problem, device_.model())),
             {.origin = Origin::fallback, .reason = "the safe default: nothing is known and " + why});
  chosen->provisional = true;
  return chosen;
}

}  // namespace ce
