#pragma once
/// \file
/// Compares two populations of one problem: is the winner as fast as it was, what changed, and what is the suspected
/// cause?

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/analysis/populations.hpp"

namespace ce::tuner {

struct Change {
  std::string what;  ///< driver, toolkit, library, templates (maker, for a race), or gpu
  std::string before, after;

  friend bool operator==(const Change&, const Change&) = default;
};

struct Finding {
  std::string config_before, config_after;  ///< the winners
  double before_us = 0, after_us = 0;       ///< medians of the winners' runs
  Comparison winner;                        ///< compares the times that a caller gets
  std::optional<int> runs_needed;    ///< further runs needed to detect 1.5%; nothing if no number suffices
  std::string kernel_config;         ///< the winner of one side that both have measured; empty for none
  std::optional<Comparison> kernel;  ///< compares the times of that config
  std::vector<Change> changes;
  /// Names of suspected changes, if the winner's time changed; one name in clear cases. First "machine", if the
  /// reference moved with the winner.
  std::vector<std::string> suspects;
  std::string why;  ///< why the machine is suspected, and others are not; empty if all changes are unshared
};

/// The figures of two populations without their measurements, kept until the noise of the device is known.
struct Evidence {
  struct Sides {
    std::vector<Run> before, after;
  };
  Finding finding;  ///< complete except for what the noise determines
  Sides winner;
  std::optional<Sides> kernel;
  bool is_same_binary = false, is_same_template = false;  ///< for the last runs of both winners
};
[[nodiscard]] Evidence evidence_of(const Population& before, const Population& after);

/// \param noise  noise of the device
[[nodiscard]] Finding compare(Evidence evidence, const Noise& noise);
[[nodiscard]] Finding compare(const Population& before, const Population& after, const Noise& noise);

/// Removes suspects by the other findings: a change that occurred alone in another problem without harm is ruled out,
/// and a change that caused harm alone is confirmed.
void narrow_suspects(std::span<Finding* const> findings);

/// The drift of a machine according to the reference kernel, over all its problems.
struct MachineMove {
  double drift = 0;      ///< median of Comparison::drift
  int problems = 0;      ///< number of problems with a drift
  bool is_sure = false;  ///< it is at least 1%, and larger than the reference's own noise
};

/// \param findings  findings of one device
[[nodiscard]] MachineMove machine_move(std::span<const Finding* const> findings);

/// Puts "machine" first among the suspects of winners that moved at most twice as far as the reference: the reference
/// in their own runs, or that of all problems. Called after narrow_suspects().
/// \param findings  findings of one device
void suspect_machine(std::span<Finding* const> findings);

}  // namespace ce::tuner
