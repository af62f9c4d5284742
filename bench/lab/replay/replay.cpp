#include "bench/lab/replay/replay.hpp"

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

#include "bench/lab/replay/fit.hpp"
#include "ce/error.hpp"
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

constexpr std::string_view registers_word = " registers=";

/// \param model    of the last device that was named
/// \param reading  the problem that the line belongs to; null: a ceiling
void read_line(const std::string& line, Recording& recording, runtime::Model& model,
               RecordedProblem*& reading) {
  std::istringstream words(line);
  std::string first;
  words >> first;
  if (line.empty() || first == "#") return;
  if (first == "device") {
    model = model_of(line.substr(first.size() + 1));
  } else if (first == "problem" || first == "partial") {
    const std::size_t bar = line.find(" | ");
    generator::Problem problem =
        generator::parse_key_text(line.substr(first.size() + 1, bar - first.size() - 1));
    std::istringstream(line.substr(bar + 3)) >> problem.rows;
    std::vector<RecordedProblem>& all = first == "partial" ? recording.partial : recording.problems;
    reading = generator::is_ceiling(problem.operation)
                  ? nullptr
                  : &all.emplace_back(RecordedProblem{model, problem, {}});
  } else if (reading != nullptr) {
    std::string modifiers;
    const bool spills = line.ends_with(" spills");
    int registers = 0;
    if (const std::size_t at = line.find(registers_word); at != std::string::npos)
      std::from_chars(line.data() + at + registers_word.size(), line.data() + line.size(), registers);
    for (double median_us = 0, percent = 0; words >> modifiers >> median_us >> percent;)
      reading->configs.push_back({config_of(first, modifiers), median_us, percent / 100, registers, spills});
  }
}

/// Adds what a file holds.
void read_file(const std::filesystem::path& path, Recording& recording) {
  std::ifstream file(path);
  if (!file) throw NotFound(fmt::format("cannot read {}", path.string()));
  runtime::Model model;
  RecordedProblem* reading = nullptr;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      read_line(line, recording, model, reading);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{}:{}", path.string(), number), line, error.what());
    }
  }
  for (const auto* problems : {&recording.problems, &recording.partial})
    for (const RecordedProblem& problem : *problems)
      if (problem.configs.empty())
        throw InvalidArgument(path.string(), generator::key_text(problem.problem),
                              "problems with a config or more each");
}

/// As tuner::decide(), but that registers were not recorded: of those that tie, the smallest text.
/// \param last  those of the last round
std::size_t winner_of(const std::vector<const RecordedConfig*>& field,
                      const std::vector<tuner::Entrant>& entrants, const std::vector<std::size_t>& last) {
  double best_us = std::numeric_limits<double>::max();
  for (const std::size_t i : last) best_us = std::min(best_us, entrants[i].median_us);
  std::optional<std::size_t> winner;
  for (const std::size_t i : last)
    if (entrants[i].median_us <= best_us * (1 + tuner::tie) &&
        (!winner || generator::to_text(field[i]->config) < generator::to_text(field[*winner]->config)))
      winner = i;
  return winner.value();
}

/// Of as many samples of a round; what was recorded are single launches.
std::size_t launches(int samples, double us) {
  return static_cast<std::size_t>(samples * tuner::times_as_many(us) * tuner::launches_a_sample(us));
}

}  // namespace

double RecordedProblem::best_us() const {
  const auto best = std::min_element(configs.begin(), configs.end(),
                                     [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  return best->median_us;
}

Recording load(const std::vector<std::filesystem::path>& paths) {
  Recording recording;
  for (const std::filesystem::path& path : paths) read_file(path, recording);
  return recording;
}

Simulator::Simulator(const RecordedProblem& recorded, const tuner::Weights& weights)
    : best_us_(recorded.best_us()) {
  std::map<std::string, const RecordedConfig*> known;
  for (const RecordedConfig& config : recorded.configs)
    known.emplace(generator::to_text(config.config), &config);

  // As tuner::Search makes them; what was not recorded is in nobody's way.
  std::map<std::string, std::size_t> structures;
  for (const generator::Config& config : tuner::search_order(recorded.problem, recorded.model, weights)) {
    const auto found = known.find(generator::to_text(config));
    if (found == known.end()) continue;
    entrants_.push_back(
        {.structure = structures.try_emplace(tuner::structure_of(config), structures.size()).first->second,
         .load = config.load});
    field_.push_back(found->second);
  }
}

Score Simulator::search(const tuner::Breadth& breadth, std::uint64_t seed) const {
  Score score{.first = field_.front()->median_us / best_us_ - 1};
  std::mt19937_64 engine(seed);
  std::vector<tuner::Entrant> entrants = entrants_;
  std::vector<std::vector<float>> in_turns(field_.size());
  const auto take = [&](std::size_t i, std::size_t samples, std::vector<float>& into) {
    constexpr double quartiles_of_normal = 1.349;
    constexpr double fastest =
        0.9;  // what is off by more than that is slow: the spread may be of two populations
    std::normal_distribution<double> noise;
    const double deviation = field_[i]->spread / quartiles_of_normal;
    for (std::size_t n = 0; n < samples; ++n) {
      into.push_back(
          static_cast<float>(field_[i]->median_us * std::max(fastest, 1 + deviation * noise(engine))));
      score.device_us += into.back();
    }
    entrants[i].median_us = tuner::median(into);
  };
  std::vector<std::size_t> last;
  for (int number = 0; const auto round = tuner::next_round(breadth, number, entrants); ++number) {
    last = round->entrants;
    for (const std::size_t i : round->entrants) {
      if (round->in_turns) {
        const auto samples = launches(round->samples, field_[round->entrants.front()]->median_us);
        take(i, samples - std::min(samples, in_turns[i].size()), in_turns[i]);
        entrants[i].error = tuner::error_of_median(tuner::spread(in_turns[i]), in_turns[i].size());
        entrants[i].in_turns = true;
      } else {
        std::vector<float> screened;
        take(i, launches(round->samples, field_[i]->median_us), screened);
        ++score.tried;
      }
    }
  }
  const std::size_t winner = winner_of(field_, entrants, last);
  score.winner = generator::to_text(field_[winner]->config);
  score.regret = field_[winner]->median_us / best_us_ - 1;
  for (std::size_t i = 0; i < field_.size(); ++i)
    if (entrants[i].median_us > 0)
      score.losses.emplace_back(field_[i]->config,
                                std::max(0., std::log(entrants[i].median_us / entrants[winner].median_us)));
  return score;
}

double Simulator::apart(const tuner::Breadth& breadth, std::uint64_t first_seed) const {
  constexpr std::uint64_t searches = 10;
  std::vector<double> regrets;
  for (std::uint64_t seed = first_seed; seed < first_seed + searches; ++seed)
    regrets.push_back(search(breadth, seed).regret);
  const auto [least, most] = std::minmax_element(regrets.begin(), regrets.end());
  return (1 + *most) / (1 + *least) - 1;
}

/// A problem as one that nobody tuned.
struct Guesser::Stranger {
  std::map<std::string, double> regrets;             ///< of what was recorded and may run
  std::vector<std::pair<std::size_t, double>> near;  ///< problems with their distance
  double alone = 0;
};

Guesser::Guesser(const Recording& recording, const std::vector<std::string>& without)
    : Guesser(recording, recording, without) {}

Guesser::Guesser(const Recording& recording, const Recording& known, const std::vector<std::string>& without)
    : recording_(recording), known_(known) {
  constexpr std::size_t parts = 40;  // a fit takes too long to make one for each problem
  const Regression regression(recording, kept_without(without));
  const Fitted fitted = regression.fitted();
  for (std::size_t part = 0; part < parts; ++part) fits_.push_back(regression.fitted_without(part, parts));
  for (const std::size_t number : part_numbers(recording)) parts_.push_back(number % parts);
  const std::vector<RecordedProblem>& problems = recording.problems;
  std::vector<std::string> known_keys;
  for (const RecordedProblem& problem : known.problems) {
    simulators_.emplace_back(problem, fitted.weights());
    known_keys.push_back(generator::key_text(problem.problem));
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    Stranger& stranger = strangers_.emplace_back();
    for (const RecordedConfig& each : problems[i].configs)
      if (!each.spills)  // as Chooser::best_known(), which compiles it to see
        stranger.regrets.emplace(generator::to_text(each.config), each.median_us / problems[i].best_us() - 1);
    const std::string own_key = generator::key_text(problems[i].problem);
    for (std::size_t other = 0; other < known.problems.size(); ++other) {
      const auto distance = tuner::distance_between(known.problems[other].problem, problems[i].problem);
      if (distance && known_keys[other] != own_key &&
          known.problems[other].model.key() == problems[i].model.key())
        stranger.near.emplace_back(other, *distance);
    }
    std::stable_sort(stranger.near.begin(), stranger.near.end(),
                     [](const auto& a, const auto& b) { return a.second < b.second; });
    stranger.near.resize(std::min(stranger.near.size(), tuner::most_neighbours));
    stranger.alone = first_recorded(i, {}).second;
  }
}

Guesser::~Guesser() = default;

std::pair<std::string, double> Guesser::first_recorded(std::size_t problem,
                                                       std::span<const tuner::Neighbour> near) const {
  const RecordedProblem& asked = recording_.problems[problem];
  const std::map<std::string, double>& regrets = strangers_[problem].regrets;
  for (const generator::Config& config :
       tuner::ranked_space(asked.problem, asked.model, near, fits_[parts_[problem]].weights()))
    if (const auto found = regrets.find(generator::to_text(config)); found != regrets.end()) return *found;
  throw NotFound("no config of the space was recorded for " + generator::title(asked.problem));
}

std::vector<std::pair<generator::Config, double>> Guesser::losses_of(std::size_t problem, Tuned tuned,
                                                                     std::uint64_t seed) const {
  if (tuned != Tuned::exhaustively) {
    Score score = simulators_[problem].search({}, seed);
    if (tuned == Tuned::by_halving) return std::move(score.losses);
    return {{generator::parse_config(score.winner), 0}};
  }
  std::vector<std::pair<generator::Config, double>> losses;
  const RecordedProblem& recorded = known_.problems[problem];
  for (const RecordedConfig& each : recorded.configs)
    losses.emplace_back(each.config, std::log(each.median_us / recorded.best_us()));
  return losses;
}

std::vector<std::vector<tuner::Neighbour>> Guesser::neighbours(Tuned tuned, std::uint64_t seed) const {
  std::vector<std::vector<std::pair<generator::Config, double>>> losses;
  for (std::size_t i = 0; i < simulators_.size(); ++i) losses.push_back(losses_of(i, tuned, seed));
  std::vector<std::vector<tuner::Neighbour>> found;
  for (const Stranger& stranger : strangers_) {
    std::vector<tuner::Neighbour>& near = found.emplace_back();
    for (const auto& [other, distance] : stranger.near)
      near.push_back({known_.problems[other].problem, distance, losses[other]});
  }
  return found;
}

std::vector<Guess> Guesser::guesses(Tuned tuned, std::uint64_t seed) const {
  const std::vector<std::vector<tuner::Neighbour>> near = neighbours(tuned, seed);
  std::vector<Guess> guesses;
  for (std::size_t i = 0; i < strangers_.size(); ++i) {
    const auto [config, regret] = first_recorded(i, near[i]);
    guesses.push_back({.config = config,
                       .regret = regret,
                       .alone = strangers_[i].alone,
                       .nearest = near[i].empty() ? 0 : near[i].front().distance});
  }
  return guesses;
}

std::vector<Score> Guesser::searches(const tuner::Breadth& breadth, std::uint64_t seed) const {
  std::vector<Score> scores;
  for (std::size_t i = 0; i < strangers_.size(); ++i)
    scores.push_back(Simulator(recording_.problems[i], fits_[parts_[i]].weights()).search(breadth, seed));
  return scores;
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
