#include "ce/linear_statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "ce/error.hpp"
#include "runtime/matmul.hpp"
#include "tuner/decide.hpp"
#include "tuner/maker.hpp"
#include "tuner/verify/elements.hpp"

namespace ce {
namespace {

constexpr int hopper = 90;
constexpr std::uintptr_t operand_alignment = 16;
/// Candidates for the number of row tiles in a band: their rows of hidden states stay in L2 together with as many of
/// the weight. 6 and 11 divide the 66 clusters of two blocks that an H100 or H200 runs.
constexpr std::array groups{6, 11, 16, 8};
/// Number of rows at either end that a race compares.
constexpr std::int64_t compared_rows = 16;
constexpr std::string_view none_is_right = "none";

/// Whether bulk tensor copies can load it. Even a single row needs a valid step.
bool may_be_boxed(const ConstTensor& tensor) {
  const std::int64_t step = std::max(tensor.row_step(), tensor.columns);
  return reinterpret_cast<std::uintptr_t>(tensor.data) % operand_alignment == 0 &&
         step * size_of(tensor.dtype) % static_cast<std::int64_t>(operand_alignment) == 0;
}

/// Whether kernels use the scale; they take others as 1 (templates/operations/logits.cuh).
bool is_scale(double scale) { return scale >= 0x1p-60 && scale <= 0x1p60; }

/// A sample of the call's rows, computed in f64.
class ComparedRows {
 public:
  ComparedRows(runtime::Device& device, const LinearShape& shape, const LinearStatisticsArguments& arguments)
      : device_(device), shape_(shape), arguments_(arguments), tokens_(shape.tokens) {
    for (std::int64_t row = 0; row < std::min(compared_rows, tokens_); ++row) rows_.push_back(row);
    for (std::int64_t row = std::max(compared_rows, tokens_ - compared_rows); row < tokens_; ++row)
      rows_.push_back(row);
  }

  /// The logsumexp and the target's logit of each row, by the library's product.
  [[nodiscard]] std::vector<double> reference() const {
    const std::int64_t classes = shape_.classes;
    const std::vector<double> bias =
        read(arguments_.bias, shape_.statistics->bias_dtype, 0, shape_.statistics->bias ? classes : 0);
    const runtime::Buffer logits(device_, static_cast<std::size_t>(classes) * 4);
    std::vector<double> all;
    for (const std::int64_t row : rows_) {
      if (!is_scale(scale_of(row))) {
        all.insert(all.end(), 2, std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      runtime::Matmul matmul{.m = 1,
                             .n = classes,
                             .k = shape_.hidden,
                             .input = shape_.dtype,
                             .output = DType::f32,
                             .b_transposed = true,
                             .a_stride = arguments_.operands.row_stride,
                             .b_stride = arguments_.operands.column_stride,
                             .d_stride = classes};
      const auto* hidden = static_cast<const std::byte*>(arguments_.operands.of_rows) +
                           row * matmul.a_stride * size_of(shape_.dtype);
      const void* weight = arguments_.operands.of_columns;
      matmul.alignment = runtime::alignment_of({hidden, weight, logits.data()});
      device_.matmuls().launch(matmul, device_.matmuls().algorithms(matmul, 0, 1).front(),
                               {.a = hidden, .b = weight, .d = logits.data()}, device_.trial_stream());
      device_.synchronize(device_.trial_stream());
      std::vector<double> z = read(logits.data(), DType::f32, 0, classes);
      const double scale = scale_of(row),
                   cap = amount_of(&generator::CrossEntropyFlags::softcap, arguments_.call);
      for (std::size_t i = 0; i < z.size(); ++i) {
        z[i] = scale * (z[i] + (bias.empty() ? 0 : bias[i]));
        if (shape_.statistics->softcap) z[i] = cap * std::tanh(z[i] / cap);
      }
      const double largest = *std::max_element(z.begin(), z.end());
      double sum = 0;
      for (const double x : z) sum += std::exp(x - largest);
      const std::int64_t target = target_of(row);
      all.push_back(largest + std::log(sum));
      all.push_back(is_class(target) ? z[static_cast<std::size_t>(target)] : -infinity);
    }
    return all;
  }

  /// The same figures from the kernel's results.
  [[nodiscard]] std::vector<double> made(int splits) const {
    const auto words = shape_.statistics->words();
    const std::size_t slope = shape_.statistics->softcap ? 1 : 0;
    std::vector<double> all;
    for (const std::int64_t row : rows_) {
      const double unit = shape_.statistics->softcap
                              ? amount_of(&generator::CrossEntropyFlags::softcap, arguments_.call)
                              : scale_of(row);
      double target = -infinity, largest = -infinity, sum = 0;
      for (int split = 0; split < splits; ++split) {
        const std::vector<double> of_split =
            read(arguments_.call.statistics_out, DType::f32, (split * tokens_ + row) * words, words);
        const double max = unit * of_split[1 + slope], powers = of_split[2 + slope];
        target = std::max(target, unit * of_split[0]);
        const double larger = std::max(largest, max);
        if (larger > -infinity) sum = sum * std::exp(largest - larger) + powers * std::exp(max - larger);
        largest = larger;
      }
      const double others = sum > 0 ? largest + std::log(sum) : -infinity, larger = std::max(others, target);
      all.push_back(larger + std::log(std::exp(others - larger) + std::exp(target - larger)));
      all.push_back(target);
    }
    return all;
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  [[nodiscard]] std::vector<double> read(const void* data, DType dtype, std::int64_t first,
                                         std::int64_t count) const {
    if (count == 0) return {};
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(dtype)));
    device_.download(bytes.data(), static_cast<const std::byte*>(data) + first * size_of(dtype),
                     bytes.size());
    std::vector<double> values(static_cast<std::size_t>(count));
    generator::read_elements(dtype, bytes.data(), 0, 1, values);
    return values;
  }
  [[nodiscard]] double scale_of(std::int64_t row) const {
    const double scale = amount_of(&generator::CrossEntropyFlags::scale, arguments_.call);
    return shape_.statistics->row_scales ? scale * read(arguments_.call.row_scale, DType::f32, row, 1).front()
                                         : scale;
  }
  [[nodiscard]] std::int64_t target_of(std::int64_t row) const {
    return static_cast<std::int64_t>(
        read(arguments_.call.target, shape_.statistics->target_dtype, row, 1).front());
  }
  [[nodiscard]] bool is_class(std::int64_t target) const { return target >= 0 && target < shape_.classes; }

  runtime::Device& device_;
  const LinearShape& shape_;
  const LinearStatisticsArguments& arguments_;
  const std::int64_t tokens_;
  std::vector<std::int64_t> rows_;
};

/// Other orders of sums, and 16-bit tanh and exponentials, cause small differences; a wrong tile causes a large one.
bool agree(const std::vector<double>& made, const std::vector<double>& right) {
  for (std::size_t i = 0; i < right.size(); ++i)
    if (std::isfinite(right[i]) && !(std::abs(made[i] - right[i]) <= 2e-3 * (1 + std::abs(right[i]))))
      return false;
  return true;
}

}  // namespace

namespace {

/// The statistics kernel for the call's matrices and options, if it supports them and the device.
std::optional<generator::LinearStatistics> kernel_for(const LinearCrossEntropy& operation,
                                                      const LinearCrossEntropy::Tensors& tensors,
                                                      const LinearShape& shape,
                                                      const runtime::Device& device) {
  const runtime::Model& model = device.model();
  constexpr std::int64_t most = std::numeric_limits<int>::max() - 1024;  // coordinates have 32 bits
  const CrossEntropy& options = operation.cross_entropy;
  const DType target = tensors.target.dtype;
  // A wrong dtype or amount is rejected where logits are computed.
  if ((target != DType::i32 && target != DType::i64) || !is_scale(options.logit_scale) ||
      (options.softcap != 0 && !is_scale(options.softcap)) ||
      (tensors.row_scale.data != nullptr && tensors.row_scale.dtype != DType::f32))
    return std::nullopt;
  if (shape.tokens == 0 || shape.hidden == 0 || size_of(shape.dtype) != 2 ||
      (!model.is_host() && model.capability != hopper) || shape.tokens > most || shape.classes > most ||
      (!shape.drops_tokens() && !may_be_boxed(tensors.hidden)) || !may_be_boxed(tensors.weight))
    return std::nullopt;
  const bool smoothing = options.label_smoothing != 0, bias = tensors.bias.data != nullptr,
             weights = smoothing && tensors.class_weight.data != nullptr;
  return generator::LinearStatistics{.input = shape.dtype,
                                     .logits = shape.logits,
                                     .target_dtype = target,
                                     .bias_dtype = bias ? tensors.bias.dtype : DType::f32,
                                     .weight_dtype = weights ? tensors.class_weight.dtype : DType::f32,
                                     .bias = bias,
                                     .weights = weights,
                                     .smoothing = smoothing,
                                     .scale = options.logit_scale != 1,
                                     .softcap = options.softcap != 0,
                                     .row_scales = tensors.row_scale.data != nullptr,
                                     .indices = tensors.argmax.data != nullptr || tensors.hit.data != nullptr,
                                     .moment = tensors.entropy.data != nullptr};
}

}  // namespace

std::optional<generator::LinearStatistics> statistics_of(const LinearCrossEntropy& operation,
                                                         const LinearCrossEntropy::Tensors& tensors,
                                                         const LinearShape& shape,
                                                         const runtime::Device& device) {
  if (shape.gradient() || shape.chunk_tokens > 0) return std::nullopt;
  return kernel_for(operation, tensors, shape, device);
}

std::optional<generator::LinearStatistics> exponentials_of(const LinearCrossEntropy& operation,
                                                           const LinearCrossEntropy::Tensors& tensors,
                                                           const LinearShape& shape,
                                                           const runtime::Device& device) {
  const CrossEntropy& options = operation.cross_entropy;
  const CrossEntropy served{.ignore_index = options.ignore_index,
                            .reduction = options.reduction,
                            .z_loss = options.z_loss,
                            .softcap = options.softcap,
                            .logit_scale = options.logit_scale};
  const auto is_f32_or_none = [](const ConstTensor& tensor) {
    return tensor.data == nullptr || tensor.dtype == DType::f32;  // otherwise it is rejected with the loss
  };
  if ((!shape.hidden_grad && !shape.weight_grad) || shape.dtype != DType::bf16 || options != served ||
      tensors.bias.data != nullptr || tensors.class_weight.data != nullptr ||
      tensors.row_scale.data != nullptr || tensors.entropy_upstream.data != nullptr ||
      !is_f32_or_none(tensors.row_weight) || !is_f32_or_none(tensors.lse_upstream) ||
      !is_f32_or_none(tensors.divisor))
    return std::nullopt;
  auto kernel = kernel_for(operation, tensors, shape, device);
  if (kernel) kernel->exponentials = true;
  return kernel;
}

std::string LinearWay::text() const {
  return fmt::format("{},group={}", generator::to_text(tile), wanted_group);
}

std::vector<LinearWay> LinearForward::ways(int multiprocessors, std::int64_t tokens, std::int64_t classes) {
  std::vector<LinearWay> all;
  for (const ProductTile& tile : generator::product_tiles()) {
    const int clusters = std::max(1, multiprocessors / tile.cluster);
    const auto of_tile = static_cast<std::ptrdiff_t>(all.size());
    for (const int wanted : groups) {
      const LinearWay way{tile,
                          wanted,
                          {.rows = tokens,
                           .columns = classes,
                           .tile_rows = tile.cluster * ProductTile::rows,
                           .tile_columns = tile.columns,
                           .clusters = clusters,
                           .group = std::min(wanted, clusters)}};
      // Uses the key's number of tokens, so that these ways are valid for every number with that key.
      const auto bands = [&](ProductSchedule schedule) {
        schedule.rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens)));
        return schedule.bands();
      };
      const auto is_alike = [&](const LinearWay& known) {
        return bands(known.schedule) == bands(way.schedule);
      };
      if (std::none_of(all.begin() + of_tile, all.end(), is_alike)) all.push_back(way);
    }
  }
  return all;
}

int most_messages(int multiprocessors, std::int64_t tokens, std::int64_t classes) {
  int most = 1;
  for (const LinearWay& way : LinearForward::ways(multiprocessors, tokens, classes))
    most = std::max(most, way.messages());
  return most;
}

tuner::RaceSubject LinearForward::subject_of(const LinearShape& shape) {
  return {.text = fmt::format("{} tokens={} hidden={} classes={}", shape.statistics->text(),
                              std::bit_ceil(static_cast<std::uint64_t>(shape.tokens)), shape.hidden,
                              shape.classes),
          .maker = tuner::maker_with_templates(device_.compiler(), generator::linear_template_digest(false)),
          .rows = shape.tokens,
          .bytes = (shape.tokens + shape.classes) * shape.hidden * size_of(shape.dtype)};
}

LinearForward::Known LinearForward::known(const LinearShape& shape) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(shape);
  if (found != known_.end()) return found->second;
  const std::vector<LinearWay> all = ways(shape.multiprocessors, shape.tokens, shape.classes);
  const tuner::RaceWinners::Known& raced = winners_.of(subject_of(shape));
  const auto same =
      std::find_if(all.begin(), all.end(), [&](const LinearWay& way) { return way.text() == raced.winner; });
  const bool serves = !raced.all_wrong && raced.winner != none_is_right;
  // A winner of another version may name a way that no longer exists.
  const Known known{.way = same != all.end() ? *same : all.front(),
                    .open = raced.open || (serves && same == all.end()),
                    .serves = serves};
  return known_.emplace(shape, known).first->second;
}

void LinearForward::tune(const LinearShape& shape, const LinearStatisticsArguments& arguments,
                         double seconds) {
  std::vector<LinearWay> all;
  for (const LinearWay& way : ways(shape.multiprocessors, shape.tokens, shape.classes)) {
    try {
      launch(shape, way, arguments, device_.trial_stream());
      all.push_back(way);
    } catch (const CompileError& error) {
      log(LogLevel::warning, error.what());
    }
  }
  const ComparedRows rows(device_, shape, arguments);
  const std::size_t bytes =
      static_cast<std::size_t>(shape.tokens) *
      static_cast<std::size_t>(most_messages(shape.multiprocessors, shape.tokens, shape.classes)) *
      static_cast<std::size_t>(shape.statistics->words()) * 4;
  std::size_t latest = 0;
  std::vector<double> right;  // if there is no library, the first way's results are the reference
  try {
    right = rows.reference();
  } catch (const Unsupported& error) {
    log(LogLevel::warning, fmt::format("{}: tiles are only compared with each other, without a reference: {}",
                                       LinearCrossEntropy::name, error.what()));
  }
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const LinearWay& way : all) names.push_back(way.text());
  tuner::RaceResult result = tuner::run(
      device_,
      {.subject = LinearCrossEntropy::name,
       .names = std::move(names),
       .launch =
           [&](std::size_t i) {
             latest = i;
             launch(shape, all[i], arguments, device_.trial_stream());
           },
       .set_back = [&] { device_.fill(arguments.call.statistics_out, 0xff, bytes, device_.trial_stream()); },
       .read =
           [&] {
             device_.synchronize(device_.trial_stream());
             return rows.made(all[latest].messages());
           },
       .agrees = agree,
       .right = std::move(right)},
      seconds);
  const std::string text = fmt::format("{} tokens={} hidden={} classes={}", shape.statistics->text(),
                                       shape.tokens, shape.hidden, shape.classes);
  if (result.runners == 0) {
    log(LogLevel::warning,
        fmt::format("{}: no tile gives correct results on {}; ce makes its logits in chunks", text,
                    device_.model().name));
    result.winner = none_is_right;
  } else {
    log(LogLevel::info, fmt::format("tuned {} on {}: {} in {:.1f} us, the best of {}", text,
                                    device_.model().name, result.winner, result.winner_us, result.runners));
  }
  const std::lock_guard lock(mutex_);
  winners_.keep(subject_of(shape), result);
  known_.clear();  // drops entries of other numbers of tokens, too
}

void LinearForward::launch(const LinearShape& shape, const LinearWay& way,
                           const LinearStatisticsArguments& arguments, Stream stream) {
  LinearStatisticsArguments whole = arguments;
  ProductOperands& operands = whole.operands;
  const auto map = [&](const void* data, std::int64_t rows, std::int64_t stride, int box_rows) {
    return device_.tensor_map({.data = data,
                               .dtype = shape.dtype,
                               .rows = rows,
                               .columns = shape.hidden,
                               .row_stride = stride,
                               .box_rows = box_rows,
                               .box_columns = ProductTile::depth});
  };
  operands.rows_map = map(operands.of_rows, operands.rows, operands.row_stride, ProductTile::rows);
  operands.columns_map =
      map(operands.of_columns, operands.columns, operands.column_stride, way.tile.columns / way.tile.cluster);
  whole.group = way.schedule.group;
  whole.splits = way.schedule.most_splits();
  const std::int64_t blocks = std::int64_t{way.schedule.clusters} * way.tile.cluster;
  kernels_.take_statistics(*shape.statistics, way.tile, whole, blocks, stream);
}

}  // namespace ce
