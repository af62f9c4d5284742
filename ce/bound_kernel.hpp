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

/// What a call launches, with nothing left to decide: the inside of a Plan, and what is known of a call that a thread
/// makes again. For one thread at a time. Nothing has to be destroyed; the Context that chose the kernel must outlive its
/// uses.
class BoundKernel {
 public:
  /// \param entry  must outlive it
  BoundKernel(const PlanTable::Entry& entry, const Request& request);

  [[nodiscard]] const Choice& choice() const noexcept { return *choice_; }

  /// Whether calls of this thread on the stream are the launches with the arguments as they are.
  [[nodiscard]] bool is_ready_on(Stream stream) const noexcept {
    return (stream_ == stream && ready_ == Ready::on_a_stream) || is_ready_everywhere();
  }
  /// The same of any thread and stream.
  [[nodiscard]] bool is_ready_everywhere() const noexcept { return ready_ == Ready::everywhere; }
  /// Finds the scratch memory and the status that a call of this thread on the stream needs. Ready afterwards, unless the
  /// memory is lent for that one call.
  /// \throws as Workspaces::get()
  void make_ready(Stream stream, Workspaces& workspaces, Statuses& statuses);

  /// Becomes a call on other tensors that lie alike.
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
  Stream stream_ = nullptr;  ///< where it is ready on one
  Ready ready_ = Ready::nowhere;
  bool counts_bad_targets_;  ///< into a TargetStatus of the stream
  generator::Operation operation_;
  std::int64_t scratch_bytes_ = 0;   ///< 0: none
  std::int64_t partials_begin_ = 0;  ///< where partial statistics begin in it
  tuner::Kernel::Launches launches_;
  std::size_t steps_ = 0;  ///< of the launches; the others are room
  Arguments arguments_;
};

}  // namespace ce
