// What a call costs on the host: the launches of a known problem's winner by themselves, through run(), and
// through a Plan, by 1 to 32 threads with a stream each. `ns` is the time of one call.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/call_cost/bare_launch.hpp"
#include "cache/cache.hpp"
#include "ce/ce.hpp"
#include "ce/request.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "tests/ce/known_winner.hpp"
#include "tuner/ranking.hpp"

namespace ce::bench {
namespace {

using runtime::cuda::Driver;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t rows = 64, columns = 1024;
/// So few launches that a GPU's queue takes them all without waiting.
constexpr int calls = 200;

double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

/// GPU 0's context, current on a thread, and a stream in it.
class GpuThread {
 public:
  GpuThread() {
    CUcontext context = nullptr;
    CE_CUDA_CHECK(driver_, cuDevicePrimaryCtxRetain(&context, 0));
    CE_CUDA_CHECK(driver_, cuCtxPushCurrent(context));
    CE_CUDA_CHECK(driver_, cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  GpuThread(const GpuThread&) = delete;
  GpuThread& operator=(const GpuThread&) = delete;
  ~GpuThread() {
    CUcontext context = nullptr;
    static_cast<void>(driver_.cuStreamDestroy(stream_));
    static_cast<void>(driver_.cuCtxPopCurrent(&context));
    static_cast<void>(driver_.cuDevicePrimaryCtxRelease(0));
  }
  [[nodiscard]] Stream stream() const noexcept { return stream_; }
  void wait() const { CE_CUDA_CHECK(driver_, cuStreamSynchronize(stream_)); }

 private:
  const Driver& driver_ = *Driver::get().driver;
  CUstream stream_ = nullptr;
};

/// Times batches of calls that are enqueued while the stream is empty. `ns` is that of the median batch: one
/// in which another process had the processor would weigh as much as a hundred others.
template <class Call>
void time_calls(benchmark::State& state, const Call& call) {
  const GpuThread gpu;
  call(gpu.stream());
  gpu.wait();
  std::vector<double> batches;
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) call(gpu.stream());
    const double batch = nanoseconds_since(start);
    state.SetIterationTime(batch * 1e-9 / calls);
    batches.push_back(batch);
    gpu.wait();
  }
  const auto middle = batches.begin() + static_cast<std::ptrdiff_t>(batches.size() / 2);
  std::nth_element(batches.begin(), middle, batches.end());
  state.counters["ns"] = benchmark::Counter(*middle / calls, benchmark::Counter::kAvgThreads);
}

/// One operation on tensors of its own: its bare launches, run() and a Plan.
template <class Operation>
void add_benchmarks(const std::string& name, cache::Cache& cache, const Operation& operation,
                    const typename Operation::Tensors& tensors) {
  const auto device = runtime::open_cuda_device(0);
  const auto bare = std::make_shared<BareLaunch>(cache, bind(operation, tensors, *device));
  const auto plan = std::make_shared<Plan>(default_context().prepare(operation, tensors));
  const auto add = [&](const char* kind, auto call) {
    benchmark::RegisterBenchmark((name + "/" + kind).c_str(),
                                 [call](benchmark::State& state) { time_calls(state, call); })
        ->UseManualTime()
        ->Iterations(200)
        ->Repetitions(7)
        ->ReportAggregatesOnly()
        ->ThreadRange(1, 32);
  };
  add("bare", [bare](Stream stream) { (*bare)(stream); });
  add("run", [operation, tensors](Stream stream) { run(operation, tensors, stream); });
  add("plan", [plan](Stream stream) { plan->run(stream); });
}

Tensor tensor(const Memory& memory, DType dtype, std::int64_t its_rows, std::int64_t its_columns) {
  return {.data = memory.data(), .dtype = dtype, .rows = its_rows, .columns = its_columns};
}

/// Winners for a driver on which nothing can be measured.
void know_winners(const std::filesystem::path& file) {
  cache::Cache cache = cache::Cache::open(file);
  const runtime::Model model = runtime::open_cuda_device(0)->model();
  generator::Problem problem{
      .operation = generator::Operation::softmax, .dtype = DType::bf16, .rows = rows, .columns = columns};
  test::know_winner(cache, model, problem, tuner::safe_default(problem, model));
  problem.operation = generator::Operation::cross_entropy;
  problem.reduction = Reduction::mean;
  problem.gradient = true;
  test::know_winner(cache, model, problem, tuner::safe_default(problem, model));
}

int run_benchmarks() {
  const GpuThread gpu;  // creates the device's context
  const Clock::time_point start = Clock::now();
  Context& context = default_context();
  const Memory x = context.allocate(rows * columns * 2), y = context.allocate(rows * columns * 2),
               target = context.allocate(rows * 8), loss = context.allocate(4);
  const std::vector<std::int64_t> zeros(rows * columns / 4);
  for (Memory* memory : {const_cast<Memory*>(&x), const_cast<Memory*>(&target)}) memory->upload(zeros.data());
  const Softmax::Tensors softmax{.input = tensor(x, DType::bf16, rows, columns),
                                 .output = tensor(y, DType::bf16, rows, columns)};
  const CrossEntropy::Tensors cross_entropy{.logits = softmax.input,
                                            .target = tensor(target, DType::i64, rows, 1),
                                            .loss = tensor(loss, DType::f32, 1, 1),
                                            .grad = softmax.output};
  const Choice& choice = run(Softmax{}, softmax, gpu.stream());
  benchmark::AddCustomContext(
      "first launch beyond the creation of the context",
      fmt::format("{:.2f} ms ({}, {} kernels compiled)", nanoseconds_since(start) * 1e-6, name(choice.origin),
                  context.compiled()));
  run(CrossEntropy{}, cross_entropy, gpu.stream());
  gpu.wait();

  cache::Cache cache = cache::Cache::open(cache::Cache::default_path());
  add_benchmarks("softmax", cache, Softmax{}, softmax);
  add_benchmarks("cross_entropy", cache, CrossEntropy{}, cross_entropy);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace ce::bench

int main(int argc, char** argv) try {
  benchmark::Initialize(&argc, argv);
  const bool null_driver = argc == 2 && std::string_view(argv[1]) == "--null-driver";
  if (argc > 1 && !null_driver) {
    fmt::print(stderr, "usage: ce_call_cost [--null-driver] [--benchmark_...]\n");
    return 2;
  }
  if (!null_driver) return ce::bench::run_benchmarks();
  std::string folder = std::filesystem::temp_directory_path() / "ce-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for a database: " + folder);
  const std::filesystem::path file = std::filesystem::path(folder) / "ce.db";
  ::setenv("CE_LIBCUDA", CE_NULL_DRIVER, 1);
  ::setenv("CE_DB", file.c_str(), 1);
  ce::bench::know_winners(file);
  const int status = ce::bench::run_benchmarks();
  std::filesystem::remove_all(folder);
  return status;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
