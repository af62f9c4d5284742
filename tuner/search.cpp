#include "tuner/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "ce/error.hpp"
#include "generator/source.hpp"
#include "tuner/doubt.hpp"
#include "tuner/key.hpp"
#include "tuner/quarantine_reason.hpp"
#include "tuner/ranking.hpp"
#include "tuner/serving.hpp"
#include "tuner/statistics.hpp"

namespace ce::tuner {
namespace {

/// Spills of a few registers may still win; arrays in local memory never do.
constexpr int most_local_bytes = 256;

/// The share of the budget for all timing. The rest is for the first call's other work: opening the database, storing
/// the measurements, loading the winner.
constexpr double share_of_turns = 0.96;

/// Attempts for each wanted turn, at most.
constexpr std::size_t most_attempts = 2;

/// More scratch memory, and so more rows, would not change the result: the device is full many times over.
constexpr std::int64_t enough_scratch = std::int64_t{2} << 30;

std::int64_t scratch_of_search(const runtime::Device& device, const Settings& settings) {
  return settings.scratch_bytes > 0 ? settings.scratch_bytes
                                    : std::min(enough_scratch, usual_scratch(device));
}

/// Whether so few rows were measured that memory must have been short.
bool are_too_few(std::int64_t measured, std::int64_t rows) { return 2 * measured < rows; }

/// Reports a first launch and its end, whatever happens.
class FirstLaunch {
 public:
  FirstLaunch(const Hooks& hooks, std::string config) : hooks_(hooks), config_(std::move(config)) {
    if (hooks_.first_launch) hooks_.first_launch(config_, true);
  }
  FirstLaunch(const FirstLaunch&) = delete;
  FirstLaunch& operator=(const FirstLaunch&) = delete;
  ~FirstLaunch() {
    if (hooks_.first_launch) hooks_.first_launch(config_, false);
  }

 private:
  const Hooks& hooks_;
  const std::string config_;
};

}  // namespace

bool is_of_short_memory(const runtime::Device& device, const Settings& settings,
                        const generator::Problem& problem, const cache::Measurement& measurement) {
  // The free memory is only queried if needed.
  return are_too_few(measurement.rows, problem.rows) &&
         are_too_few(measurement.rows, rows_that_fit(problem, scratch_of_search(device, settings)));
}

Search::Search(runtime::Device& device, cache::Cache& cache, const Settings& settings, const Hooks& hooks,
               const generator::Problem& problem)
    : device_(device),
      cache_(cache),
      settings_(settings),
      breadth_(settings.search),
      hooks_(hooks),
      problem_(problem),
      key_(key_of(problem, device.model())),
      scratch_bytes_(scratch_of_search(device, settings)),
      configs_(search_order(problem, device.model())),
      environment_(environment_now(device)) {
  survey();
}

void Search::survey() {
  std::map<std::string, std::size_t> structures, indices;
  for (const generator::Config& config : configs_) {
    indices.emplace(generator::to_text(config), entrants_.size());
    entrants_.push_back(
        {.structure = structures.try_emplace(structure_of(config), structures.size()).first->second,
         .load = config.load});
    digests_.try_emplace(config.variant);
  }
  for (auto& [variant, digest] : digests_) digest = generator::template_digest(problem_.operation, variant);

  const std::vector<cache::Measurement> measurements = cache_.measurements(key_);
  // Measurements with fewer rows than there are finals for are ignored.
  for (const cache::Measurement& measurement : measurements)
    if (measurement.stage > 0)
      problem_.rows = std::clamp(measurement.rows, problem_.rows, generator::bucketed(problem_).rows);
  const std::int64_t rows = rows_that_fit(problem_, scratch_bytes_);
  std::vector<bool> in_final(entrants_.size()), tried(entrants_.size());
  for (const cache::Measurement& measurement : measurements) {
    const auto index = indices.find(measurement.config);
    if (index == indices.end() || measurement.stage == cache::stage_of_checks) continue;
    Entrant& entrant = entrants_[index->second];
    if (digests_.at(configs_[index->second].variant) != measurement.template_digest) continue;
    tried[index->second] = true;
    entrant.out = measurement.outcome == cache::Outcome::quarantined;
    if (entrant.out)
      in_final[index->second] = false;
    else if (measurement.stage > 0 && !are_too_few(measurement.rows, rows))
      in_final[index->second] = unfinished_because(measurement).empty();
    // Times with other rows cannot be compared with those of this search.
    if (!entrant.out && measurement.rows == rows) entrant.median_us = measurement.median_us;
  }
  decided_ = !settings_.again && std::find(in_final.begin(), in_final.end(), true) != in_final.end();
  // If all configs within the bound were rejected, as many others are tried.
  const auto rejected = static_cast<int>(
      std::count_if(entrants_.begin(), entrants_.end(), [](const Entrant& e) { return e.out; }));
  if (breadth_.most_configs > 0 && rejected >= breadth_.most_configs) breadth_.most_configs += rejected;
  known_ = static_cast<int>(
      std::count_if(entrants_.begin(), entrants_.end(), [](const Entrant& e) { return !e.is_new(); }));
  // In an exhaustive search no times are compared: a config counts as known even if other rows were timed.
  if (is_over()) known_ = static_cast<int>(std::count(tried.begin(), tried.end(), true));
}

/// Whether nothing is left to do. A known winner stays, unless a wider search is asked for: comparing the medians of
/// another final with those of the first would be noise.
bool Search::is_over() const {
  return decided_ && (breadth_.strategy != Strategy::exhaustive || known_ == configs());
}

void Search::run() {
  if (is_over()) return;
  if (configs_.empty()) throw no_config_fits(problem_, device_);
  for (int number = 0; auto round = next_round(breadth_, number, entrants_); ++number) {
    if (!round->in_turns) {
      screen(*round, number);
      continue;
    }
    end_builds();
    if (screened_ || !decided_) take_turns(*round);
  }
  end_turns();
  cache_.checkpoint();
  if (passed_over_ && measured() == 0) std::rethrow_exception(passed_over_);
}

double Search::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

Search::Clock::time_point Search::deadline(double share) const {
  if (settings_.budget_s <= 0) return Clock::time_point::max();
  return start_ + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(settings_.budget_s * share));
}

/// The first working config is waited for without limit: there must be a winner, and another search may find it. If the
/// end is set, some of the time until then is reserved for turns.
Search::Clock::time_point Search::end_of_screening(std::span<const std::size_t> left) const {
  constexpr double share_until_end = 0.85;
  const int found = measured();
  if (found == 0) return settings_.end;
  const auto before_end =
      settings_.end == Clock::time_point::max()
          ? settings_.end
          : start_ + std::chrono::duration_cast<Clock::duration>(share_until_end * (settings_.end - start_));
  const auto first = ahead_entrants_.begin();
  const auto others = first + std::min(most_leaders, std::ssize(ahead_entrants_));
  return std::min(before_end, deadline(share_of_screening(
                                  breadth_, found,
                                  std::find_first_of(first, others, left.begin(), left.end()) != others)));
}

int Search::measured() const {
  return static_cast<int>(
      std::count_if(entrants_.begin(), entrants_.end(), [](const Entrant& e) { return e.median_us > 0; }));
}

cache::Measurement Search::measurement(std::size_t entrant) const {
  const generator::Config& config = configs_[entrant];
  return {.key = key_,
          .config = generator::to_text(config),
          .template_digest = digests_.at(config.variant),
          .environment = environment_};
}

void Search::prepare_device() {
  if (!verifier_) verifier_.emplace(device_, problem_, settings_.seed);
  if (bench_) return;
  bench_.emplace(device_, cache_, problem_, scratch_bytes_, settings_.seed);
}

// ---- screening -----------------------------------------------------------------------------------------

void Search::screen(const Round& round, int number) {
  std::vector<std::size_t> left = round.entrants;
  std::erase_if(left, [this](std::size_t entrant) { return looked_at_.contains(entrant); });
  if (left.empty()) return;
  // If one screening used up its time, there is none for another.
  if (Clock::now() >= end_of_screening({})) return cut_short(left.size());
  // The compilers work while the device is prepared.
  for (const std::size_t entrant : left) build_ahead(entrant);
  prepare_device();

  while (!left.empty()) {
    stop_if_asked();
    if (2 * left.size() <= round.entrants.size()) build_likely(number + 1);
    std::optional<BuildAhead::Ready> ready = next_ready(left);
    if (!ready) return cut_short(left.size());
    const std::size_t entrant = ahead_entrants_[ready->index];
    look_at(entrant, [&] { return ready->built.get(); });
    looked_at_.insert(entrant);
    std::erase(left, entrant);
    report(round, round.entrants.size() - left.size(), round.entrants.size());
  }
}

/// Returns nothing if the time is up. Until one config is measured, running builds are waited for: otherwise a search
/// with little time would begin with the same ones again and again.
std::optional<BuildAhead::Ready> Search::next_ready(std::span<const std::size_t> left) {
  std::optional<BuildAhead::Ready> ready = ahead_->next(end_of_screening(left));
  if (ready || measured() > 0) return ready;
  ahead_->stop();
  return ahead_->next_begun();
}

/// Notes in the environment if too few configs were ready.
void Search::cut_short(std::size_t left) {
  const int few = measured();
  const bool enough = breadth_.strategy != Strategy::exhaustive && few >= breadth_.least_configs;
  if (enough || !cut_short_.empty()) return;
  cut_short_ =
      fmt::format("only {} of {} configs were ready in time", few, static_cast<std::size_t>(few) + left);
}

/// Adds a config to the builds, once. \returns whether it was new
bool Search::build_ahead(std::size_t entrant) {
  if (std::ranges::find(ahead_entrants_, entrant) != ahead_entrants_.end()) return false;
  if (!ahead_) ahead_ = std::make_unique<BuildAhead>(device_, cache_, problem_);
  ahead_entrants_.push_back(entrant);
  ahead_->add(configs_[entrant]);
  return true;
}

/// Lets idle compilers, which would wait for the slowest build of a screening, begin with the likely configs of the
/// next one.
void Search::build_likely(int number) {
  std::size_t idle = ahead_->idle();
  if (idle == 0 || breadth_.most_configs > 0) return;
  const std::optional<Round> next = next_round(breadth_, number, entrants_);
  if (!next || next->in_turns) return;
  for (const std::size_t entrant : next->entrants) {
    if (idle == 0) return;
    if (build_ahead(entrant)) --idle;
  }
}

/// Stops building; no later round uses the builds that are still running.
void Search::end_builds() {
  if (!ahead_) return;
  ahead_->stop();
  if (ahead_->is_building()) unfinished_ = std::move(ahead_);
  ahead_.reset();
}

/// Makes a config a contender, or quarantines it. A known config is not timed again.
void Search::look_at(std::size_t entrant, const std::function<generator::Program()>& build) {
  cache::Measurement look = measurement(entrant);
  std::optional<generator::Program> program = try_to_build(entrant, look, build);
  if (!program) return;
  device_.synchronize(device_.trial_stream());  // throws an earlier fault of others
  const FirstLaunch launch(hooks_, look.config);
  try {
    Kernel kernel(device_, *program);
    look.registers = kernel.resources().registers;
    look.local_bytes = kernel.resources().local_bytes;
    if (!kernel.fits(bench_->problem())) return quarantine(entrant, look, "does not fit the device");
    if (look.local_bytes > most_local_bytes)
      return quarantine(entrant, look,
                        fmt::format("it needs {} bytes of local memory per thread", look.local_bytes));
    if (const auto wrong = verifier_->mismatch(kernel))
      return quarantine(entrant, look, "wrong answer: " + *wrong);
    Contender contender{std::move(kernel), std::move(program->sources), look};
    contender.measurement.stage = cache::stage_of_finals;
    if (entrants_[entrant].is_new()) take_samples(contender.kernel, look);
    contenders_.emplace(entrant, std::move(contender));
  } catch (const OutOfMemory&) {
    return skip(entrant);
  } catch (const DeviceError& error) {
    quarantine(entrant, look, std::string("fault: ") + error.what());
    device_.synchronize(device_.trial_stream());  // throws if the fault has destroyed the context
    return;
  }
  if (look.samples_us.empty()) return;
  cache_.add(look);
  screened_ = true;
  note(entrant, look);
}

/// The built program; nothing if it does not compile, or if the compiler itself failed.
std::optional<generator::Program> Search::try_to_build(std::size_t entrant, cache::Measurement& look,
                                                       const std::function<generator::Program()>& build) {
  try {
    generator::Program program = build();
    compiled_ += program.compiled;
    look.compile_key = program.compile_key();
    if (program.compiled > 0) {
      compiler_works_ = true;
      for (cache::Measurement& refused : refused_) cache_.add(refused);
      refused_.clear();
    }
    return program;
  } catch (const CompileError& error) {
    ++compiled_;
    refuse(entrant, look, error);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::compile) throw;
    skip(entrant);
  }
  return std::nullopt;
}

/// Takes more samples if the kernel turns out to be short.
void Search::take_samples(const Kernel& kernel, cache::Measurement& look) {
  const int samples = breadth_.screening_samples;
  bench_->time(kernel, samples, look);
  if (const int more = samples * (times_as_many(look.median_us) - 1); more > 0)
    bench_->time(kernel, more, look);
}

/// Marks a config as not tried, until some config compiles.
void Search::refuse(std::size_t entrant, cache::Measurement measurement, const CompileError& error) {
  const std::string reason = std::string("does not compile: ") + error.log();
  if (compiler_works_) return quarantine(entrant, std::move(measurement), reason);
  measurement.outcome = cache::Outcome::quarantined;
  measurement.reason = kept_reason(reason);
  refused_.push_back(std::move(measurement));
  skip(entrant);
}

void Search::quarantine(std::size_t entrant, cache::Measurement measurement, std::string reason) {
  measurement.outcome = cache::Outcome::quarantined;
  measurement.reason = kept_reason(std::move(reason));
  cache_.add(measurement);
  entrants_[entrant].out = true;
}

/// Excluded from this search only: memory may not be short next time.
void Search::skip(std::size_t entrant) {
  if (!passed_over_) passed_over_ = std::current_exception();
  entrants_[entrant].out = true;
}

void Search::note(std::size_t entrant, const cache::Measurement& measurement) {
  entrants_[entrant].median_us = measurement.median_us;
  if (!best_.empty() && best_us_ <= measurement.median_us) return;
  best_ = measurement.config;
  best_us_ = measurement.median_us;
  best_bytes_ = measurement.bytes;
}

// ---- turns ---------------------------------------------------------------------------------------------

/// Builds configs that another search screened, in parallel. \returns the configs that take part; none if the end comes
/// first
std::vector<std::size_t> Search::build_missing(const std::vector<std::size_t>& entrants) {
  std::vector<std::size_t> missing;
  std::vector<generator::Config> configs;
  for (const std::size_t entrant : entrants)
    if (!contenders_.contains(entrant)) {
      missing.push_back(entrant);
      configs.push_back(configs_[entrant]);
    }
  BuildAhead ahead(device_, cache_, problem_, configs);
  for (std::size_t looked_at = 0; looked_at < missing.size(); ++looked_at) {
    stop_if_asked();
    std::optional<BuildAhead::Ready> ready = ahead.next(settings_.end);
    if (!ready) return {};
    look_at(missing[ready->index], [&] { return ready->built.get(); });
  }
  std::vector<std::size_t> left = entrants;
  std::erase_if(left, [&](std::size_t entrant) { return entrants_[entrant].out; });
  return left;
}

void Search::take_turns(const Round& round) {
  // After the first turns, the remaining budget determines whether there are more.
  const auto ends_in_time = [&](Clock::time_point begin) {
    return begin + of_a_contender_ * static_cast<int>(round.entrants.size()) <=
           std::min(deadline(share_of_turns), settings_.end);
  };
  if (is_past_end()) return;
  if (round.entrants.empty() || (turns_taken_ > 0 && !ends_in_time(Clock::now()))) return;
  prepare_device();
  const std::vector<std::size_t> entrants = build_missing(round.entrants);
  if (entrants.empty() || is_past_end()) return;
  std::vector<Contender*> contenders;
  std::vector<const Kernel*> kernels;
  for (const std::size_t entrant : entrants) {
    contenders.push_back(&contenders_.at(entrant));
    kernels.push_back(&contenders.back()->kernel);
  }

  const std::size_t want = (static_cast<std::size_t>(round.samples) + samples_a_turn - 1) / samples_a_turn;
  const std::size_t wanted = want - std::min(want, turns_taken_);
  const int samples = samples_a_turn * times_as_many(entrants_[entrants.front()].median_us);
  std::vector<Turn> turns;
  std::size_t accepted = 0;
  while (accepted < wanted && turns.size() < most_attempts * wanted) {
    const Clock::time_point begin = Clock::now();
    if (!turns.empty() && !ends_in_time(begin)) break;
    turns.push_back(
        take_turn(*bench_, kernels, turns_taken_ + turns.size(), samples, [this] { stop_if_asked(); }));
    of_a_contender_ = (Clock::now() - begin) / static_cast<int>(contenders.size());
    references_us_.push_back(turns.back().reference_us);
    accepted = steady_of(turns, references_us_).size();
    report(round, std::min(accepted, wanted), wanted);
  }
  accept_samples(turns, contenders);
  turns_taken_ += accepted;
  if (!turns.empty()) ++rounds_;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Entrant& entrant = entrants_[entrants[i]];
    if (!turns.empty()) contenders[i]->round = rounds_;
    const cache::Measurement& measurement = contenders[i]->measurement;
    entrant.median_us = measurement.median_us;
    entrant.error = error_of_median(measurement.spread, measurement.samples_us.size());
    entrant.in_turns = true;
  }
}

/// Keeps the samples of steady turns; if too few were steady, keeps those of all turns, and notes it.
void Search::accept_samples(std::span<const Turn> turns, std::span<Contender* const> contenders) {
  if (turns.empty()) return;
  std::vector<const Turn*> accepted = steady_of(turns, references_us_);
  if (2 * accepted.size() <= turns.size()) {
    disturbance_ = fmt::format("a kernel that never changes was more than {:.0f}% slower in {} of {} turns",
                               100 * most_drift, turns.size() - accepted.size(), turns.size());
    accepted.clear();
    for (const Turn& turn : turns) accepted.push_back(&turn);
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    cache::Measurement& measurement = contenders[i]->measurement;
    append_samples(accepted, i, measurement.samples_us);
    bench_->conclude(measurement);
  }
}

/// Stores every contender that had turns. Only those of the last round had all turns side by side: a contender that
/// left earlier may have the smaller median, from a time when the machine was faster.
void Search::end_turns() {
  if (!bench_) return;
  runtime::Environment environment = bench_->environment(references_us_);
  if (!disturbance_.empty()) environment["disturbance"] = disturbance_;
  if (!cut_short_.empty()) environment["cut_short"] = cut_short_;
  const cache::Environment shared = std::move(environment);
  std::vector<cache::Measurement> measured;
  std::vector<std::string> right;  // each was verified before it was timed
  for (auto& [entrant, contender] : contenders_) {
    if (contender.measurement.samples_us.empty()) continue;
    keep(cache_, contender.sources);
    contender.measurement.environment = shared;
    if (contender.round < rounds_) contender.measurement.stage = cache::stage_of_screenings;
    measured.push_back(contender.measurement);
    right.push_back(contender.measurement.compile_key);
  }
  if (!right.empty()) cache_.keep_verified(right, machine_of(device_));
  // All at once: a database with samples in turns counts as a finished search.
  if (!measured.empty()) cache_.add(measured);
}

// ---- hooks ---------------------------------------------------------------------------------------------

void Search::report(const Round& round, std::size_t done, std::size_t total) const {
  if (!hooks_.progress) return;
  hooks_.progress({.stage = std::string(round.name),
                   .done = static_cast<int>(done),
                   .total = static_cast<int>(total),
                   .best = best_,
                   .best_us = best_us_,
                   .best_gbs = gbs_of(best_bytes_, best_us_),
                   .seconds = seconds()});
}

void Search::stop_if_asked() const {
  if (hooks_.stop.stop_requested())
    throw Error(ErrorKind::interrupted, "stopped on request; what was measured is kept");
}

}  // namespace ce::tuner
