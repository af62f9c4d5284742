// What a call costs on the host: the launches of a known problem's winner by themselves (`bare`), through run(), and
// through a Plan, by 1 to 32 threads with a stream each. In nanoseconds of one call; `..._beyond` is what a call takes
// beyond the bare launches.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/call_cost/bare_launch.hpp"
#include "cache/cache.hpp"
#include "ce/ce.hpp"
#include "ce/request.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/driver.hpp"
#include "templates/arguments.cuh"
#include "tests/ce/known_winner.hpp"
#include "tuner/ranking.hpp"

namespace ce::bench {
namespace {

using runtime::cuda::Driver;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t columns = 1024;
/// Of a loss with its gradient: few take one launch, many three.
constexpr std::int64_t few = 64, many = 256;
static_assert(few <= most_fused_rows && many > most_fused_rows);
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

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The mean time of a call of a batch that is enqueued while the stream is empty.
template <class Call>
double time_batch(const GpuThread& gpu, const Call& call) {
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < calls; ++i) call(gpu.stream());
  const double batch = nanoseconds_since(start);
  gpu.wait();
  return batch / calls;
}

/// Batches of each kind of call in turns, so that what moves the driver or the processor moves all alike. Medians: a
/// batch in which another process had the processor would weigh as much as a hundred others.
template <class Bare, class Run, class PlanRun>
void time_calls(benchmark::State& state, const Bare& bare, const Run& run, const PlanRun& plan) {
  const GpuThread gpu;
  bare(gpu.stream());
  run(gpu.stream());
  plan(gpu.stream());
  gpu.wait();
  std::vector<double> bares, runs, plans, runs_beyond, plans_beyond;
  for (auto _ : state) {
    bares.push_back(time_batch(gpu, bare));
    runs.push_back(time_batch(gpu, run));
    plans.push_back(time_batch(gpu, plan));
    runs_beyond.push_back(runs.back() - bares.back());
    plans_beyond.push_back(plans.back() - bares.back());
    state.SetIterationTime((bares.back() + runs.back() + plans.back()) * 1e-9);
  }
  for (const auto& [name, values] : {std::pair{"bare", &bares},
                                     {"run", &runs},
                                     {"plan", &plans},
                                     {"run_beyond", &runs_beyond},
                                     {"plan_beyond", &plans_beyond}})
    state.counters[name] = benchmark::Counter(median(*values), benchmark::Counter::kAvgThreads);
}

/// One operation on tensors of its own.
template <class Operation>
void add_benchmark(const std::string& name, cache::Cache& cache, const Operation& operation,
                   const typename Operation::Tensors& tensors) {
  const auto device = runtime::open_cuda_device(0);
  const auto bare = std::make_shared<BareLaunch>(cache, bind(operation, tensors, *device));
  const auto plan = std::make_shared<Plan>(default_context().prepare(operation, tensors));
  benchmark::RegisterBenchmark(name.c_str(),
                               [bare, plan, operation, tensors](benchmark::State& state) {
                                 time_calls(
                                     state, [&](Stream stream) { (*bare)(stream); },
                                     [&](Stream stream) { run(operation, tensors, stream); },
                                     [&](Stream stream) { plan->run(stream); });
                               })
      ->UseManualTime()
      ->Iterations(60)
      ->Repetitions(3)
      ->ReportAggregatesOnly()
      ->ThreadRange(1, 32);
}

/// Whether the compiler is mapped into this process.
bool has_nvrtc() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("nvrtc") != std::string::npos) return true;
  return false;
}

Tensor tensor(const Memory& memory, DType dtype, std::int64_t its_rows, std::int64_t its_columns) {
  return {.data = memory.data(), .dtype = dtype, .rows = its_rows, .columns = its_columns};
}

/// Winners for a driver on which nothing can be measured.
void know_winners(const std::filesystem::path& file) {
  cache::Cache cache = cache::Cache::open(file);
  const std::unique_ptr<runtime::Device> device = runtime::open_cuda_device(0);
  generator::Problem problem{
      .operation = generator::Operation::softmax, .dtype = DType::bf16, .rows = few, .columns = columns};
  test::know_winner(cache, *device, problem, tuner::safe_default(problem, device->model()));
  problem.operation = generator::Operation::cross_entropy;
  problem.reduction = Reduction::mean;
  problem.gradient = true;
  for (const std::int64_t rows : {few, many}) {
    problem.rows = rows;
    test::know_winner(cache, *device, problem, tuner::safe_default(problem, device->model()));
  }
}

int run_benchmarks() {
  const GpuThread gpu;  // creates the device's context
  const Clock::time_point start = Clock::now();
  Context& context = default_context();
  const Memory x = context.allocate(many * columns * 2), y = context.allocate(many * columns * 2),
               target = context.allocate(many * 8), loss = context.allocate(4);
  const std::vector<std::int64_t> zeros(many * columns / 4);
  for (Memory* memory : {const_cast<Memory*>(&x), const_cast<Memory*>(&target)}) memory->upload(zeros.data());
  const Softmax::Tensors softmax{.input = tensor(x, DType::bf16, few, columns),
                                 .output = tensor(y, DType::bf16, few, columns)};
  const auto cross_entropy = [&](std::int64_t rows) {
    return CrossEntropy::Tensors{.logits = tensor(x, DType::bf16, rows, columns),
                                 .target = tensor(target, DType::i64, rows, 1),
                                 .loss = tensor(loss, DType::f32, 1, 1),
                                 .grad = tensor(y, DType::bf16, rows, columns)};
  };
  const Choice& choice = run(Softmax{}, softmax, gpu.stream());
  const double first_ms = nanoseconds_since(start) * 1e-6;
  benchmark::AddCustomContext(
      "first launch beyond the creation of the context",
      fmt::format("{:.2f} ms ({}, {} kernels compiled, NVRTC {})", first_ms, name(choice.origin),
                  context.compiled(), has_nvrtc() ? "loaded" : "not loaded"));
  for (const std::int64_t rows : {few, many}) run(CrossEntropy{}, cross_entropy(rows), gpu.stream());
  gpu.wait();

  cache::Cache cache = cache::Cache::open(cache::Cache::default_path());
  add_benchmark("softmax", cache, Softmax{}, softmax);
  add_benchmark("cross_entropy", cache, CrossEntropy{}, cross_entropy(few));
  add_benchmark("cross_entropy of more rows", cache, CrossEntropy{}, cross_entropy(many));
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
