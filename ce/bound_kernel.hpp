#pragma once
/// \file
/// A Kernel bound to the tensors of a call. Not installed.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ce/plan_table.hpp"
#include "ce/request.hpp"
#include "ce/statuses.hpp"
#include "ce/workspaces.hpp"
#include "generator/problem.hpp"
#include "runtime/device.hpp"
#include "templates/arguments.cuh"
#include "tuner/kernel.hpp"

namespace ce {

/// The launches of a call, with nothing left to decide: the contents of a Plan, and of a call that a thread repeats.
/// Not thread-safe. It has a trivial destructor; the Context that chose the kernel must outlive its uses.
class BoundKernel {
 public:
  /// \param entry  must outlive this object
  BoundKernel(const PlanTable::Entry& entry, const Request& request);

  [[nodiscard]] const Choice& choice() const noexcept { return *choice_; }

  /// Whether a call of this thread on the stream can launch with the current arguments.
  [[nodiscard]] bool is_ready_on(Stream stream) const noexcept {
    return (stream_ == stream && ready_ == Ready::on_a_stream) || is_ready_everywhere();
  }
  /// Whether a call of any thread on any stream can.
  [[nodiscard]] bool is_ready_everywhere() const noexcept { return ready_ == Ready::everywhere; }
  /// Finds the scratch memory and the status for a call of this thread on the stream. It is ready afterwards, unless
  /// the memory is lent for that one call.
  /// \throws as Workspaces::get()
  void make_ready(Stream stream, Workspaces& workspaces, Statuses& statuses);

  /// Replaces the tensors by others with the same layout.
  template <class Tensors>
  void move(const Tensors& tensors) noexcept {
    set_addresses(tensors, arguments_);
    if (ready_ == Ready::on_a_stream) ready_ = Ready::nowhere;
  }

  [[nodiscard]] std::span<const runtime::KernelLaunch> launches() const noexcept {
    return {launches_.data(), steps_};
  }
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }

 private:
  enum class Ready : std::uint8_t { nowhere, on_a_stream, everywhere };

  const Choice* choice_;
  Stream stream_ = nullptr;  ///< with Ready::on_a_stream: that stream
  Ready ready_ = Ready::nowhere;
  bool counts_bad_targets_;  ///< uses a TargetStatus of the stream
  generator::Operation operation_;
  std::int64_t scratch_bytes_ = 0;   ///< 0: none
  std::int64_t partials_begin_ = 0;  ///< offset of the partial results in it
  tuner::Kernel::Launches launches_;
  std::size_t steps_ = 0;  ///< number of launches; further entries are unused
  Arguments arguments_;
};

}  // namespace ce
