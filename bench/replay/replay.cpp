#include "bench/replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <sstream>

#include "bench/replay/fit.hpp"
#include "ce/base/error.hpp"
#include "generator/variant.hpp"
#include "tuner/decide.hpp"
#include "tuner/ranking.hpp"
#include "tuner/statistics.hpp"

namespace ce::replay {
namespace {

/// Values of "name=1/2|other=3" by name, as runtime::Model::key() writes them.
runtime::Model model_of(const std::string& text) {
  runtime::Model model{.name = text.substr(0, text.find('|'))};
  const auto number = [&](const std::string& name, char before = '|') {
    const std::size_t at = text.find(before + name);
    std::int64_t value = 0;
    if (at == std::string::npos) return value;
    const char* first = text.data() + at + 1 + name.size();
    std::from_chars(first, text.data() + text.size(), value);
    return value;
  };
  model.capability = static_cast<int>(number("cc="));
  model.multiprocessors = static_cast<int>(number("sm="));
  model.l2_bytes = number("l2=");
  model.shared_bytes_per_block = static_cast<int>(number("smem="));
  model.shared_bytes_per_multiprocessor =
      static_cast<int>(number("", text.find('/') == std::string::npos ? '|' : '/'));
  model.registers_per_multiprocessor = static_cast<int>(number("regs="));
  model.threads_per_multiprocessor = static_cast<int>(number("threads="));
  return model;
}

/// A config's text from that of its structure and "load.store", as far as its variant has these axes.
generator::Config config_of(const std::string& structure, const std::string& modifiers) {
  std::string text = structure;
  const std::size_t dot = modifiers.find('.');
  for (const generator::Axis* axis : generator::variant(structure.substr(0, structure.find('/'))).axes()) {
    if (axis->name == "load") text += ",load=" + modifiers.substr(0, dot);
    if (axis->name == "store") text += ",store=" + modifiers.substr(dot + 1);
  }
  return generator::parse_config(text);
}

void read_line(const std::string& line, Recording& recording, bool& skipping) {
  std::istringstream words(line);
  std::string first;
  words >> first;
  if (line.empty() || first == "#") return;
  if (first == "device") {
    recording.model = model_of(line.substr(first.size() + 1));
  } else if (first == "problem") {
    const std::size_t bar = line.find(" | ");
    generator::Problem problem =
        generator::parse_key_text(line.substr(first.size() + 1, bar - first.size() - 1));
    std::istringstream(line.substr(bar + 3)) >> problem.rows;
    skipping = generator::is_ceiling(problem.operation);
    if (!skipping) recording.problems.push_back({problem, {}});
  } else if (!skipping) {
    std::string modifiers;
    for (double median_us = 0, percent = 0; words >> modifiers >> median_us >> percent;)
      recording.problems.back().configs.push_back({config_of(first, modifiers), median_us, percent / 100});
  }
}

/// As tuner::decide(), but that registers were not recorded: of those that tie, the smallest text.
std::size_t winner_of(const std::vector<const RecordedConfig*>& field,
                      const std::vector<tuner::Entrant>& entrants) {
  double best_us = std::numeric_limits<double>::max();
  for (const tuner::Entrant& entrant : entrants)
    if (entrant.in_turns) best_us = std::min(best_us, entrant.median_us);
  std::optional<std::size_t> winner;
  for (std::size_t i = 0; i < field.size(); ++i)
    if (entrants[i].in_turns && entrants[i].median_us <= best_us * (1 + tuner::tie) &&
        (!winner || generator::to_text(field[i]->config) < generator::to_text(field[*winner]->config)))
      winner = i;
  return winner.value();
}

}  // namespace

double RecordedProblem::best_us() const {
  const auto best = std::min_element(configs.begin(), configs.end(),
                                     [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  return best->median_us;
}

Recording load(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw NotFound(fmt::format("cannot read {}", path.string()));
  Recording recording;
  bool skipping = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      read_line(line, recording, skipping);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{}:{}", path.string(), number), line, error.what());
    }
  }
  return recording;
}

Score search(const RecordedProblem& recorded, const runtime::Model& model, const tuner::Breadth& breadth,
             std::uint64_t seed) {
  std::map<std::string, const RecordedConfig*> known;
  for (const RecordedConfig& config : recorded.configs)
    known.emplace(generator::to_text(config.config), &config);

  // As tuner::Search makes them; what was not recorded is in nobody's way.
  std::vector<const RecordedConfig*> field;
  std::vector<tuner::Entrant> entrants;
  std::map<std::string, std::size_t> structures;
  for (const generator::Config& config : tuner::search_order(recorded.problem, model, {})) {
    const auto found = known.find(generator::to_text(config));
    if (found == known.end()) continue;
    entrants.push_back(
        {.structure = structures.try_emplace(tuner::structure_of(config), structures.size()).first->second,
         .load = config.load});
    field.push_back(found->second);
  }
  Score score{.first = field.front()->median_us / recorded.best_us() - 1};

  std::mt19937_64 engine(seed);
  std::vector<std::vector<float>> in_turns(field.size());
  const auto take = [&](std::size_t i, std::size_t samples, std::vector<float>& into) {
    constexpr double quartiles_of_normal = 1.349;
    constexpr double fastest =
        0.9;  // what is off by more than that is slow: the spread may be of two populations
    std::normal_distribution<double> noise;
    const double deviation = field[i]->spread / quartiles_of_normal;
    for (std::size_t n = 0; n < samples; ++n) {
      into.push_back(
          static_cast<float>(field[i]->median_us * std::max(fastest, 1 + deviation * noise(engine))));
      score.device_us += into.back();
    }
    entrants[i].median_us = tuner::median(into);
  };
  for (int number = 0; const auto round = tuner::next_round(breadth, number, entrants); ++number)
    for (const std::size_t i : round->entrants) {
      if (round->in_turns) {
        const auto samples = static_cast<std::size_t>(
            round->samples * tuner::times_as_many(field[round->entrants.front()]->median_us));
        take(i, samples - std::min(samples, in_turns[i].size()), in_turns[i]);
        entrants[i].error = tuner::error_of_median(tuner::spread(in_turns[i]), in_turns[i].size());
        entrants[i].in_turns = true;
      } else {
        std::vector<float> screened;
        take(i, static_cast<std::size_t>(round->samples * tuner::times_as_many(field[i]->median_us)),
             screened);
        ++score.tried;
      }
    }
  const std::size_t winner = winner_of(field, entrants);
  score.winner = generator::to_text(field[winner]->config);
  score.regret = field[winner]->median_us / recorded.best_us() - 1;
  for (std::size_t i = 0; i < field.size(); ++i)
    if (entrants[i].median_us > 0)
      score.losses.emplace_back(field[i]->config,
                                std::log(entrants[i].median_us / entrants[winner].median_us));
  return score;
}

double apart(const RecordedProblem& recorded, const runtime::Model& model, const tuner::Breadth& breadth,
             std::uint64_t first_seed) {
  constexpr std::uint64_t searches = 10;
  std::vector<double> regrets;
  for (std::uint64_t seed = first_seed; seed < first_seed + searches; ++seed)
    regrets.push_back(search(recorded, model, breadth, seed).regret);
  const auto [least, most] = std::minmax_element(regrets.begin(), regrets.end());
  return (1 + *most) / (1 + *least) - 1;
}

std::vector<Guess> guesses(const Recording& recording, Tuned tuned, std::uint64_t seed) {
  const std::vector<RecordedProblem>& problems = recording.problems;
  std::vector<std::vector<std::pair<generator::Config, double>>> losses;
  for (const RecordedProblem& problem : problems) {
    auto& own = losses.emplace_back();
    if (tuned == Tuned::exhaustively) {
      for (const RecordedConfig& each : problem.configs)
        own.emplace_back(each.config, std::log(each.median_us / problem.best_us()));
      continue;
    }
    Score score = search(problem, recording.model, {}, seed);
    if (tuned == Tuned::by_halving)
      own = std::move(score.losses);
    else
      own.emplace_back(generator::parse_config(score.winner), 0);
  }

  constexpr std::size_t parts = 12;  // a fit takes too long to make one for each problem
  const Regression regression(recording);
  std::vector<Fitted> fits;
  for (std::size_t part = 0; part < parts; ++part) fits.push_back(regression.fitted_without(part, parts));
  std::vector<Guess> guesses;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    std::vector<tuner::Neighbour> near;
    for (std::size_t other = 0; other < problems.size(); ++other) {
      const auto distance = tuner::distance_between(problems[other].problem, problems[i].problem);
      if (other != i && distance) near.push_back({problems[other].problem, *distance, losses[other]});
    }
    std::stable_sort(near.begin(), near.end(),
                     [](const auto& a, const auto& b) { return a.distance < b.distance; });
    near.resize(std::min(near.size(), tuner::most_neighbours));

    std::map<std::string, double> known;
    for (const RecordedConfig& each : problems[i].configs)
      known.emplace(generator::to_text(each.config), each.median_us / problems[i].best_us() - 1);
    // What was not recorded was not right, or does not fit: as a Chooser goes on to the next.
    const auto first_known = [&](std::span<const tuner::Neighbour> neighbours) {
      for (const generator::Config& config :
           tuner::ranked_space(problems[i].problem, recording.model, neighbours, fits[i % parts].weights()))
        if (const auto found = known.find(generator::to_text(config)); found != known.end()) return *found;
      throw NotFound("no config of the space was recorded for " + generator::title(problems[i].problem));
    };
    const auto [config, regret] = first_known(near);
    guesses.push_back({.config = config,
                       .regret = regret,
                       .alone = first_known({}).second,
                       .nearest = near.empty() ? 0 : near.front().distance});
  }
  return guesses;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

Summary summary_of(std::vector<Score> scores) {
  std::vector<double> regrets, speeds;
  double tried = 0, device_us = 0;
  for (const Score& score : scores) {
    regrets.push_back(score.regret);
    speeds.push_back(1 / (1 + score.first));
    tried += score.tried;
    device_us += score.device_us;
  }
  const auto count = static_cast<double>(scores.size());
  return {.median = quantile(regrets, 0.5),
          .p95 = quantile(regrets, 0.95),
          .worst = quantile(regrets, 1),
          .first_median = quantile(speeds, 0.5),
          .tried = tried / count,
          .device_ms = device_us * 1e-3 / count};
}

}  // namespace ce::replay
