#pragma once
/// \file
/// A process that tunes problems and times ceilings of a sweep on one device of several.

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>

#include "cli/commands/problem_tuning.hpp"
#include "cli/commands/sweep_result.hpp"
#include "cli/json.hpp"
#include "runtime/workers/process.hpp"

namespace ce::cli {

/// What makes ce-tune that process, as its only argument.
inline constexpr const char* sweep_worker_argument = "sweep-worker";

/// The process, seen from the sweep. For one thread at a time.
class SweepWorker {
 public:
  enum class End : std::uint8_t {
    next,  ///< the problem or the ceiling has what it could get
    stop,  ///< as ProblemTuning::tune(): other problems are not worth trying on any device
    died,  ///< the process, or its device
  };

  /// \param program  ce-tune
  /// \throws Error where it cannot be started
  SweepWorker(std::string device, const std::filesystem::path& program = "/proc/self/exe");

  /// Has the device opened, and the database.
  /// \throws what the process threw; Error(device) where it ended
  void open(const std::filesystem::path& database, const SearchOptions& options, const std::stop_token& stop);

  /// As ProblemTuning::tune(). Where the process or its device died, the problem has no failure, and died_of() says why.
  [[nodiscard]] End tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks);

  /// As ProblemTuning::search_ceiling() and time_ceiling(), with the same ends as tune().
  [[nodiscard]] End search_ceiling(SweptCeiling& swept, bool waits, const tuner::Hooks& hooks);
  [[nodiscard]] End time_ceiling(SweptCeiling& swept, const std::stop_token& stop);

  [[nodiscard]] const std::string& device() const noexcept { return device_; }
  [[nodiscard]] const runtime::Model& model() const noexcept { return model_; }
  /// At the time of open().
  [[nodiscard]] const runtime::Environment& environment() const noexcept { return environment_; }
  [[nodiscard]] const std::string& died_of() const noexcept { return died_of_; }

 private:
  struct Answer;
  /// Sends a job, and hands progress on until it is answered.
  Answer ask(const Json& job, const tuner::Hooks& hooks);
  /// ask(), and what every answer says of a problem or a ceiling.
  template <class Swept>
  Answer ask_for(Swept& swept, const Json& job, const tuner::Hooks& hooks);

  std::string device_;
  runtime::cuda::WorkerProcess process_;
  runtime::Model model_;
  runtime::Environment environment_;
  std::string died_of_;
};

/// The process: does what arrives on `in` and answers on `out`, until its parent closes `in` or ends.
/// \return the exit status: 0, or 1 when what arrived was no conversation, with a line on standard error
[[nodiscard]] int sweep_worker_main(int in, int out);

}  // namespace ce::cli
