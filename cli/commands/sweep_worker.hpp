#pragma once
/// \file
/// A process that tunes problems and times ceilings on one of a sweep's devices.

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>

#include "cli/commands/problem_tuning.hpp"
#include "cli/commands/sweep_result.hpp"
#include "cli/json.hpp"
#include "runtime/workers/process.hpp"

namespace ce::cli {

/// The only argument of ce-tune as that process.
inline constexpr const char* sweep_worker_argument = "sweep-worker";

/// The sweep's side of that process. Not thread-safe.
class SweepWorker {
 public:
  enum class End : std::uint8_t {
    next,  ///< the job is done, as far as possible
    stop,  ///< as for ProblemTuning::tune(): further problems are not worth trying on any device
    died,  ///< the process or its device died
  };

  /// \param program  ce-tune
  /// \throws Error if it cannot be started
  SweepWorker(std::string device, const std::filesystem::path& program = "/proc/self/exe");

  /// Makes the process open its device and the database.
  /// \throws the errors of the process; Error(device) if it ended
  void open(const std::filesystem::path& database, const SearchOptions& options, const std::stop_token& stop);

  /// Like ProblemTuning::tune(). If the process or its device died, the problem has no failure, and died_of() says why.
  [[nodiscard]] End tune(SweptProblem& swept, bool waits, const tuner::Hooks& hooks);

  /// Like ProblemTuning::search_ceiling() and time_ceiling(), with the results of tune().
  [[nodiscard]] End search_ceiling(SweptCeiling& swept, bool waits, const tuner::Hooks& hooks);
  [[nodiscard]] End time_ceiling(SweptCeiling& swept, const std::stop_token& stop);

  [[nodiscard]] const std::string& device() const noexcept { return device_; }
  [[nodiscard]] const runtime::Model& model() const noexcept { return model_; }
  /// The environment when open() was called.
  [[nodiscard]] const runtime::Environment& environment() const noexcept { return environment_; }
  [[nodiscard]] const std::string& died_of() const noexcept { return died_of_; }

 private:
  struct Answer;
  /// Sends a job, and passes on its progress until the answer comes.
  Answer ask(const Json& job, const tuner::Hooks& hooks);
  /// Calls ask(), and stores the common fields of answers about problems and ceilings.
  template <class Swept>
  Answer ask_for(Swept& swept, const Json& job, const tuner::Hooks& hooks);

  std::string device_;
  runtime::cuda::WorkerProcess process_;
  runtime::Model model_;
  runtime::Environment environment_;
  std::string died_of_;
};

/// Runs the process: does what arrives on `in` and answers on `out`, until its parent closes `in` or ends.
/// \return the exit status: 0, or 1 with a line on standard error if the received data is invalid
[[nodiscard]] int sweep_worker_main(int in, int out);

}  // namespace ce::cli
