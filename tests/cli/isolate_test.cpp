// sweep --isolate and sweep over several devices: configs that kill the process that launches them, or never end.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class Isolate : public test::CommandTest {
 protected:
  /// What happens to a process that loads a kernel, as a statement of C++, by names.
  using Faults = std::vector<std::pair<std::string, std::string>>;

  enum class Kernels { of_problems, of_ceilings };

  /// The host compiler, but for as many of the first kernels: the first one has the first of the faults, ...
  std::string faulty_compiler(const Faults& faults, Kernels kernels = Kernels::of_problems) const {
    const std::string are_of_ceilings = "grep -q 'template kernels/bandwidth' \"$source\"";
    std::string names;
    for (const auto& [name, fault] : faults) {
      test::write_file(folder() / (name + ".hpp"),
                       "#include <sys/stat.h>\n#include <unistd.h>\n#include <csignal>\n#include <cstdio>\n"
                       "#include <cstring>\n"
                       "[[gnu::constructor]] static void f() { " +
                           fault + " }\n");
      names += " " + name;
    }
    const std::filesystem::path script = folder() / "compiler";
    test::write_file(script,
                     "#!/bin/sh\n"
                     "for source; do :; done\n"
                     "if [ -f \"$source\" ] && grep -q 'int warps = ' \"$source\" && " +
                         std::string(kernels == Kernels::of_ceilings ? "" : "! ") + are_of_ceilings +
                         "; then\n"
                         "  sum=$(cksum < \"$source\")\n"
                         "  for fault in" +
                         names +
                         "; do\n"
                         "    header=" +
                         folder().string() +
                         "/$fault.hpp\n"
                         "    mkdir \"$header.of\" 2> /dev/null && echo \"$sum\" > \"$header.of/sum\"\n"
                         "    if [ \"$(cat \"$header.of/sum\")\" = \"$sum\" ]; then\n"
                         "      set -- \"$@\" -include \"$header\"\n"
                         "      break\n"
                         "    fi\n"
                         "  done\n"
                         "fi\n"
                         "exec c++ \"$@\"\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script.string();
  }

  [[nodiscard]] std::vector<std::string> words(const std::string& database, const std::string& configs,
                                               std::vector<std::string> more) const {
    const bool has_device = std::find(more.begin(), more.end(), "--device") != more.end();
    if (!has_device) more.insert(more.begin(), {"--device", "host"});
    more.insert(more.begin(), {"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000",
                               "--db", database, "--configs", configs, "--samples", "2"});
    return more;
  }

  Finished sweep(std::vector<std::string> more,
                 const Faults& faults = {{"kill", "std::raise(SIGABRT);"}, {"hang", "for (;;) ::pause();"}},
                 const std::string& configs = "8", Kernels kernels = Kernels::of_problems) const {
    return ce_tune(words(database(), configs, std::move(more)),
                   {{"CE_HOST_COMPILER", faulty_compiler(faults, kernels)}});
  }

  /// Four problems and the ceiling that they have in common, whose kernel has the fault.
  [[nodiscard]] Finished sweep_with_ceiling(const std::string& devices, const std::string& fault) const {
    return sweep({"--device", devices, "--cols", "90,91,92", "--json"}, {{"fault", fault}}, "1",
                 Kernels::of_ceilings);
  }

  [[nodiscard]] bool any_rejected() const {
    const cache::Cache cache = cache::Cache::open_existing(database());
    for (const cache::KeySummary& summary : cache.keys())
      for (const cache::Measurement& measurement : cache.measurements(summary.key))
        if (measurement.outcome == cache::Outcome::quarantined) return true;
    return false;
  }
};

TEST_F(Isolate, ConfigsThatKillTheirProcessOrHangAreRejectedAndTheRestIsTuned) {
  const Finished isolated = sweep({"--isolate=3s", "--json"});
  ASSERT_EQ(isolated.status, 0) << isolated.err;
  const json problem = json::parse(isolated.out).at("problems").at(0);
  EXPECT_EQ(problem.at("tried"), 8);
  int killed = 0, hung = 0;
  for (const auto& [reason, count] : problem.at("rejected").items()) {
    if (reason.find("ended by signal 6") != std::string::npos) killed += count.get<int>();
    if (reason == "did not end within 3 s") hung += count.get<int>();
  }
  EXPECT_EQ(killed, 1) << problem.dump(2);
  EXPECT_EQ(hung, 1) << problem.dump(2);
  const std::string winner = problem.at("winner");

  // What is known is not tried again, in this process or another.
  const Finished again = sweep({"--isolate", "--json"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("problems").at(0).at("winner"), winner);
  EXPECT_EQ(json::parse(again.out).at("problems").at(0).at("known"), 8);
}

TEST_F(Isolate, KnowsHowAProcessEndedAlsoWhereItsOwnParentIgnoresThat) {
  std::string command = "trap '' CHLD; exec " CE_TUNE;
  for (const std::string& word : words(database(), "2", {"--isolate"})) command += " " + word;
  const std::string compiler = faulty_compiler({{"kill", "std::raise(SIGABRT);"}});
  const Finished finished =
      test::Child(folder(), {"-c", command}, surroundings({{"CE_HOST_COMPILER", compiler}}), "", "/bin/sh")
          .wait();
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_TRUE(any_rejected());
}

TEST_F(Isolate, AConfigIsNotToBlameForWhatSomebodyElseEnded) {
  const std::string once = "if (::mkdir(\"" + (folder() / "killed").string() + "\", 0700) == 0) ";
  const Finished killed = sweep({"--isolate", "--json"}, {{"kill", once + "std::raise(SIGKILL);"}}, "2");
  ASSERT_EQ(killed.status, 0) << killed.err;
  EXPECT_TRUE(std::filesystem::exists(folder() / "killed")) << "nobody was killed";
  EXPECT_EQ(json::parse(killed.out).at("problems").at(0).at("tried"), 2);
  EXPECT_FALSE(any_rejected());
}

TEST_F(Isolate, WhereProcessesAreEndedAgainAndAgainTheSweepEndsAndNothingIsRejected) {
  const Finished ended = sweep({"--isolate"}, {{"terminate", "std::raise(SIGTERM);"}}, "1");
  EXPECT_EQ(ended.status, 5) << ended.out;
  EXPECT_NE(ended.err.find("ended by signal 15"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("no config does that"), std::string::npos) << ended.err;
  EXPECT_FALSE(any_rejected());
}

/// Else one process after another would launch the config that no file says anything of.
TEST_F(Isolate, EndsWhereTheDatabaseDoesNotTakeAQuarantine) {
  const std::string lose = "::rename(\"" + database() + "\", \"" + database() + ".away\"); ::mkdir(\"" +
                           database() + "\", 0700); ";
  const auto sweep_until = [&](const std::string& end) {
    test::Child child(folder(), words(database(), "2", {"--isolate"}),
                      surroundings({{"CE_HOST_COMPILER", faulty_compiler({{"lose", lose + end}})}}));
    const Finished finished = child.wait();
    EXPECT_EQ(finished.status, 7) << finished.err;
    EXPECT_NE(finished.err.find("--isolate needs a database that both processes can write to: "),
              std::string::npos)
        << finished.err;
    EXPECT_NE(finished.err.find(database() + " is not a regular file"), std::string::npos) << finished.err;
  };
  sweep_until("std::raise(SIGABRT);");
  // Where nothing is to be rejected, the next process finds out.
  std::filesystem::remove_all(database());
  std::filesystem::remove_all(folder() / "lose.hpp.of");
  sweep_until("std::raise(SIGKILL);");
}

TEST_F(Isolate, TunesIntoTheDatabaseWhateverBytesItsNameHas) {
  const std::filesystem::path place = folder() / "odd", name = "caf\xe9.db";
  std::filesystem::create_directory(place);
  const Finished finished = ce_tune(words((place / name).string(), "1", {"--isolate"}));
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_FALSE(cache::Cache::open_existing(place / name).keys().empty());
  for (const auto& entry : std::filesystem::directory_iterator(place))
    EXPECT_TRUE(entry.path().filename().string().starts_with(name.string())) << entry.path();
}

/// Each device of the host is a process; a fault of a kernel ends it as a fault of a GPU does.
TEST_F(Isolate, ADeviceThatDiesIsToldAndItsProblemsGoToTheRest) {
  const std::string once = "if (::mkdir(\"" + (folder() / "killed").string() + "\", 0700) == 0) ";
  const Finished finished = sweep({"--device", "host,host", "--cols", "90,91,92", "--json"},
                                  {{"kill", once + "std::raise(SIGKILL);"}}, "2");
  EXPECT_EQ(finished.status, 5) << finished.err;
  EXPECT_NE(finished.err.find("ended by signal 9"), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find("its problem goes to another device"), std::string::npos) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("summary").at("finished"), 4);
  EXPECT_EQ(document.at("error").at("kind"), "device error");
  int dead = 0, problems = 0;
  for (const json& device : document.at("devices")) {
    dead += device.at("error").is_null() ? 0 : 1;
    problems += device.at("problems").get<int>();
    EXPECT_TRUE(device.at("environment").is_object());
  }
  EXPECT_EQ(dead, 1);
  EXPECT_EQ(problems, 4);
  for (const json& problem : document.at("problems")) {
    EXPECT_TRUE(problem.contains("winner")) << problem;
    EXPECT_EQ(problem.at("device"), "host");
  }
  EXPECT_FALSE(any_rejected());
}

TEST_F(Isolate, AProblemThatKillsTwoDevicesIsGivenUp) {
  const Finished finished = sweep({"--device", "host,host,host", "--cols", "90,91,92", "--json"},
                                  {{"kill", "std::raise(SIGKILL);"}}, "2");
  EXPECT_EQ(finished.status, 5) << finished.err;
  EXPECT_NE(finished.err.find("its problem is given up"), std::string::npos) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("summary").at("finished"), 3);
  int failed = 0;
  for (const json& problem : document.at("problems")) failed += problem.contains("error") ? 1 : 0;
  EXPECT_EQ(failed, 1);

  const Finished isolated = sweep({"--device", "host,host", "--cols", "90,91,92", "--isolate"},
                                  {{"kill", "std::raise(SIGABRT);"}}, "2");
  EXPECT_EQ(isolated.status, 0) << isolated.err;
  EXPECT_TRUE(any_rejected());
}

TEST_F(Isolate, ADeviceThatDiesOfACeilingLeavesItToAnother) {
  const std::string once = "if (::mkdir(\"" + (folder() / "killed").string() + "\", 0700) == 0) ";
  const Finished finished = sweep_with_ceiling("host,host", once + "std::raise(SIGKILL);");
  EXPECT_EQ(finished.status, 5) << finished.err;
  EXPECT_NE(finished.err.find("the ceiling of copy goes to another device"), std::string::npos)
      << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("summary").at("finished"), 4);
  for (const json& problem : document.at("problems")) EXPECT_GT(problem.at("ceiling_gbs"), 0) << problem;
}

TEST_F(Isolate, ACeilingThatKillsTwoDevicesIsGivenUp) {
  const Finished finished = sweep_with_ceiling("host,host,host", "std::raise(SIGKILL);");
  EXPECT_EQ(finished.status, 5) << finished.err;
  EXPECT_NE(finished.err.find("the ceiling of copy is given up"), std::string::npos) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("summary").at("finished"), 4);
  for (const json& problem : document.at("problems")) EXPECT_EQ(problem.at("ceiling_gbs"), 0) << problem;
}

TEST_F(Isolate, ACeilingThatCannotBeSearchedIsToldAndCostsNoProblem) {
  const Finished finished = sweep_with_ceiling("host,host", "static_assert(false);");
  EXPECT_EQ(finished.status, 6) << finished.err;
  EXPECT_NE(finished.err.find("ceiling of copy: compile error"), std::string::npos) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("summary").at("finished"), 4);
  for (const json& problem : document.at("problems")) {
    EXPECT_FALSE(problem.contains("error")) << problem;
    EXPECT_EQ(problem.at("ceiling_gbs"), 0) << problem;
  }
}

/// A process that did not search the ceiling loads its kernel at the end, to time it.
TEST_F(Isolate, ProblemsOfADeviceThatDiesOfItsCeilingsHaveNone) {
  const std::string first = (folder() / "first").string();
  const Finished finished = sweep_with_ceiling(
      "host,host",
      "char own[32], known[32] = {}; std::snprintf(own, sizeof own, \"%d\", static_cast<int>(::getpid())); "
      "if (::symlink(own, \"" +
          first + "\") != 0 && ::readlink(\"" + first +
          "\", known, sizeof known - 1) > 0 && std::strcmp(own, known) != 0) std::raise(SIGKILL);");
  EXPECT_EQ(finished.status, 5) << finished.err;
  EXPECT_NE(finished.err.find("its problems are shown without a ceiling"), std::string::npos) << finished.err;
  const json document = json::parse(finished.out);
  EXPECT_EQ(document.at("summary").at("finished"), 4);
  int of_dead = 0, without_ceiling = 0;
  for (const json& device : document.at("devices"))
    if (!device.at("error").is_null()) of_dead += device.at("problems").get<int>();
  for (const json& problem : document.at("problems")) {
    EXPECT_TRUE(problem.contains("winner")) << problem;
    without_ceiling += problem.at("ceiling_gbs") == 0 ? 1 : 0;
  }
  EXPECT_GE(of_dead, 1);
  EXPECT_EQ(without_ceiling, of_dead);
}

TEST_F(Isolate, TheLimitIsATime) {
  const Finished finished = sweep({"--isolate=soon"});
  EXPECT_EQ(finished.status, 2);
  EXPECT_NE(finished.err.find("--isolate is \"soon\"; expected a time"), std::string::npos) << finished.err;
  const Finished hasty = sweep({"--isolate=0.0001s"});
  EXPECT_EQ(hasty.status, 2);
  EXPECT_NE(hasty.err.find("--isolate is \"0.0001s\"; expected a time of 1s or more"), std::string::npos)
      << hasty.err;
}

TEST_F(Isolate, TheOtherProcessKnowsOfRetuneAndBudget) {
  const auto measurements = [&] { return cache::Cache::open_existing(database()).status().measurements; };
  ASSERT_EQ(sweep({"--isolate"}, {}, "2").status, 0);
  const std::int64_t first = measurements();
  ASSERT_EQ(sweep({"--isolate"}, {}, "2").status, 0);
  EXPECT_EQ(measurements(), first) << "what is known is not measured again";
  EXPECT_EQ(sweep({"--isolate", "--retune"}, {}, "2").status, 0);
  EXPECT_GT(measurements(), first) << "another final";
  EXPECT_EQ(sweep({"--isolate", "--retune", "--budget", "0.000001s"}, {}, "2").status, 11);
  EXPECT_EQ(sweep({"--isolate", "--budget", "0.000001s"}, {}, "2").status, 0) << "nothing is left to do";
}

}  // namespace
}  // namespace ce::cli
