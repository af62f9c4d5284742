// What the record costs when it is large: a made-up database, and how long it takes to ask it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tuner/decide.hpp"

namespace ce::bench {
namespace {

using cache::Cache;
using cache::Key;
using cache::Measurement;
using generator::Operation;
using generator::Problem;

constexpr std::int64_t keys = 5000;
constexpr std::size_t screened = 48, finalists = 8, rejected = 8;  // of each templates
constexpr int populations = 5;                                     // drivers that finals were measured with
constexpr std::string_view old_digest = "templates of a version before";
constexpr std::int64_t a_key = 2 * (screened + rejected + finalists * populations) + finalists;  // 200
constexpr const char* device =
    "NVIDIA H200|cc=90|sm=132|l2=62914560|smem=232448/233472|regs=65536|threads=2048|mig=none";

Problem problem_of(std::int64_t i) {
  constexpr std::array operations{Operation::softmax, Operation::log_softmax, Operation::softmax_backward,
                                  Operation::log_softmax_backward, Operation::cross_entropy};
  return {.operation = operations[static_cast<std::size_t>(i) % operations.size()],
          .dtype = i / 5 % 2 == 0 ? DType::bf16 : DType::f32,
          .rows = 1024 << (i / 10 % 5),
          .columns = 1024 + 512 * (i / 50)};
}

Key key_of(std::int64_t i) { return {.problem = generator::key_text(problem_of(i)), .device = device}; }

/// What a search writes down of an H200, with figures that differ from search to search.
std::map<std::string, std::string> environment_of(std::int64_t key, int population) {
  return {{"ce", "0.1.0"},
          {"compute_processes", "1"},
          {"driver", fmt::format("{}.54.15", 550 + 5 * population)},
          {"host", "node17"},
          {"memory_clock_mhz", "3201"},
          {"nvrtc", "13.0"},
          {"power_w", fmt::format("{}", 300 + key % 300)},
          {"reference", "copy bf16 4096"},
          {"reference_us", fmt::format("{:.2f}", 412.0 + static_cast<double>(key % 97) / 100)},
          {"seed", "20300101"},
          {"sm_clock_mhz", fmt::format("{}", 1755 + (key + population) % 16 * 15)},
          {"temperature_c", fmt::format("{}", 40 + key % 30)},
          {"throttle", "none"},
          {"uuid", "GPU-8a56a4bc-0184-4f4c-8a5e-2f4c1f3e7a11"}};
}

/// All of one key: two versions of the templates, each screened once, its finals measured again with each driver.
std::vector<Measurement> measurements_of(std::int64_t i, std::mt19937& random) {
  const Problem problem = problem_of(i);
  const auto space = generator::space(problem, {.capability = 90, .shared_bytes_per_block = 232448});
  std::vector<Measurement> list;
  std::normal_distribution<float> noise(1, 0.003F);
  const auto add = [&](std::size_t config, std::string digest, int stage, int population,
                       std::size_t samples) {
    Measurement m{.key = key_of(i),
                  .config = generator::to_text(space[config * 7 % space.size()]),
                  .template_digest = std::move(digest),
                  .compile_key = fmt::format("{:032x}", i * 1000 + static_cast<std::int64_t>(config)),
                  .stage = stage,
                  .rows = problem.rows,
                  .bytes = generator::traffic(problem).total(),
                  .median_us = 100.0F * noise(random) + static_cast<float>(config),
                  .spread = 0.004,
                  .registers = 32 + static_cast<int>(config),
                  .environment = environment_of(i, population),
                  .created_at = fmt::format("20{:02}-01-{:02}T{:02}:{:02}:{:02}.{:03}Z", 30 + population,
                                            1 + i % 28, i / 28 % 24, i / 672 % 60, config, list.size())};
    for (std::size_t s = 0; s < samples; ++s)
      m.samples_us.push_back(static_cast<float>(m.median_us) * noise(random));
    list.push_back(std::move(m));
  };
  for (const bool current : {false, true}) {
    const auto digest = [&](std::size_t config) {
      return current ? generator::template_digest(problem.operation, space[config * 7 % space.size()].variant)
                     : std::string(old_digest);
    };
    const int first = current ? populations : 0;
    for (std::size_t c = 0; c < screened; ++c) add(c, digest(c), cache::stage_of_screenings, first, 3);
    for (std::size_t c = screened; c < screened + rejected; ++c) {
      add(c, digest(c), cache::stage_of_screenings, first, 0);
      list.back().outcome = cache::Outcome::quarantined;
      list.back().reason = "wrong answer: row 3, column 17";
      list.back().median_us = list.back().spread = 0;
    }
    for (int p = 0; p < populations + (current ? 1 : 0); ++p)
      for (std::size_t c = 0; c < finalists; ++c) add(c, digest(c), cache::stage_of_finals, first + p, 15);
  }
  return list;
}

void make(const std::filesystem::path& file) {
  Cache cache = Cache::open(file);
  if (!cache.status().persistent) throw std::runtime_error(cache.status().problem);
  std::mt19937 random(1);
  std::vector<Measurement> batch;
  for (std::int64_t i = 0; i < keys; ++i) {
    for (Measurement& measurement : measurements_of(i, random)) batch.push_back(std::move(measurement));
    if (i % 10 != 9) continue;
    cache.add(batch);
    batch.clear();
    if (i % 250 == 249)
      fmt::print(stderr, "\rmaking {}: {} of {}", file.string(), (i + 1) * a_key, keys * a_key);
  }
  fmt::print(stderr, "\n");
}

/// Keys in an order in which no page is likely to have been read for the one before.
std::vector<std::int64_t> shuffled() {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < keys; ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), std::mt19937(2));
  return order;
}

void look_up(benchmark::State& state, const Cache& cache) {
  const auto order = shuffled();
  std::vector<std::pair<Key, Problem>> asked;
  for (const std::int64_t i : order) asked.emplace_back(key_of(i), problem_of(i));
  std::size_t next = 0;
  for (auto _ : state) {
    const auto& [key, problem] = asked[next++ % asked.size()];
    const auto decision = tuner::decide(cache, key, problem);
    if (!tuner::is_finished(decision)) state.SkipWithError("a key has no winner");
  }
}

void look_up_what_nobody_knows(benchmark::State& state, const Cache& cache) {
  const Key unknown{.problem = "no such problem", .device = device};
  for (auto _ : state) benchmark::DoNotOptimize(tuner::decide(cache, unknown, problem_of(0)));
}

void list(benchmark::State& state, const Cache& cache) {
  for (auto _ : state) {
    std::int64_t measurements = 0;
    for (const cache::KeySummary& summary : cache.keys()) {
      measurements += summary.measurements;
      benchmark::DoNotOptimize(
          tuner::decide(cache, summary.key, generator::parse_key_text(summary.key.problem)));
    }
    if (measurements != keys * a_key) state.SkipWithError("this is another database");
  }
}

int run(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) make(file);
  const Cache cache = Cache::open_existing(file);
  const cache::Status status = cache.status();
  benchmark::AddCustomContext(
      "database", fmt::format("{} measurements of {} keys, {:.0f} MB", status.measurements, status.keys,
                              static_cast<double>(status.file_bytes) * 1e-6));
  const auto add = [&](const char* name, auto function, benchmark::TimeUnit unit) {
    benchmark::RegisterBenchmark(name, [&cache, function](benchmark::State& state) {
      function(state, cache);
    })->Unit(unit);
  };
  add("look up a winner", look_up, benchmark::kMicrosecond);
  add("look up what nobody knows", look_up_what_nobody_knows, benchmark::kMicrosecond);
  add("list all keys with their winners", list, benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace ce::bench

int main(int argc, char** argv) try {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    fmt::print(stderr,
               "usage: ce_record FILE [--benchmark_...]\nMakes the database FILE where there is none.\n");
    return 2;
  }
  return ce::bench::run(argv[1]);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
