// Tables fit lines of 80 columns, whatever names are in the database; --wide shows them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/table.hpp"
#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using test::Finished;
using testing::HasSubstr;
using testing::Not;

/// The lines of the tables in a text: from a line of titles to an empty one.
std::vector<std::string> table_lines(const std::string& text) {
  constexpr std::array first_titles{"KEY",    "PROBLEM", "FROM (UTC)", "GPU",
                                    "PRESET", "CONFIG",  " CONFIG",    "FINALIST",
                                    "AXIS",   "VARIANT", "REJECTED",   "ENVIRONMENT"};
  std::vector<std::string> lines;
  bool inside = false;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::string_view rest =
        std::string_view(line).substr(std::min(line.find_first_not_of(' '), line.size()));
    const bool begins = std::any_of(first_titles.begin(), first_titles.end(), [&](std::string_view title) {
      return rest.starts_with(title) && (rest.size() == title.size() || rest[title.size()] == ' ');
    });
    inside = !line.empty() && (inside || begins);
    if (inside) lines.push_back(line);
  }
  return lines;
}

std::size_t widest(const std::vector<std::string>& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, width_of(line));
  return width;
}

class TableWidth : public test::DatabaseTest {
 protected:
  TableWidth() {
    const auto space = generator::space(problem_, {.capability = 90, .shared_bytes_per_block = 232448});
    for (const generator::Config& config : space) texts_.push_back(generator::to_text(config));
    std::sort(texts_.begin(), texts_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    for (int gpu = 0; gpu < 4; ++gpu)
      for (int day = 1; day <= 4; ++day) {
        add(0, gpu, day, day > 2 ? 61'234.5 : 51'234.5);
        add(1, gpu, day, 71'234.25);
      }
    cache::Measurement rejected = final_of(2, 0, 1, 0);
    rejected.outcome = cache::Outcome::quarantined;
    rejected.reason = "a reason that takes more than a line of eighty columns: " + std::string(90, 'x');
    rejected.samples_us.clear();
    rejected.spread = 0;
    cache_.add(rejected);
  }

  [[nodiscard]] cache::Measurement final_of(std::size_t config, int gpu, int day, double us) const {
    cache::Measurement made = measurement(0, us);
    made.key = {generator::key_text(problem_),
                "A GPU with a name that is far longer than others|cc=90|sm=132"};
    made.config = texts_.at(config);
    made.template_digest =
        generator::template_digest(problem_.operation, made.config.substr(0, made.config.find('/')));
    made.samples_us.assign(15, static_cast<float>(us));
    made.spread = 0.002;
    made.rows = problem_.rows;
    made.bytes = generator::traffic(problem_).total();
    made.environment["uuid"] = fmt::format("GPU-8a56a4bc-0184-4f4c-8a5e-2f4c1f3e7a1{}", gpu);
    made.environment["host"] = fmt::format("a-host-with-a-long-name-{}.of.some.cluster.example", gpu);
    made.environment["driver"] = day > 2 ? "580.126.16.with.a.suffix" : "570.126.16.with.a.suffix";
    made.environment["nvrtc"] = "13.0 built on some day";
    made.created_at = fmt::format("2030-01-0{}T12:0{}:00.000Z", day, gpu);
    return made;
  }
  /// On the database, where nothing says how wide a line may be.
  [[nodiscard]] Finished on_a_page(std::vector<std::string> words) const {
    words.insert(words.end(), {"--db", database()});
    return ce_tune(words, {{"COLUMNS", ""}});
  }
  void add(std::size_t config, int gpu, int day, double us) {
    // Of GPUs that are not alike, and runs that are: there is something to tell of each.
    cache_.add(final_of(config, gpu, day, us * (gpu == 3 ? 1.08 : 1 + 0.0001 * gpu)));
  }

  const generator::Problem problem_{.operation = generator::Operation::cross_entropy,
                                    .dtype = DType::bf16,
                                    .gradient = true,
                                    .in_place = true,
                                    .rows = 1 << 20,
                                    .columns = 262144};
  std::vector<std::string> texts_;
};

TEST_F(TableWidth, OfEveryCommandIsThatOfAPageAndWideShowsAll) {
  ASSERT_EQ(text({"db", "export", path("winners.jsonl"), "--winners"}).status, 0);
  for (int gpu = 0; gpu < 4; ++gpu) add(0, gpu, 5, 91'234.5);
  const std::string key = final_of(0, 0, 1, 1).key.id();
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"db", "list"},
           {"db", "show", key},
           {"db", "history", key},
           {"db", "diff", database()},
           {"regressions", "--all"},
           {"explain", key},
           {"gate", "--baseline", path("winners.jsonl")},
           {"nodes", "--all"},
       }) {
    const std::string command = fmt::format("{} {}", words[0], words[1]);
    const Finished narrow = on_a_page(words);
    const std::vector<std::string> lines = table_lines(narrow.out);
    ASSERT_GT(lines.size(), 1U) << command << "\n" << narrow.out << narrow.err;
    EXPECT_LE(widest(lines), 80U) << command << "\n" << narrow.out;
    EXPECT_THAT(narrow.err, HasSubstr("--wide shows them")) << command;
    std::vector<std::string> more = words;
    more.emplace_back("--wide");
    const Finished wide = on_a_page(more);
    EXPECT_EQ(wide.status, narrow.status);
    EXPECT_GT(widest(table_lines(wide.out)), 80U) << command << "\n" << wide.out;
    EXPECT_THAT(wide.err, Not(HasSubstr("--wide"))) << command;
    EXPECT_EQ(table_lines(wide.out).size(), lines.size()) << command;
  }
  const Finished presets = ce_tune({"sweep", "--list-presets"}, {{"COLUMNS", ""}});
  EXPECT_LE(widest(table_lines(presets.out)), 80U) << presets.out;
  EXPECT_GT(widest(table_lines(ce_tune({"sweep", "--list-presets", "--wide"}, {{"COLUMNS", ""}}).out)), 80U);
}

}  // namespace
}  // namespace ce::cli
