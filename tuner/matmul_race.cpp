#include "tuner/matmul_race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "base/digest.hpp"
#include "base/log.hpp"
#include "tuner/statistics.hpp"
#include "tuner/verify/elements.hpp"

namespace ce::tuner {
namespace {

/// As many as the library is asked for, and those that are timed more than once.
constexpr int most_algorithms = 16;
constexpr std::size_t most_finalists = 4;
/// How much slower the one that the library names first must be to be passed over: less is noise.
constexpr double least_gain = 1.005;
constexpr int final_turns = 4, samples_in_final = 2;

struct Runner {
  const runtime::MatmulAlgorithm* algorithm;
  std::vector<float> samples;
};

/// The first and the last elements of what a product writes, as far as they follow each other.
class Samples {
 public:
  Samples(const runtime::Matmul& matmul, void* d) : matmul_(matmul) {
    constexpr std::int64_t most = 16384;
    const std::int64_t count = std::min(matmul.n, most);
    for (const std::int64_t start : {std::int64_t{0}, (matmul.m - 1) * matmul.d_stride + matmul.n - count})
      pieces_.push_back({static_cast<std::byte*>(d) + start * size_of(matmul.output), count});
  }

  /// NaN, or zeros for what is added to.
  void set_back(runtime::Device& device) const {
    for (const Piece& piece : pieces_)
      device.fill(piece.data, matmul_.accumulates ? 0 : 0xff, bytes_of(piece), device.trial_stream());
  }
  [[nodiscard]] std::vector<double> read(runtime::Device& device) const {
    std::vector<double> all;
    device.synchronize(device.trial_stream());
    for (const Piece& piece : pieces_) {
      std::vector<std::byte> bytes(bytes_of(piece));
      device.download(bytes.data(), piece.data, bytes.size());
      for (std::int64_t i = 0; i < piece.count; ++i)
        all.push_back(generator::read_element(matmul_.output, bytes.data(), i));
    }
    return all;
  }

 private:
  struct Piece {
    std::byte* data;
    std::int64_t count;
  };
  [[nodiscard]] std::size_t bytes_of(const Piece& piece) const {
    return static_cast<std::size_t>(piece.count * size_of(matmul_.output));
  }

  const runtime::Matmul& matmul_;
  std::vector<Piece> pieces_;
};

/// Sums in another order differ by little beside the largest of them.
bool agree(const std::vector<double>& a, const std::vector<double>& b, DType dtype) {
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : 0);
  const double unit = dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool alike = std::isfinite(b[i])
                           ? std::abs(a[i] - b[i]) <= 2 * unit * std::abs(b[i]) + 0x1p-10 * largest
                       : std::isnan(b[i]) ? std::isnan(a[i])
                                          : a[i] == b[i];
    if (!alike) return false;
  }
  return true;
}

bool is_faster(const Runner& a, const Runner& b) { return median(a.samples) < median(b.samples); }

}  // namespace

runtime::Matmul TokenMatmul::bucket() const {
  runtime::Matmul rounded = matmul;
  rounded.*tokens = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(matmul.*tokens)));
  return rounded;
}

RaceResult race(runtime::Device& device, const runtime::Matmul& matmul,
                const runtime::MatmulOperands& operands, std::span<const runtime::MatmulAlgorithm> algorithms,
                double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto is_over = [&] {
    return seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() > seconds;
  };
  runtime::MatmulLibrary& library = device.matmuls();
  const auto take = [&](Runner& runner, int samples) {
    const std::vector<float> taken = device.time(
        samples, [] {}, [&] { library.launch(matmul, *runner.algorithm, operands, device.trial_stream()); });
    runner.samples.insert(runner.samples.end(), taken.begin(), taken.end());
  };
  const Samples samples(matmul, operands.d);
  std::vector<double> right;
  std::vector<Runner> runners;
  int wrong = 0;
  for (const runtime::MatmulAlgorithm& algorithm : algorithms) {
    if (!runners.empty() && is_over()) break;
    samples.set_back(device);
    library.launch(matmul, algorithm, operands, device.trial_stream());
    std::vector<double> made = samples.read(device);
    if (runners.empty()) {
      right = std::move(made);
    } else if (!agree(made, right, matmul.output)) {
      log(LogLevel::warning, fmt::format("{} of {} is left out: its result differs from that of {}",
                                         algorithm.text, library.name(), runners.front().algorithm->text));
      ++wrong;
      continue;
    }
    take(runners.emplace_back(Runner{&algorithm, {}}), 2);
  }
  const Runner first = runners.front();
  std::sort(runners.begin(), runners.end(), is_faster);
  // The one that the library names first takes part to the end: what it is beaten by is told.
  const auto place = std::find_if(runners.begin(), runners.end(),
                                  [&](const Runner& runner) { return runner.algorithm == first.algorithm; });
  const std::size_t count = std::min(most_finalists, runners.size());
  if (place - runners.begin() >= static_cast<std::ptrdiff_t>(count))
    std::iter_swap(place, runners.begin() + static_cast<std::ptrdiff_t>(count) - 1);
  const std::span<Runner> last = std::span(runners).first(count);
  for (int turn = 0; turn < final_turns && count > 1 && !is_over(); ++turn)
    for (std::size_t i = 0; i < count; ++i)
      take(last[(i + static_cast<std::size_t>(turn)) % count], samples_in_final);
  const Runner& fastest = *std::min_element(last.begin(), last.end(), is_faster);
  const Runner& of_first = *std::find_if(
      last.begin(), last.end(), [&](const Runner& runner) { return runner.algorithm == first.algorithm; });
  const bool gains = median(of_first.samples) > least_gain * median(fastest.samples);
  const Runner& winner = gains ? fastest : of_first;
  return {.winner = winner.algorithm->text,
          .first = first.algorithm->text,
          .winner_us = median(winner.samples),
          .first_us = median(of_first.samples),
          .algorithms = static_cast<int>(runners.size()),
          .wrong = wrong};
}

std::string MatmulChooser::key_of(const TokenMatmul& product, std::int64_t most_workspace) {
  return digest({"matmul", product.bucket().key(), fmt::to_string(most_workspace), device_.matmuls().name(),
                 device_.model().key()});
}

const std::string& MatmulChooser::winner_of(const std::string& key) {
  const auto known = winners_.find(key);
  if (known != winners_.end()) return known->second;
  std::string text;
  if (const std::optional<std::vector<std::byte>> kept = cache_.binary(key))
    text.assign(reinterpret_cast<const char*>(kept->data()), kept->size());
  return winners_.emplace(key, std::move(text)).first->second;
}

runtime::MatmulAlgorithm MatmulChooser::choose(const TokenMatmul& product, std::int64_t most_workspace) {
  const std::lock_guard lock(mutex_);
  const auto known = chosen_.find({product.matmul, most_workspace});
  if (known != chosen_.end()) return known->second;
  const std::string& winner = winner_of(key_of(product, most_workspace));
  const std::vector<runtime::MatmulAlgorithm> all =
      device_.matmuls().algorithms(product.matmul, most_workspace, winner.empty() ? 1 : most_algorithms);
  const auto same = std::find_if(all.begin(), all.end(), [&](const runtime::MatmulAlgorithm& algorithm) {
    return algorithm.text == winner;
  });
  const runtime::MatmulAlgorithm& chosen = same != all.end() ? *same : all.front();
  return chosen_.emplace(std::pair(product.matmul, most_workspace), chosen).first->second;
}

bool MatmulChooser::is_open(const TokenMatmul& product, std::int64_t most_workspace) {
  const std::lock_guard lock(mutex_);
  return winner_of(key_of(product, most_workspace)).empty();
}

void MatmulChooser::tune(const TokenMatmul& product, const runtime::MatmulOperands& operands,
                         std::int64_t most_workspace, double seconds) {
  const std::string key = key_of(product, most_workspace);
  const std::vector<runtime::MatmulAlgorithm> all =
      device_.matmuls().algorithms(product.matmul, most_workspace, most_algorithms);
  const RaceResult result =
      all.size() > 1 ? race(device_, product.matmul, operands, all, seconds)
                     : RaceResult{.winner = all.front().text, .first = all.front().text, .algorithms = 1};
  const std::string text = product.bucket().key();
  if (result.algorithms > 1) {
    cache_.keep_binary(key, std::as_bytes(std::span(result.winner)),
                       {.compiler = device_.matmuls().name(), .name = text});
    log(LogLevel::info,
        fmt::format("tuned {} on {}: {} in {:.1f} us, the best of {}; the library's first took {:.1f} us",
                    text, device_.model().name, result.winner, result.winner_us, result.algorithms,
                    result.first_us));
  }
  const std::lock_guard lock(mutex_);
  winners_[key] = result.winner;
  // Of other numbers of tokens, too: they are looked up anew.
  chosen_.clear();
}

}  // namespace ce::tuner
