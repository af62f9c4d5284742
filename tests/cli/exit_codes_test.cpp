#include "cli/exit_codes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "cache/cache.hpp"
#include "cli/commands/tuning_run.hpp"
#include "cli/failure.hpp"
#include "tests/cli/all_commands.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

using test::Finished;

TEST(ExitCodes, NeverChange) {
  EXPECT_EQ(static_cast<int>(ExitCode::regression), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::unsure_regression), 4);
  EXPECT_EQ(static_cast<int>(ExitCode::nothing_compared), 12);
  const auto status_of = [](const std::exception& error) { return static_cast<int>(describe(error).code); };
  EXPECT_EQ(status_of(std::runtime_error("anything")), 1);
  EXPECT_EQ(status_of(std::bad_alloc()), 1);
  EXPECT_EQ(status_of(InvalidArgument("--rows", "0", "more")), 2);
  EXPECT_EQ(status_of(DeviceError("cuInit", 100, "no device")), 5);
  EXPECT_EQ(status_of(CompileError("kernel", "error: no", "kernel.cu")), 6);
  EXPECT_EQ(status_of(DatabaseError("damaged")), 7);
  EXPECT_EQ(status_of(NotFound("no such key")), 8);
  EXPECT_EQ(status_of(Unsupported("too old")), 9);
  EXPECT_EQ(status_of(Error(ErrorKind::verification, "wrong")), 10);
  EXPECT_EQ(status_of(Error(ErrorKind::interrupted, "stopped")), 130);
}

TEST(ExitCodes, AreAllExplainedOnce) {
  std::set<int> codes;
  for (const ExitMeaning& meaning : exit_meanings) codes.insert(static_cast<int>(meaning.code));
  EXPECT_EQ(codes, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 130}));
}

TEST(Failure, OfOneProblemNeedNotEndTheOthers) {
  const auto attempted = [](const auto& error) {
    std::optional<Failure> failure;
    const bool go_on = attempt(failure, [&] { throw error; });
    return std::pair(go_on, failure.value().fields.at("message"));
  };
  EXPECT_EQ(attempted(Error(ErrorKind::verification, "wrong")), std::pair(true, std::string("wrong")));
  EXPECT_EQ(attempted(std::bad_alloc()), std::pair(true, std::string("out of memory")));
  EXPECT_TRUE(attempted(Unsupported("too old")).first);
  EXPECT_TRUE(attempted(CompileError("kernel", "error: no", "kernel.cu")).first);
  EXPECT_FALSE(attempted(DeviceError("cuInit", 100, "no device")).first);
  EXPECT_FALSE(attempted(Error(ErrorKind::interrupted, "stopped")).first);
  EXPECT_THROW(static_cast<void>(attempted(std::logic_error("a fault of ours"))), std::logic_error);
  std::optional<Failure> none;
  EXPECT_TRUE(attempt(none, [] {}));
  EXPECT_FALSE(none);
}

TEST(Failure, IsOneLineThatNamesItsKind) {
  EXPECT_EQ(describe(NotFound("no key begins with abcd")).line(),
            "ce-tune: not found: no key begins with abcd");
  const Failure failure =
      describe(CompileError("softmax", "note: before\nk.cu:3: error: what\nmore\n", "kept.cu"));
  EXPECT_EQ(failure.line(),
            "ce-tune: compile error: softmax does not compile (source kept at kept.cu): k.cu:3: error: what");
  EXPECT_EQ(failure.fields.at("source_path"), "kept.cu");
}

class CommandLine : public test::CommandTest {
 protected:
  /// Commands of a shell, as root of a namespace of its own.
  [[nodiscard]] Finished alone(const std::string& commands) const {
    return test::Child(folder(), {"--user", "--map-root-user", "--mount", "sh", "-c", commands},
                       surroundings(), "", "unshare")
        .wait();
  }
};

/// What a remark was to say is lost there, and nothing else.
TEST_F(CommandLine, GoesOnWhereStandardErrorIsClosedOrFull) {
  const auto status_of = [&](const std::string& command) {
    test::Child child(folder(), {"-c", std::string(CE_TUNE) + " " + command}, surroundings(), "", "/bin/sh");
    return child.wait();
  };
  for (const char* where : {"2>&-", "2>/dev/full"}) {
    SCOPED_TRACE(where);
    EXPECT_EQ(status_of(fmt::format("db show 0000 {}", where)).status, 8);
    const Finished failed =
        status_of(fmt::format("sweep --op softmax --dtype f99 --rows 8 --cols 9 --json {}", where));
    EXPECT_EQ(failed.status, 2);
    EXPECT_EQ(nlohmann::json::parse(failed.out).at("error").at("argument"), "--dtype");
    EXPECT_EQ(status_of(fmt::format("sweep --list-presets >&- {}", where)).status, 1)
        << "the result is lost, too";
  }
}

/// The line on standard error, and the object on standard output when the same is asked for with --json.
void expect_failure(const Finished& finished, int status, const std::string& message) {
  EXPECT_EQ(finished.status, status) << finished.out << finished.err;
  EXPECT_NE(finished.err.find("ce-tune: "), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find(message), std::string::npos) << finished.err;
}

void expect_failure_document(const Finished& finished, int status, const std::string& kind) {
  EXPECT_EQ(finished.status, status) << finished.err;
  const auto document = nlohmann::json::parse(finished.out);
  EXPECT_EQ(document.at("error").at("exit_code"), status);
  EXPECT_EQ(document.at("error").at("kind"), kind);
  EXPECT_FALSE(document.at("error").at("message").get<std::string>().empty());
}

std::vector<std::string> host_sweep(const std::string& database) {
  return {"sweep", "--op",     "softmax", "--dtype", "f32",    "--rows",    "4", "--cols",
          "32",    "--device", "host",    "--db",    database, "--configs", "1"};
}

TEST_F(CommandLine, HelpExplainsTheExitCodesAndSucceeds) {
  const Finished help = ce_tune({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const ExitMeaning& meaning : exit_meanings)
    EXPECT_NE(help.out.find(std::string(meaning.meaning)), std::string::npos) << meaning.meaning;
  for (const std::vector<std::string>& command : test::all_commands) {
    std::vector<std::string> words = command;
    words.emplace_back("--help");
    const Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, 0);
    EXPECT_NE(finished.out.find("Examples:\n  ce-tune " + command.front()), std::string::npos)
        << finished.out;
    if (command.front() == "completion" || command.front() == "man")
      continue;  // texts for a shell and man alone
    EXPECT_NE(finished.out.find("--json"), std::string::npos);
    EXPECT_NE(finished.out.find("--db"), std::string::npos);
  }
  EXPECT_EQ(ce_tune({"--version"}).out.substr(0, 8), "ce-tune ");
}

TEST_F(CommandLine, OutputThatCannotBeWrittenIsAFailure) {
  expect_failure(ce_tune({"--help"}, {}, "/dev/full"), 1, "cannot write to standard output");
  expect_failure(ce_tune({"doctor", "--json"}, {}, "/dev/full"), 1, "cannot write to standard output");
  static_cast<void>(cache::Cache::open(database()));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"bundle", "-"}, {"db", "export", "-"}, {"db", "list"}, {"db", "list", "--json"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--db", database()});
    const Finished failed = ce_tune(all, {}, "/dev/full");
    expect_failure(failed, 1, "cannot write to standard output: No space left on device");
    EXPECT_EQ(failed.err.find("written"), std::string::npos) << failed.err;
  }
}

/// More than a buffer holds: the error comes before the end.
TEST_F(CommandLine, LongOutputThatCannotBeWrittenIsTheSameFailure) {
  const std::vector<std::string> many{"source", "--op",   "softmax", "--dtype",  "f32",  "--rows",
                                      "64",     "--cols", "1000",    "--device", "host", "--list"};
  ASSERT_GT(ce_tune(many).out.size(), 8192U);
  expect_failure(ce_tune(many, {}, "/dev/full"), 1,
                 "cannot write to standard output: No space left on device");
}

TEST_F(CommandLine, UsageErrorsNameOptionAndValue) {
  expect_failure(ce_tune({}), 2, "usage");
  expect_failure(ce_tune({"swep"}), 2, "there is no command \"swep\"");
  expect_failure(ce_tune({"db", "shwo"}), 2, "there is no command \"shwo\"");
  expect_failure(ce_tune({"db"}), 2, "ce-tune db --help");
  expect_failure(ce_tune({"sweep", "--op", "softmax"}), 2, "--dtype");
  expect_failure(ce_tune({"doctor", "--frobnicate"}), 2, "--frobnicate");
  const auto sweep_with = [this](const std::string& option, const std::string& value) {
    std::vector<std::string> words = host_sweep(database());
    words.insert(words.end(), {option, value});
    return ce_tune(words);
  };
  expect_failure(sweep_with("--scratch", "4gigs"), 2, "--scratch is \"4gigs\"");
  expect_failure(sweep_with("--samples", "0"), 2, "--samples is \"0\"");
  expect_failure(ce_tune({"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "4,x", "--cols", "32"}), 2,
                 "--rows is \"x\"");
  expect_failure(ce_tune({"db", "list", "--device", "tpu"}), 8, "");  // there is no database to list yet
  expect_failure(ce_tune({"source", "--op", "softmax", "--dtype", "f32", "--cols", "32", "--device", "tpu"}),
                 2, "--device is \"tpu\"");
  expect_failure(
      ce_tune({"source", "--op", "softmax", "--dtype", "f32", "--cols", "32"}, {{"CE_DEVICE", "tpu"}}), 2,
      "CE_DEVICE is \"tpu\"");
  expect_failure(ce_tune(host_sweep(database()), {{"CE_HOST_SEED", "dice"}}), 2, "CE_HOST_SEED is dice");
  expect_failure_document(ce_tune({"source", "--json", "--op", "softmin"}), 2, "invalid argument");
  expect_failure_document(ce_tune({"sweep", "--frobnicate", "--json"}), 2, "usage");
}

/// Of an option, of one with a list, of an argument, and of one among others.
TEST_F(CommandLine, AnEmptyValueIsNotOneThatWasNotGiven) {
  const auto expect_refused = [this](const std::vector<std::string>& words, const std::string& name) {
    expect_failure(ce_tune(words), 2, name + " is \"\"; expected ");
  };
  for (const char* option : {"--op", "--budget", "--strategy", "--configs", "--samples", "--scratch", "--top",
                             "--from", "--preset", "--align", "--db", "--device"})
    expect_refused({"sweep", option, ""}, option);
  for (const char* option : {"--against", "--since"}) expect_refused({"regressions", option, ""}, option);
  expect_refused({"bench", "--device", "cuda:9", "--plot", ""}, "--plot");
  expect_refused({"check", "--runs", ""}, "--runs");
  expect_refused({"report", "--html", ""}, "--html");
  expect_refused({"db", "prune", "--keep", ""}, "--keep");
  expect_refused({"db", "export", ""}, "FILE");
  expect_refused({"db", "import", ""}, "FILE");
  expect_refused({"db", "merge", "one.db", ""}, "FILES");
  for (const char* command : {"time", "explain", "source", "report"}) expect_refused({command, ""}, "KEY");
  expect_failure_document(ce_tune({"db", "list", "--db", "", "--json"}), 2, "invalid argument");
  EXPECT_FALSE(std::filesystem::exists(folder() / "data")) << "a database was created";
}

TEST_F(CommandLine, AnEmptyValueAfterAnEqualsSignDoesNotTakeTheNextWord) {
  expect_failure(ce_tune({"db", "merge", "--db=", "one.db"}), 2, "--db is \"\"; expected a value");
  expect_failure(ce_tune({"sweep", "--budget=", "--list-presets"}), 2, "--budget is \"\"; expected a value");
  expect_failure(ce_tune({"sweep", "--list-presets", "--isolate="}), 2,
                 "--isolate is \"\"; expected a value");
}

TEST_F(CommandLine, ADeviceThatIsNotThereIsADeviceFailure) {
  std::vector<std::string> words = host_sweep(database());
  words[10] = "cuda:0";
  expect_failure(ce_tune(words), 5, "opening cuda:0");
  words.emplace_back("--json");
  expect_failure_document(ce_tune(words), 5, "device error");
}

TEST_F(CommandLine, NoCompilerIsACompileFailure) {
  expect_failure(ce_tune(host_sweep(database()), {{"CE_HOST_COMPILER", "/nonexistent/c++"}}), 6,
                 "has no compiler");
  expect_failure(
      ce_tune({"time", "--op", "softmax", "--dtype", "f32", "--rows", "4", "--cols", "32", "--device", "host",
               "--db", database(), "--config", "block/warps=1,vec=4,load=ca,store=cg"},
              {{"CE_HOST_COMPILER", "/nonexistent/c++"}}),
      6, "has no compiler");
  EXPECT_FALSE(std::filesystem::exists(database()));
}

TEST_F(CommandLine, ADamagedDatabaseIsADatabaseFailure) {
  test::write_file(database(), std::string(5000, 'x'));
  expect_failure(ce_tune({"db", "list", "--db", database()}), 7, "my.db");
  expect_failure_document(ce_tune({"db", "show", "abcd", "--db", database(), "--json"}), 7, "database error");
  EXPECT_EQ(ce_tune({"doctor", "--db", database()}).status, 7);
}

TEST_F(CommandLine, TheDoctorSaysWhichVariableOfTheHostMeansNothing) {
  const Finished finished = ce_tune({"doctor", "--db", database()}, {{"CE_HOST_SEED", "dice"}});
  EXPECT_EQ(finished.status, 2);
  EXPECT_NE(finished.out.find("CE_HOST_SEED is dice"), std::string::npos) << finished.out;
  EXPECT_NE(finished.out.find("\ndatabase "), std::string::npos) << "what else there is to say is said";
}

TEST_F(CommandLine, WhatIsMissingIsNotFound) {
  expect_failure(ce_tune({"db", "list"}), 8, "ce.db");
  expect_failure(ce_tune({"db", "show", "abcd", "--db", database()}), 8, "my.db");
  expect_failure(ce_tune({"source", "abcd", "--db", database()}), 8, "my.db");
  expect_failure_document(ce_tune({"db", "list", "--json"}), 8, "not found");
}

TEST_F(CommandLine, ADatabaseThatIsAnEmptyFileIsNotFoundAndStaysEmpty) {
  test::write_file(database(), "");
  for (const char* command : {"list", "verify", "vacuum", "prune"})
    expect_failure(ce_tune({"db", command, "--db", database()}), 8, "my.db: the file is empty");
  expect_failure(ce_tune({"db", "export", "-", "--db", database()}), 8, "my.db: the file is empty");
  expect_failure(ce_tune({"report", "--db", database(), "--html", (folder() / "report.html").string()}), 8,
                 "my.db: the file is empty");
  const Finished doctor = ce_tune({"doctor", "--db", database()});
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_NE(doctor.out.find("the first sweep creates it"), std::string::npos) << doctor.out;
  EXPECT_EQ(test::read_file(database()), "");
}

TEST_F(CommandLine, DoctorSaysWhereNoSweepCanCreateADatabase) {
  namespace fs = std::filesystem;
  fs::create_symlink("nowhere", database());
  const Finished link = ce_tune({"doctor", "--db", database()});
  EXPECT_EQ(link.status, 7) << link.out;
  EXPECT_NE(link.out.find("my.db, and it is a symbolic link to nowhere, which does not exist"),
            std::string::npos)
      << link.out;
  test::write_file((folder() / "nowhere").string(), "");
  EXPECT_EQ(ce_tune({"doctor", "--db", database()}).status, 0);
  const Finished longer = ce_tune({"doctor", "--db", (folder() / std::string(250, 'x')).string()});
  EXPECT_EQ(longer.status, 7) << longer.out;
  EXPECT_NE(longer.out.find("and its name has 250 bytes"), std::string::npos) << longer.out;
  if (::geteuid() == 0) return;  // may write everything
  fs::permissions(database(), fs::perms::owner_read);
  const Finished locked = ce_tune({"doctor", "--db", database()});
  EXPECT_EQ(locked.status, 7) << locked.out;
  EXPECT_NE(locked.out.find("the file is empty, and it cannot be written (Permission denied)"),
            std::string::npos)
      << locked.out;
}

TEST_F(CommandLine, DoctorSaysThatADiskIsFull) {
  if (alone("true").status != 0) GTEST_SKIP() << "no namespaces, so no disk that is full";
  const std::string mount = fmt::format("mount -t tmpfs -o size=8m none {} && ", folder().string());
  const std::string doctor = fmt::format("{} doctor --db {}", CE_TUNE, database());
  const std::string sweep =
      fmt::format("{} {} > /dev/null 2>&1 && ", CE_TUNE, fmt::join(host_sweep(database()), " "));
  for (const std::string& before : {std::string(), sweep}) {
    const Finished full = alone(mount + before + doctor);
    EXPECT_EQ(full.status, 7) << full.out << full.err;
    EXPECT_NE(full.out.find(fmt::format("the disk of {} has only ", folder().string())), std::string::npos)
        << full.out;
  }
}

TEST_F(CommandLine, ACompilerThatCompilesNothingIsACompileFailure) {
  const std::string compiler = (folder() / "c++").string();
  test::write_file(compiler,
                   "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ (GCC) 99.0.0' && exit 0\n"
                   "echo 'error: out of order'\nexit 1\n");
  ASSERT_EQ(::chmod(compiler.c_str(), 0700), 0);
  const Finished finished = ce_tune(host_sweep(database()), {{"CE_HOST_COMPILER", compiler}});
  expect_failure(finished, 6, "compile error");
  EXPECT_NE(finished.out.find("out of order"), std::string::npos) << finished.out;
  const Finished doctor = ce_tune({"doctor"}, {{"CE_HOST_COMPILER", compiler}});
  EXPECT_EQ(doctor.status, 6) << doctor.out;
  EXPECT_NE(doctor.out.find("host      PROBLEM"), std::string::npos) << doctor.out;
  EXPECT_NE(doctor.out.find("out of order"), std::string::npos) << doctor.out;
}

TEST_F(CommandLine, ALimitOnFilesIsAFailureOfTheFile) {
  const std::string command =
      fmt::format("ulimit -f 16; exec {} {}", CE_TUNE, fmt::join(host_sweep(database()), " "));
  const Finished finished = test::Child(folder(), {"-c", command}, surroundings(), "", "/bin/sh").wait();
  expect_failure(finished, 7, "ulimit -f");
}

/// As in a container that was made by hand.
TEST_F(CommandLine, KernelsCompileWithoutDevNull) {
  const std::string mount = "mount -t tmpfs none /dev";
  if (alone(mount).status != 0) GTEST_SKIP() << "no namespaces, so no /dev without files";
  const Finished finished = alone(fmt::format("{} && {} doctor", mount, CE_TUNE));
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
  EXPECT_NE(finished.out.find("host      ok"), std::string::npos) << finished.out;
}

/// A database must not become a standard stream: SQLite opens none there.
TEST_F(CommandLine, ClosedStandardStreamsNeedNoDevNull) {
  const std::string mount = "mount -t tmpfs none /dev";
  if (alone(mount).status != 0) GTEST_SKIP() << "no namespaces, so no /dev without files";
  static_cast<void>(cache::Cache::open(database()));
  const std::string show = fmt::format("{} db show 0000 --db {}", CE_TUNE, database());
  EXPECT_EQ(alone(fmt::format("{} && {} <&- >&- 2>&-", mount, show)).status, 8);
  const Finished told = alone(fmt::format("{} && {} <&- >&-", mount, show));
  expect_failure(told, 8, "no key begins with 0000");
  EXPECT_EQ(alone(fmt::format("{} && {} sweep --list-presets >&- 2>&-", mount, CE_TUNE)).status, 1)
      << "a result that did not arrive is told as that";
}

/// Without GPUs the host device tunes, whatever NVRTC does.
TEST_F(CommandLine, DoctorSaysThatNvrtcCompilesNothing) {
  const test::Environment broken{
      {"CE_NVRTC", CE_FAKE_NVRTC}, {"FAKE_NVRTC_FAILS", "nvrtcCompileProgram"}, {"FAKE_NVRTC_RESULT", "7"}};
  for (const auto& [driver, status] : {std::pair{"/nonexistent", 0}, {CE_FAKE_DRIVER, 6}}) {
    test::Environment environment = broken;
    environment["CE_LIBCUDA"] = driver;
    const Finished finished = ce_tune({"doctor"}, environment);
    EXPECT_EQ(finished.status, status) << finished.out;
    EXPECT_NE(finished.out.find("nvrtc     PROBLEM"), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("failed to open libnvrtc-builtins.so.13.0"), std::string::npos)
        << finished.out;
  }
}

TEST_F(CommandLine, DoctorTellsWhatIsThereWithoutAGpu) {
  const Finished finished = ce_tune({"doctor", "--json"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  const auto document = nlohmann::json::parse(finished.out);
  EXPECT_EQ(document.at("exit_code"), 0);
  std::map<std::string, std::string> states;
  for (const auto& finding : document.at("findings")) {
    states[finding.at("what")] = finding.at("state");
    EXPECT_EQ(finding.at("state") == "ok", finding.at("remedy").get<std::string>().empty()) << finding;
  }
  EXPECT_EQ(states.at("host"), "ok");
  EXPECT_EQ(states.at("database"), "none");
  EXPECT_EQ(states.count("driver") + states.count("nvrtc"), 2U);
  EXPECT_EQ(states.count("cuda:0"), 0U);

  EXPECT_EQ(states.at("policy"), "ok");
  EXPECT_EQ(states.at("device"), "ok");
  EXPECT_EQ(states.at("log"), "ok");

  EXPECT_NE(ce_tune({"doctor"}, {{"CE_DEVICE", "host"}}).out.find("host (CE_DEVICE)"), std::string::npos);
  for (const auto& [wrong, status] : {std::pair{"tpu", 2}, {"cuda:99", 5}}) {
    const Finished device = ce_tune({"doctor"}, {{"CE_DEVICE", wrong}});
    EXPECT_EQ(device.status, status);
    EXPECT_NE(device.out.find("device    PROBLEM"), std::string::npos) << device.out;
  }
  EXPECT_NE(ce_tune({"doctor"}, {{"CE_POLICY", "frozen"}}).out.find("frozen (CE_POLICY)"), std::string::npos);
  const Finished hope = ce_tune({"doctor"}, {{"CE_POLICY", "hope"}});
  EXPECT_EQ(hope.status, 2);
  EXPECT_NE(hope.out.find("\"hope\""), std::string::npos) << hope.out;
  EXPECT_NE(ce_tune({"doctor"}, {{"CE_LOG", "off"}}).out.find("off (CE_LOG)"), std::string::npos);
  const Finished loud = ce_tune({"doctor"}, {{"CE_LOG", "loud"}});
  EXPECT_EQ(loud.status, 2);
  EXPECT_NE(loud.out.find("log       PROBLEM  CE_LOG is \"loud\""), std::string::npos) << loud.out;
  const Finished nowhere = ce_tune({"doctor"}, {{"CE_DB", "/proc/x.db"}});
  EXPECT_EQ(nowhere.status, 7);
  EXPECT_NE(nowhere.out.find("/proc cannot be written"), std::string::npos) << nowhere.out;
  const Finished homeless = ce_tune({"doctor"}, {{"HOME", ""}, {"XDG_DATA_HOME", ""}});
  EXPECT_EQ(homeless.status, 7) << homeless.out << homeless.err;
  EXPECT_NE(homeless.out.find("-> name a file that can be written"), std::string::npos) << homeless.out;
  const Finished text = ce_tune({"doctor"}, {{"CE_HOST_COMPILER", "/nonexistent/c++"}});
  EXPECT_EQ(text.status, 6);
  EXPECT_NE(text.out.find("CE_HOST_COMPILER"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace ce::cli
