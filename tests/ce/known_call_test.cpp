// Which calls need no second look, held against the checks that they are spared.
#include "ce/known_call.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "ce/error.hpp"
#include "ce/request.hpp"
#include "runtime/host/device.hpp"
#include "tests/seed.hpp"

namespace ce::test {
namespace {

/// Without what pads the end.
constexpr std::size_t argument_bytes = offsetof(Arguments, amounts) + sizeof(Arguments::amounts);

/// A kernel that is never launched: it has no steps. It takes scratch memory.
const PlanTable::Entry& put_kernel(PlanTable& table, runtime::Device& device) {
  const generator::Program program{.config = {}, .sources = {}, .steps = {}, .takes_rows = true};
  return table.put({}, tuner::Kernel(device, program), {});
}

/// Calls drawn from few sizes, strides and places, so that many are alike. The host device takes any address;
/// nothing reads from them.
class DrawnCalls : public testing::Test {
 protected:
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  bool one_in(unsigned number) { return random_() % number == 0; }

  void* place() {
    return reinterpret_cast<void*>(std::uintptr_t{1} << 21 | (random_() % 12) << 12 |
                                   static_cast<std::uintptr_t>(one_of({0, 0, 0, 0, 16, 32, 8, 4, 2, 1})));
  }

  /// One field of a tensor, drawn again.
  void change(ConstTensor& tensor) {
    switch (random_() % 12) {
      case 0: tensor.dtype = one_of({DType::f32, DType::bf16, DType::f16, DType::i64, DType::u8}); break;
      case 1: tensor.rows = one_of<std::int64_t>({0, 1, 4, 8}); break;
      case 2: tensor.columns = one_of<std::int64_t>({1, 16, 24}); break;
      case 3: tensor.row_stride = one_of<std::int64_t>({contiguous, 24, 32}); break;
      case 4: tensor.column_stride = one_of<std::int64_t>({1, 2}); break;
      case 5: tensor.batch_rows = one_of<std::int64_t>({0, 2}); break;
      case 6: tensor.batch_stride = one_of<std::int64_t>({0, 64, 100}); break;
      case 7: tensor.data = nullptr; break;
      default: tensor.data = place();
    }
  }

  void change(CrossEntropy& operation) {
    switch (random_() % 6) {
      case 0: operation.ignore_index = one_of<std::int64_t>({-100, 3}); break;
      case 1: operation.reduction = one_of({Reduction::mean, Reduction::sum, Reduction::none}); break;
      case 2: operation.label_smoothing = one_of({0.f, 0.1f, 2.f}); break;
      case 3: operation.z_loss = one_of({0.f, 0.1f}); break;
      case 4: operation.softcap = one_of({0.f, 5.f}); break;
      default: operation.logit_scale = one_of({1.f, 2.f, std::numeric_limits<float>::quiet_NaN()});
    }
  }
  void change(SoftmaxBackward&) {}

  template <class Operation>
  struct Call {
    Operation operation;
    typename Operation::Tensors tensors;
  };

  template <class Operation>
  std::optional<Request> bound(const Call<Operation>& call) {
    try {
      return bind(call.operation, call.tensors, *device_);
    } catch (const InvalidArgument&) {
      return std::nullopt;
    }
  }

  template <class Operation>
  void change(Call<Operation>& call) {
    if (one_in(8)) change(call.operation);
    for (const ConstTensor* tensor : all_of(call.tensors))
      if (tensor->data != nullptr ? one_in(2) : one_in(20)) {
        auto& own = const_cast<ConstTensor&>(*tensor);  // all_of() looks only
        if (one_in(12))
          change(own);
        else if (own.data != nullptr)
          own.data = place();
      }
  }

  /// Whether the kernel's arguments are those of the request, but for what a stream brings.
  static bool are_bound(const BoundKernel& kernel, const Request& request) {
    Arguments arguments = kernel.arguments();
    arguments.workspace = nullptr;
    arguments.partials = nullptr;
    arguments.status = nullptr;
    return std::memcmp(&arguments, &request.arguments, argument_bytes) == 0;
  }

  /// What a known call becomes must be bound as it would be by itself.
  template <class Operation>
  void expect_that_like_calls_are_bound_alike(Call<Operation> known) {
    int like = 0, refused = 0;
    const auto known_call = [&] {
      return KnownCall<Operation>(known.operation, known.tensors, {chosen_, bound(known).value()});
    };
    KnownCall<Operation> call = known_call();
    for (int turn = 0; turn < 30000; ++turn) {
      Call<Operation> other = known;
      change(other);
      const std::optional<Request> own = bound(known), others = bound(other);
      ASSERT_TRUE(own);
      refused += others ? 0 : 1;
      call.kernel.make_ready(stream_, workspaces_, statuses_);
      ASSERT_TRUE(call.kernel.is_ready_on(stream_)) << "turn " << turn;
      const bool taken = call.take(other.operation, other.tensors, *device_);
      const bool elsewhere = !are_bound(call.kernel, *own);
      ASSERT_EQ(call.kernel.is_ready_on(stream_), !elsewhere) << "turn " << turn;
      const std::optional<Request>& now = taken ? others : own;
      ASSERT_TRUE(now) << "turn " << turn;
      ASSERT_EQ(now->problem, own->problem) << "turn " << turn;
      ASSERT_TRUE(are_bound(call.kernel, *now)) << "turn " << turn;
      if (taken) {
        ++like;
        known = other;
      } else if (others && others->problem.rows > 0 && one_in(4)) {
        known = other;
        call = known_call();
      }
    }
    fmt::print("{} calls like a known one, {} refused\n", like, refused);
    EXPECT_GT(like, 100);
    EXPECT_GT(refused, 200);
  }

  Tensor tensor(std::uintptr_t number, DType dtype, std::int64_t rows, std::int64_t columns = 1) {
    return {.data = reinterpret_cast<void*>(std::uintptr_t{1} << 21 | number << 12),
            .dtype = dtype,
            .rows = rows,
            .columns = columns};
  }

  const Stream stream_ = reinterpret_cast<Stream>(std::uintptr_t{16});
  std::mt19937_64 random_{test_seed()};
  std::unique_ptr<runtime::Device> device_ = runtime::open_host_device();
  Workspaces workspaces_{*device_, 0};
  Statuses statuses_{*device_};
  PlanTable table_;
  const PlanTable::Entry& chosen_ = put_kernel(table_, *device_);
};

TEST_F(DrawnCalls, OfCrossEntropyWithEveryTensor) {
  expect_that_like_calls_are_bound_alike(Call<CrossEntropy>{{.label_smoothing = 0.1f, .z_loss = 0.1f},
                                                            {.logits = tensor(0, DType::bf16, 4, 16),
                                                             .target = tensor(1, DType::i64, 4),
                                                             .weight = tensor(2, DType::f32, 16),
                                                             .upstream = tensor(3, DType::f32, 1),
                                                             .loss = tensor(4, DType::f32, 1),
                                                             .grad = tensor(5, DType::bf16, 4, 16),
                                                             .z_loss_out = tensor(6, DType::f32, 1),
                                                             .lse = tensor(7, DType::f32, 4),
                                                             .argmax = tensor(8, DType::i64, 4),
                                                             .hit = tensor(9, DType::u8, 4)}});
}

TEST_F(DrawnCalls, OfCrossEntropyWithFew) {
  expect_that_like_calls_are_bound_alike(Call<CrossEntropy>{{},
                                                            {.logits = tensor(0, DType::bf16, 4, 16),
                                                             .target = tensor(1, DType::i64, 4),
                                                             .loss = tensor(2, DType::f32, 1),
                                                             .grad = tensor(0, DType::bf16, 4, 16)}});
}

TEST_F(DrawnCalls, OfAGradientOfSoftmax) {
  expect_that_like_calls_are_bound_alike(Call<SoftmaxBackward>{{},
                                                               {.output = tensor(0, DType::f32, 8, 24),
                                                                .output_grad = tensor(1, DType::f32, 8, 24),
                                                                .input_grad = tensor(1, DType::f32, 8, 24)}});
}

TEST(KnownCalls, BelongToAContextAndTheOldestGoesFirst) {
  const auto device = runtime::open_host_device();
  PlanTable table;
  const BoundKernel kernel(put_kernel(table, *device), {});
  KnownCalls<Softmax> calls;
  const auto tensors = [](std::int64_t rows) {
    const Tensor input{.data = reinterpret_cast<void*>(0x10000), .rows = rows, .columns = 4};
    return Softmax::Tensors{.input = input, .output = input};
  };
  const auto known = [&](std::uint64_t context, std::int64_t rows) {
    return calls.find(context, {}, tensors(rows), *device) != nullptr;
  };
  for (std::int64_t rows = 1; rows <= 9; ++rows) calls.add(7, tensors(rows), {{}, tensors(rows), kernel});
  EXPECT_FALSE(known(7, 1));
  for (std::int64_t rows = 2; rows <= 9; ++rows) {
    EXPECT_TRUE(known(7, rows));
    EXPECT_FALSE(known(8, rows));
  }
  EXPECT_FALSE(known(0, 0)) << "a place without a call";
}

}  // namespace
}  // namespace ce::test
