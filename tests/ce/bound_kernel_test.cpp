// What a kernel that is bound to the tensors of a call needs beside them.
#include "ce/bound_kernel.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/host/device.hpp"

namespace ce::test {
namespace {

class BoundKernelTest : public testing::Test {
 protected:
  /// To a softmax. It is never launched: it has no steps.
  BoundKernel bound_to_softmax(bool takes_rows, std::int64_t partial_bytes = 0) {
    return bound({.operation = generator::Operation::softmax, .rows = 4, .columns = 16}, takes_rows,
                 partial_bytes);
  }
  BoundKernel bound(const generator::Problem& problem, bool takes_rows = false,
                    std::int64_t partial_bytes = 0) {
    const generator::Program program{
        .config = {}, .sources = {}, .steps = {}, .partial_bytes = partial_bytes, .takes_rows = takes_rows};
    Request request{.problem = problem};
    request.arguments.output = memory(1);
    return {table_.put(problem, tuner::Kernel(*device_, program), {.config = "chosen"}), request};
  }
  static void* memory(std::uintptr_t number) { return reinterpret_cast<void*>(number << 12); }
  static Stream stream(std::uintptr_t number) { return reinterpret_cast<Stream>(number << 8); }
  static Softmax::Tensors tensors(std::uintptr_t number) {
    return {.input = {.data = memory(number)}, .output = {.data = memory(number + 1)}};
  }
  static std::ptrdiff_t begin_of_partials(const BoundKernel& kernel) {
    return static_cast<const std::byte*>(kernel.arguments().partials) -
           reinterpret_cast<const std::byte*>(kernel.arguments().workspace);
  }

  std::unique_ptr<runtime::Device> device_ = runtime::open_host_device();
  Workspaces workspaces_{*device_, 0};
  Statuses statuses_{*device_};
  PlanTable table_;
};

TEST_F(BoundKernelTest, IsReadyWhereItNeedsNothingButItsTensors) {
  BoundKernel kernel = bound_to_softmax(false);
  EXPECT_EQ(kernel.choice().config, "chosen");
  EXPECT_TRUE(kernel.is_ready_on(nullptr));
  kernel.make_ready(stream(1), workspaces_, statuses_);
  kernel.move(tensors(5));
  EXPECT_TRUE(kernel.is_ready_on(stream(2)));
  EXPECT_EQ(kernel.arguments().input, memory(5));
  EXPECT_EQ(kernel.arguments().output, memory(6));
  EXPECT_EQ(kernel.arguments().workspace, nullptr);
  EXPECT_EQ(kernel.arguments().status, nullptr);
}

TEST_F(BoundKernelTest, HasTheScratchMemoryOfOneStreamAndOutput) {
  BoundKernel kernel = bound_to_softmax(true);
  for (const Stream on : {stream(1), stream(2)}) {
    EXPECT_FALSE(kernel.is_ready_on(on));
    kernel.make_ready(on, workspaces_, statuses_);
    EXPECT_TRUE(kernel.is_ready_on(on));
    EXPECT_EQ(kernel.arguments().workspace, workspaces_.get(on, memory(1), 1).memory);
  }
  EXPECT_FALSE(kernel.is_ready_on(stream(1)));
  kernel.move(tensors(5));
  EXPECT_FALSE(kernel.is_ready_on(stream(2)));
  kernel.make_ready(stream(2), workspaces_, statuses_);
  EXPECT_EQ(kernel.arguments().workspace, workspaces_.get(stream(2), memory(6), 1).memory);
}

TEST_F(BoundKernelTest, PartialsLieBehindTheCounters) {
  BoundKernel kernel = bound_to_softmax(false, 64);
  kernel.make_ready(nullptr, workspaces_, statuses_);
  EXPECT_GE(begin_of_partials(kernel), std::ptrdiff_t{sizeof(Workspace)});
  EXPECT_EQ(begin_of_partials(kernel) % 16, 0);
}

TEST_F(BoundKernelTest, MemoryThatIsLentOnceServesOneCall) {
  constexpr std::int64_t much = std::int64_t{1} << 20;
  BoundKernel kernel = bound_to_softmax(false, much);
  kernel.make_ready(nullptr, workspaces_, statuses_);
  EXPECT_NE(kernel.arguments().workspace, nullptr);
  EXPECT_FALSE(kernel.is_ready_on(nullptr));
}

TEST_F(BoundKernelTest, CountsBadTargetsWhereTheStreamIsChecked) {
  BoundKernel kernel = bound({.operation = generator::Operation::cross_entropy, .rows = 4, .columns = 16});
  EXPECT_FALSE(kernel.is_ready_on(nullptr));
  kernel.make_ready(nullptr, workspaces_, statuses_);
  EXPECT_TRUE(kernel.is_ready_on(nullptr));
  EXPECT_EQ(kernel.arguments().status, statuses_.of(nullptr, generator::Operation::cross_entropy));
}

}  // namespace
}  // namespace ce::test
