#include "ce/linear_chunks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "ce/error.hpp"
#include "ce/linear_tensors.hpp"
#include "generator/linear.hpp"
#include "tuner/decide.hpp"
#include "tuner/maker.hpp"
#include "tuner/verify/elements.hpp"

namespace ce {
namespace {

std::uint64_t bucket_of(std::int64_t tokens) { return std::bit_ceil(static_cast<std::uint64_t>(tokens)); }

/// The text that determines which plan is fastest, with tokens rounded up to powers of two.
std::string text_of(const LinearShape& shape, const LinearPlan& largest) {
  std::string text =
      fmt::format("chunks tokens={} hidden={} classes={} {} logits={}", bucket_of(shape.tokens), shape.hidden,
                  shape.classes, name(shape.dtype), name(shape.logits));
  if (shape.drops_tokens()) text += " valid_tokens";
  if (shape.exponentials) text += shape.wants_exponentials ? " exponentials" : " exponentials_or_logits";
  if (shape.hidden_grad) text += " hidden_grad";
  if (shape.weight_grad) text += fmt::format(" weight_grad={}", name(shape.weight_grad_dtype));
  if (shape.bias_grad) text += " bias_grad";
  return text + fmt::format(" chunk={}", bucket_of(largest.schedule.chunk_tokens));
}

}  // namespace

std::string text_of(const LinearPlan& plan) {
  return fmt::format("parts={}{}", plan.parts, plan.schedule.exponentials ? ",exponentials" : "");
}

std::int64_t LinearPlans::Known::most_bytes() const noexcept {
  std::int64_t most = plan.schedule.workspace_bytes;
  for (const LinearPlan& one : open) most = std::max(most, one.schedule.workspace_bytes);
  return most;
}

tuner::RaceSubject LinearPlans::subject_of(const LinearShape& shape, const LinearPlan& largest) {
  // Hidden states and weight, and as much for their gradients.
  const std::int64_t bytes = 2 * (shape.tokens + shape.classes) * shape.hidden * size_of(shape.dtype);
  std::string maker = fmt::format("{}, {}", device_.matmuls().name(), device_.compiler());
  if (shape.exponentials.has_value())
    maker = tuner::maker_with_templates(maker, generator::linear_template_digest(true));
  return {.text = text_of(shape, largest) + (any_order_ ? " any_order" : ""),
          .maker = std::move(maker),
          .rows = shape.tokens,
          .bytes = bytes};
}

std::shared_ptr<const LinearPlans::Known> LinearPlans::of(const LinearShape& shape) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(shape);
  if (found != known_.end()) return found->second;
  constexpr std::size_t divisor = 10;
  const std::int64_t budget =
      shape.budget > 0 ? shape.budget : static_cast<std::int64_t>(device_.free_bytes() / divisor);
  auto known = std::make_shared<Known>();
  known->open = plans_for(shape, budget);
  known->plan = known->open.front();
  if (known->open.size() > 1) {
    try {
      known->race = subject_of(shape, known->plan);
    } catch (const Unsupported&) {
      known->open.clear();  // there is no library of products; the call itself reports that
    }
  } else {
    known->open.clear();
  }
  known_.emplace(shape, known);
  if (!known->race.text.empty())
    if (const auto& winner = winners_.of(known->race); !winner.winner.empty()) choose(known->race, winner);
  return known_.at(shape);
}

void LinearPlans::choose(const tuner::RaceSubject& race, const tuner::RaceWinners::Known& found) {
  for (auto& [shape, known] : known_) {
    if (known->race.text != race.text || known->open.empty()) continue;
    auto chosen = std::make_shared<Known>(*known);
    const auto winner =
        std::ranges::find(known->open, found.winner, [](const LinearPlan& plan) { return text_of(plan); });
    if (winner == known->open.end()) continue;  // the winner of another version
    chosen->plan = *winner;
    if (!found.open) chosen->open.clear();
    known = std::move(chosen);
  }
}

void LinearPlans::keep(const LinearShape& shape, const tuner::RaceResult& result) {
  const std::shared_ptr<const Known> known = of(shape);
  const std::lock_guard lock(mutex_);
  if (known_.at(shape)->open.empty()) return;  // another thread was first
  winners_.keep(known->race, result);
  choose(known->race, winners_.of(known->race));
}

void LinearPlans::close(const LinearShape& shape) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Known>& known = known_.at(shape);
  known = std::make_shared<Known>(Known{.plan = known->plan, .open = {}, .race = known->race});
}

LinearSamples::LinearSamples(runtime::Device& device, const LinearCrossEntropy::Tensors& tensors,
                             Stream stream)
    : device_(device), stream_(stream) {
  for (const Tensor* tensor :
       {&tensors.loss, &tensors.z_loss_out, &tensors.hidden_grad, &tensors.weight_grad, &tensors.bias_grad})
    if (tensor->data != nullptr) add(*tensor);
  for (const auto& output : token_outputs)
    if (const Tensor& tensor = tensors.*output.member; tensor.data != nullptr && is_floating(tensor.dtype))
      add(tensor);
}

void LinearSamples::add(const Tensor& tensor) {
  constexpr std::int64_t most = 4096;
  const ConstTensor view = tensor;
  const bool is_vector = view.rows == 1 || (view.columns == 1 && view.row_step() == 1);
  const std::int64_t row = is_vector ? view.rows * view.columns : view.columns, size = size_of(view.dtype),
                     count = std::min(row, most);
  const std::int64_t end = is_vector ? row : (view.rows - 1) * view.row_step() + row;
  for (const std::int64_t start : {std::int64_t{0}, end - count})
    pieces_.push_back({static_cast<std::byte*>(tensor.data) + start * size, view.dtype, count});
}

void LinearSamples::set_back() const {
  for (const Piece& piece : pieces_)
    device_.fill(piece.data, 0xff, static_cast<std::size_t>(piece.count * size_of(piece.dtype)), stream_);
}

std::vector<double> LinearSamples::read() const {
  std::vector<double> all;
  device_.synchronize(stream_);
  for (const Piece& piece : pieces_) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(piece.count * size_of(piece.dtype)));
    device_.download(bytes.data(), piece.data, bytes.size());
    for (std::int64_t i = 0; i < piece.count; ++i)
      all.push_back(generator::read_element(piece.dtype, bytes.data(), i));
  }
  return all;
}

bool LinearSamples::agree(const std::vector<double>& made, const std::vector<double>& right) const {
  // A logit that 16 bits round the other way changes its probability by several percent.
  constexpr double of_largest = 0.125;
  std::size_t first = 0;
  for (const Piece& piece : pieces_) {
    const std::size_t end = first + static_cast<std::size_t>(piece.count);
    double largest = 0;
    for (std::size_t i = first; i < end; ++i)
      largest = std::max(largest, std::isfinite(right[i]) ? std::abs(right[i]) : 0);
    for (std::size_t i = first; i < end; ++i)
      if (std::isfinite(right[i]) ? !(std::abs(made[i] - right[i]) <= of_largest * largest)
                                  : std::isfinite(made[i]))
        return false;
    first = end;
  }
  return true;
}

}  // namespace ce
