// What a measurement more costs the commands that read a whole database: they look at one problem after the other.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"

extern char** environ;

namespace ce::cli {
namespace {

class Memory : public test::CommandTest {
 protected:
  static constexpr int of_a_key = 100;

  [[nodiscard]] std::string path(const std::string& name) const { return (folder() / name).string(); }

  /// Problems with screenings and finals of four drivers.
  void make(const std::string& name, int keys) const {
    const std::vector<generator::Config> space = generator::space(test::softmax, {.capability = 90});
    cache::Cache cache = cache::Cache::open(path(name));
    std::vector<cache::Measurement> list;
    for (int key = 0; key < keys; ++key) {
      generator::Problem problem = test::softmax;
      problem.columns = 1024 + 8 * key;
      for (int i = 0; i < of_a_key; ++i) {
        const generator::Config& config = space[static_cast<std::size_t>(i % 10) * 7 % space.size()];
        const int driver = i / 10 % 4;
        const bool is_final = i < of_a_key / 2;
        list.push_back({.key = {generator::key_text(problem), "Some GPU|cc=90|sm=132"},
                        .config = generator::to_text(config),
                        .template_digest = generator::template_digest(problem.operation, config.variant),
                        .compile_key = fmt::format("{:032x}", i),
                        .stage = is_final ? 1 : 0,
                        .rows = 8192,
                        .bytes = generator::traffic(problem).total(),
                        .samples_us = std::vector<float>(15, 60 + static_cast<float>(i)),
                        .median_us = 60.0 + i,
                        .spread = 0.01,
                        .registers = 40,
                        .environment = {{"uuid", "GPU-1"},
                                        {"driver", fmt::format("58{}.1", driver)},
                                        {"nvrtc", "13.0"},
                                        {"power_w", fmt::to_string(key)},
                                        {"host", "node17"}},
                        .created_at = fmt::format("203{}-01-01T00:{:02}:{:02}.{:03}Z", driver, key / 60 % 60,
                                                  key % 60, i)});
      }
    }
    cache.add(list);
  }

  /// Bytes that a command had at most. The system counts the memory of who starts a program as the program's, so a
  /// shell starts it, which has little, and leaves it to this process.
  [[nodiscard]] double peak_of(const std::vector<std::string>& words) const {
    std::vector<std::string> all{"/bin/sh", "-c", "\"$@\" &", "sh", CE_TUNE};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, path("said").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t shell = 0;
    EXPECT_EQ(posix_spawn(&shell, "/bin/sh", &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    int status = -1;
    rusage usage{};
    EXPECT_EQ(::waitpid(shell, &status, 0), shell);
    EXPECT_EQ(status, 0);
    EXPECT_GT(::wait4(-1, &status, 0, &usage), 0);
    EXPECT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 4))
        << status << test::read_file(path("said"));
    return static_cast<double>(usage.ru_maxrss) * 1024;
  }
};

TEST_F(Memory, OfAMeasurementMoreIsAFewBytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps what is freed";
#endif
  // Of both, each command reads more than the 16 MiB of pages that SQLite keeps.
  constexpr int few = 400, many = 700;
  make("few.db", few);
  make("many.db", many);
  const auto command = [&](const std::string& what, const std::string& size) -> std::vector<std::string> {
    const std::string database = path(size + ".db"), text = path(size + ".jsonl"),
                      made = path(size + what + ".db");
    if (what == "regressions") return {"regressions", "--db", database};
    if (what == "report") return {"report", "--db", database, "--html", path("page.html")};
    if (what == "diff") return {"db", "diff", database, "--db", path("few.db")};
    if (what == "export") return {"db", "export", text, "--db", database};
    if (what == "import") return {"db", "import", text, "--db", made};
    return {"db", "merge", database, "--db", made};
  };
  // A measurement takes 500 bytes in the file, and 1500 in memory. Who writes many keeps more pages than these fill.
  for (const auto& [what, most] : std::vector<std::pair<std::string, double>>{{"regressions", 170},
                                                                              {"diff", 170},
                                                                              {"export", 170},
                                                                              {"import", 900},
                                                                              {"merge", 900},
                                                                              {"report", 300}}) {
    const double before = peak_of(command(what, "few")), after = peak_of(command(what, "many"));
    const double each = (after - before) / ((many - few) * of_a_key);
    EXPECT_LT(each, most) << what << ": " << before << " -> " << after;
    RecordProperty(what, fmt::format("{:.0f}", each));
  }
}

}  // namespace
}  // namespace ce::cli
