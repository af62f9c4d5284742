#pragma once
/// \file
/// One search over a problem's space, on a device.

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "tuner/bench.hpp"
#include "tuner/build_ahead.hpp"
#include "tuner/strategy.hpp"
#include "tuner/tuner.hpp"
#include "tuner/turns.hpp"
#include "tuner/verify/verify.hpp"

namespace ce::tuner {

/// Whether a search would time at least twice as many rows now: then the measurement is not final.
[[nodiscard]] bool is_of_short_memory(const runtime::Device& device, const Settings& settings,
                                      const generator::Problem& problem,
                                      const cache::Measurement& measurement);

/// Compiles, verifies and times the configs that a Strategy asks for, and stores the results. Known measurements are
/// not repeated.
class Search {
 public:
  /// All references must outlive the search.
  Search(runtime::Device& device, cache::Cache& cache, const Settings& settings, const Hooks& hooks,
         const generator::Problem& problem);

  /// \throws Error(interrupted) when asked to stop; DeviceError if a fault destroyed the context
  void run();

  /// Whether run() would do nothing.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] Effort effort() const { return {configs(), known_, compiled_, seconds()}; }
  /// The builds that still run at the end of the search; keep the object until they have ended.
  [[nodiscard]] std::unique_ptr<BuildAhead> unfinished() { return std::move(unfinished_); }

 private:
  using Clock = BuildAhead::Clock;

  /// A config that was built in this search, kept to be timed again.
  struct Contender {
    Kernel kernel;
    std::vector<generator::Source> sources;  ///< their binaries are stored if the config has turns
    cache::Measurement measurement;          ///< with the samples of its turns
    int round = 0;                           ///< the last round in which it had turns
  };

  [[nodiscard]] int configs() const noexcept { return static_cast<int>(configs_.size()); }
  [[nodiscard]] double seconds() const;
  void survey();

  void screen(const Round& round, int number);
  [[nodiscard]] std::optional<BuildAhead::Ready> next_ready(std::span<const std::size_t> left);
  void cut_short(std::size_t left);
  bool build_ahead(std::size_t entrant);
  void build_likely(int number);
  void end_builds();
  void look_at(std::size_t entrant, const std::function<generator::Program()>& build);
  void take_samples(const Kernel& kernel, cache::Measurement& look);
  [[nodiscard]] std::optional<generator::Program> try_to_build(
      std::size_t entrant, cache::Measurement& look, const std::function<generator::Program()>& build);
  void refuse(std::size_t entrant, cache::Measurement measurement, const CompileError& error);
  void quarantine(std::size_t entrant, cache::Measurement measurement, std::string reason);
  void skip(std::size_t entrant);
  void take_turns(const Round& round);
  [[nodiscard]] std::vector<std::size_t> build_missing(const std::vector<std::size_t>& entrants);
  void accept_samples(std::span<const Turn> turns, std::span<Contender* const> contenders);
  void end_turns();

  [[nodiscard]] cache::Measurement measurement(std::size_t entrant) const;
  [[nodiscard]] int measured() const;
  [[nodiscard]] Clock::time_point deadline(double share) const;
  [[nodiscard]] Clock::time_point end_of_screening(std::span<const std::size_t> left) const;
  [[nodiscard]] bool is_past_end() const { return Clock::now() >= settings_.end; }
  void prepare_device();
  void note(std::size_t entrant, const cache::Measurement& measurement);
  void report(const Round& round, std::size_t done, std::size_t total) const;
  void stop_if_asked() const;

  runtime::Device& device_;
  cache::Cache& cache_;
  const Settings& settings_;
  Breadth breadth_;
  const Hooks& hooks_;
  generator::Problem problem_;
  Clock::time_point start_ = Clock::now();

  cache::Key key_;
  std::int64_t scratch_bytes_;
  std::vector<generator::Config> configs_;      ///< most promising first
  std::vector<Entrant> entrants_;               ///< one for each config
  std::map<std::string, std::string> digests_;  ///< digests of templates, by variant
  runtime::Environment environment_;
  bool decided_ = false;  ///< the database holds measurements in turns
  int known_ = 0;         ///< number of configs known when the search began
  int compiled_ = 0;
  bool screened_ = false;  ///< whether this search screened
  /// Measurements of configs that failed to compile, as long as none has compiled: then the compiler may be at fault.
  std::vector<cache::Measurement> refused_;
  bool compiler_works_ = false;

  std::optional<Verifier> verifier_;
  std::optional<Bench> bench_;
  std::map<std::size_t, Contender> contenders_;
  int rounds_ = 0;                           ///< number of rounds in turns
  std::size_t turns_taken_ = 0;              ///< turns of every remaining contender
  Clock::duration of_a_contender_{};         ///< time of a contender in the last turn
  std::vector<float> references_us_;         ///< reference times of all turns so far
  std::string disturbance_;                  ///< why the turns are not trusted; empty if they are
  std::string cut_short_;                    ///< how few configs took part; empty if enough
  std::exception_ptr passed_over_;           ///< why the first one was passed over
  std::unique_ptr<BuildAhead> ahead_;        ///< builds for screenings
  std::vector<std::size_t> ahead_entrants_;  ///< the entrants that it builds, by its index
  std::set<std::size_t> looked_at_;          ///< those of them that were tried
  std::unique_ptr<BuildAhead> unfinished_;

  std::string best_;
  double best_us_ = 0;
  std::int64_t best_bytes_ = 0;
};

}  // namespace ce::tuner
