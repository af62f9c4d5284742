#include "ce/linear_losses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "ce/error.hpp"
#include "ce/linear_call.hpp"
#include "ce/rank_agreement.hpp"
#include "ce/rank_exchange.hpp"
#include "ce/request.hpp"
#include "tuner/race.hpp"

namespace ce {

// ---- Calls -----------------------------------------------------------------------------------------

LinearSchedule LinearLosses::schedule(const LinearShape& shape) {
  const auto known = plans_.of(shape);
  LinearSchedule schedule = known->plan.schedule;
  if (parts_.tunes) schedule.workspace_bytes = known->most_bytes();
  return schedule;
}

LinearSchedule LinearLosses::schedule(const LinearCrossEntropy& operation,
                                      const LinearCrossEntropy::Tensors& tensors) {
  return schedule(shape(operation, tensors));
}

LinearSchedule LinearLosses::schedule(const LinearCrossEntropy& operation,
                                      const LinearCrossEntropy::Tensors& tensors, const Shard& shard) {
  return schedule(shape_of(operation, tensors, parts_.device, &shard));
}

LinearShape LinearLosses::shape(const LinearCrossEntropy& operation,
                                const LinearCrossEntropy::Tensors& tensors) {
  LinearShape shape = shape_of(operation, tensors, parts_.device);
  if (shape.statistics && !parts_.forward.known(shape).serves) shape.statistics.reset();
  return shape;
}

const Choice& LinearLosses::run(Context& context, const LinearCrossEntropy& operation,
                                const LinearCrossEntropy::Tensors& tensors, Stream stream) {
  const runtime::Session session(parts_.device);
  LinearShape shape = this->shape(operation, tensors);
  if (const Choice* choice = run(context, operation, tensors, shape, nullptr, stream)) return *choice;
  // The caller's workspace may be sized for statistics, or for exponentials.
  shape.statistics.reset();
  shape.exponentials.reset();
  LinearCrossEntropy::Tensors without_workspace = tensors;
  without_workspace.workspace = {};
  return *run(context, operation, without_workspace, shape, nullptr, stream);
}

void LinearLosses::run(Context& context, const LinearCrossEntropy& operation,
                       const LinearCrossEntropy::Tensors& tensors, const Shard& shard, Stream stream) {
  const runtime::Session session(parts_.device);
  const LinearShape shape = shape_of(operation, tensors, parts_.device, &shard);
  require_same_chunks(shard.communicator, shape, stream);
  run(context, operation, tensors, shape, &shard, stream);
}

void LinearLosses::require_same_chunks(const Communicator& communicator, const LinearShape& shape,
                                       Stream stream) {
  if (stream != nullptr && parts_.device.capturing(stream)) return;
  const std::tuple key(static_cast<const void*>(communicator.state), communicator.rank, communicator.size,
                       shape);
  {
    const std::lock_guard lock(mutex_);
    if (of_ranks_.contains(key)) return;
  }
  constexpr auto names = std::to_array<std::string_view>(
      {"hidden.rows", "hidden.columns", "gradients", "valid_tokens", "chunk_tokens"});
  const std::array own{shape.drops_tokens() ? shape.all_tokens : shape.tokens, shape.hidden,
                       std::int64_t{shape.gradient() ? 1 : 0}, shape.drops_tokens() ? shape.valid_tokens : -1,
                       shape.chunk_tokens};
  const std::vector<std::byte> bytes =
      gather_from_ranks(parts_.device, communicator, std::as_bytes(std::span(own)), stream);
  std::vector<std::int64_t> numbers(bytes.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  require_the_same(names, numbers);
  const std::lock_guard lock(mutex_);
  of_ranks_.insert(key);
}

const Choice* LinearLosses::run(Context& context, const LinearCrossEntropy& operation,
                                const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
                                const Shard* shard, Stream stream) {
  auto known = plans_.of(shape);
  const bool races =
      parts_.tunes && !known->open.empty() && !(stream != nullptr && parts_.device.capturing(stream));
  std::int64_t bytes = races ? known->most_bytes() : known->plan.schedule.workspace_bytes;
  LinearWorkspaces::Lent lent;
  std::byte* workspace = nullptr;
  if (const Tensor& own = tensors.workspace; own.data != nullptr) {
    const std::int64_t least = known->plan.schedule.workspace_bytes;
    bytes = own.rows * own.columns;
    if (bytes < least)
      throw InvalidArgument("workspace", text_of_count(bytes),
                            fmt::format("{} or more: LinearSchedule::workspace_bytes", text_of_count(least)));
    workspace = static_cast<std::byte*>(own.data);
  } else {
    lent = workspaces_.get(stream, bytes, shard != nullptr ? shard->communicator.state : nullptr);
    workspace = lent.data();
  }
  if (LinearCall call(parts_, context, operation, tensors, shape, known->plan, shard, workspace, stream);
      call.check(), !races)
    return call.run();
  race(context, operation, tensors, shape, workspace, bytes, stream);
  // Another thread's race may have chosen a plan that does not fit this call's memory.
  if (const auto now = plans_.of(shape); now->plan.schedule.workspace_bytes <= bytes) known = now;
  return LinearCall(parts_, context, operation, tensors, shape, known->plan, shard, workspace, stream).run();
}

// ---- The race of chunks --------------------------------------------------------------------------------

Stream LinearLosses::trial_stream() {
  // The host device has no streams, and its trial stream is the caller's.
  return parts_.device.model().is_host() ? reinterpret_cast<Stream>(this) : parts_.device.trial_stream();
}

void LinearLosses::forget_targets_of_trials(Context& context) {
  try {
    context.check(trial_stream());
  } catch (const TargetOutOfRange&) {
    // the call itself counts it once more, on the caller's stream
  }
}

void LinearLosses::race(Context& context, const LinearCrossEntropy& operation,
                        const LinearCrossEntropy::Tensors& tensors, const LinearShape& shape,
                        std::byte* workspace, std::int64_t bytes, Stream stream) {
  const auto known = plans_.of(shape);
  const auto fits = [&](const LinearPlan& plan) { return plan.schedule.workspace_bytes <= bytes; };
  if (std::count_if(known->open.begin(), known->open.end(), fits) < 2) return;
  const Stream trials = trial_stream();
  parts_.device.synchronize(stream);
  std::vector<LinearCall> calls;
  std::vector<const LinearPlan*> plans;
  std::vector<std::string> names;
  // The first calls tune their kernels: nothing may be tuned while a call is timed.
  for (const LinearPlan& plan : known->open) {
    if (!fits(plan)) continue;
    LinearCall call(parts_, context, operation, tensors, shape, plan, nullptr, workspace, trials);
    if (call.run() == nullptr) continue;  // no kernel computes exponentials correctly
    if (!call.has_chosen_kernels()) {
      log(LogLevel::info,
          fmt::format("{}: sizes of chunks are not compared, because a kernel is not tuned yet",
                      LinearCrossEntropy::name));
      plans_.close(shape);
      return forget_targets_of_trials(context);
    }
    calls.push_back(call);
    plans.push_back(&plan);
    names.push_back(text_of(plan));
  }
  if (calls.empty()) {
    plans_.close(shape);  // the call itself finds another way
    return forget_targets_of_trials(context);
  }
  const LinearSamples samples(parts_.device, tensors, trials);
  const tuner::RaceResult result =
      tuner::run(parts_.device,
                 {.subject = LinearCrossEntropy::name,
                  .names = names,
                  .launch = [&](std::size_t i) { calls[i].enqueue(); },
                  .set_back = [&] { samples.set_back(); },
                  .read = [&] { return samples.read(); },
                  .agrees = [&](const auto& made, const auto& right) { return samples.agree(made, right); }},
                 parts_.seconds);
  forget_targets_of_trials(context);
  const auto position = std::find(names.begin(), names.end(), result.winner);
  const LinearPlan& winner = *plans[static_cast<std::size_t>(position - names.begin())];
  log(LogLevel::info,
      fmt::format("tuned {} of {} tokens x {} x {} classes on {}: chunks of {} tokens{} in {:.1f} us, the "
                  "best of {}; "
                  "chunks of {} took {:.1f} us",
                  LinearCrossEntropy::name, shape.tokens, shape.hidden, shape.classes,
                  parts_.device.model().name, winner.schedule.chunk_tokens,
                  winner.schedule.exponentials ? " by exponentials" : "", result.winner_us, result.runners,
                  plans.front()->schedule.chunk_tokens, result.first_us));
  plans_.keep(shape, result);
}

}  // namespace ce
