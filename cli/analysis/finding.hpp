#pragma once
/// \file
/// Two populations of one problem compared: is the winner as fast as it was, what changed, and what is suspect?

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/analysis/populations.hpp"

namespace ce::tuner {

struct Change {
  std::string what;  ///< driver, toolkit, library, templates (maker of a race), or gpu
  std::string before, after;

  friend bool operator==(const Change&, const Change&) = default;
};

struct Finding {
  std::string config_before, config_after;  ///< the winners
  double before_us = 0, after_us = 0;       ///< medians of the winners' runs
  Comparison winner;                        ///< the time that a caller gets
  std::optional<int> runs_needed;           ///< after, to find 1.5%; nothing where no number would do
  std::string kernel_config;         ///< the winner of one side that both have measured; empty for none
  std::optional<Comparison> kernel;  ///< of that config
  std::vector<Change> changes;
  /// Names of changes, where the winner is not the same; one in clear cases. First "machine",
  /// where the reference moved with the winner.
  std::vector<std::string> suspects;
  std::string why;  ///< the machine is suspect, and others are not; empty where all changes are alone
};

/// What two populations say without their measurements, for when the noise of the device is known.
struct Evidence {
  struct Sides {
    std::vector<Run> before, after;
  };
  Finding finding;  ///< but for what its noise decides
  Sides winner;
  std::optional<Sides> kernel;
  bool is_same_binary = false, is_same_template = false;  ///< of the last runs of both winners
};
[[nodiscard]] Evidence evidence_of(const Population& before, const Population& after);

/// \param noise  of the device
[[nodiscard]] Finding compare(Evidence evidence, const Noise& noise);
[[nodiscard]] Finding compare(const Population& before, const Population& after, const Noise& noise);

/// Takes out suspects by what the other findings show: of what changed, that which changed alone for another
/// problem without harm, and what did it alone.
void narrow_suspects(std::span<Finding* const> findings);

/// What the kernel that never changes shows of a machine, over all its problems.
struct MachineMove {
  double drift = 0;      ///< median of Comparison::drift
  int problems = 0;      ///< that have one
  bool is_sure = false;  ///< it is 1% or more, and more than the reference does by itself
};

/// \param findings  of one device
[[nodiscard]] MachineMove machine_move(std::span<const Finding* const> findings);

/// Puts "machine" first among the suspects of winners that moved no further than twice what the reference did: the one
/// beside them, or that of all problems. For once narrow_suspects() is through.
/// \param findings  of one device
void suspect_machine(std::span<Finding* const> findings);

}  // namespace ce::tuner
