// The pool of compile workers. This program is its own worker: called with `compile-worker`, it does what the
// text of each request says.
#include "runtime/workers/worker.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "ce/error.hpp"
#include "runtime/workers/pool.hpp"
#include "runtime/workers/process.hpp"
#include "tests/environment.hpp"
#include "tests/run_tests.hpp"
#include "tests/until.hpp"

namespace ce::runtime::cuda {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* behaviour_variable = "CE_TEST_WORKER";

// ---- the worker ------------------------------------------------------------------------------------------

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (fs::directory_iterator entry("/proc/self/fd"), end; entry != end; ++entry) ++count;
  return count;
}

constexpr std::size_t meeting_size = 3;

/// Waits until that many workers have come to the folder.
void meet(const fs::path& folder) {
  std::ofstream(folder / std::to_string(getpid())).put('.');
  const auto present = [&] {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  };
  while (present() < meeting_size) usleep(1'000);
}

/// Answers with the text as the image, and itself in the log.
Reply echo(const Job& job) {
  const auto* data = reinterpret_cast<const std::byte*>(job.request.text.data());
  return {.outcome = Reply::Outcome::compiled,
          .binary = {.image = {data, data + job.request.text.size()}, .log = std::to_string(getpid())}};
}

Reply answer(const Job& job) {
  const std::string& text = job.request.text;
  if (text == "crash") {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn the signal into an exit status
    raise(SIGSEGV);
  }
  if (text == "exit") _exit(3);
  if (text == "killed") kill(getpid(), SIGKILL);
  if (text.starts_with("hang ")) std::ofstream(text.substr(5)).put('.');
  if (text.starts_with("hang"))
    for (;;) pause();
  if (text.starts_with("meet ")) meet(text.substr(5));
  if (text == "descriptors")
    return {.outcome = Reply::Outcome::compiled,
            .binary = {.image = {}, .log = std::to_string(open_descriptors())}};
  if (text == "signals") {
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, nullptr, &blocked);
    return {.outcome = Reply::Outcome::compiled,
            .binary = {.image = {}, .log = sigisemptyset(&blocked) ? "all" : "some"}};
  }
  if (text == "group")
    return {.outcome = Reply::Outcome::compiled,
            .binary = {.image = {}, .log = getpgrp() == getpid() ? "its own" : "shared"}};
  if (text == "refused")
    return {.outcome = Reply::Outcome::refused, .text = "line 1: no", .source_path = "kept.cu"};
  if (text == "unsupported") return {.outcome = Reply::Outcome::unsupported, .text = "too old"};
  if (text == "device")
    return {.outcome = Reply::Outcome::device_failed, .text = "full", .call = "f()", .code = 5};
  if (text == "failed") return {.outcome = Reply::Outcome::failed, .text = "bad_alloc"};
  return echo(job);
}

int worker_main() {
  const char* variable = std::getenv(behaviour_variable);
  const std::string_view behaviour = variable == nullptr ? "" : variable;
  end_with_parent();
  Channel channel{Descriptor(STDIN_FILENO)};
  Frame frame;
  if (behaviour == "exits") return 7;
  if (behaviour == "silent")
    for (;;) pause();
  if (channel.receive(frame) != Transfer::done) return 1;
  const auto hello = decode<Hello>(frame);
  if (!hello) return 1;
  Ready ready{.version = hello->version, .nvrtc_version = "13.0"};
  std::string greeting;
  if (behaviour == "old") ready.version = "0.0.1";
  if (behaviour == "protocol") ready.protocol = 99;
  if (behaviour == "no nvrtc") ready.problem = "NVRTC, which compiles the kernels, was not found";
  greeting = behaviour == "chatty" ? "Welcome to something quite different" : encode(ready);
  if (channel.send(greeting) != Transfer::done) return 1;

  if (behaviour == "deaf") {
    char byte = 0;
    return read(STDIN_FILENO, &byte, 1) == 1 ? 5 : 1;
  }

  while (channel.receive(frame) == Transfer::done) {
    const auto job = decode<Job>(frame);
    if (!job) return 1;
    const std::string& text = job->request.text;
    std::string reply = encode(answer(*job));
    if (text == "garbage") reply = std::string(100, '?');
    if (text == "other kind") reply = encode(ready);
    if (text == "cut short") reply.resize(reply.size() - 1);
    if (text == "bad payload") reply.back() ^= 0x55, reply[frame_header_bytes] = 9;
    if (channel.send(reply) != Transfer::done) return 1;
    if (text == "cut short" || text == "one and out") return 0;
  }
  return 0;
}

// ---- the tests -------------------------------------------------------------------------------------------

CompileRequest request(const std::string& text) {
  return {.name = "kernel", .text = text, .headers = {}, .options = {}};
}

std::string text_of(const Binary& binary) {
  return {reinterpret_cast<const char*>(binary.image.data()), binary.image.size()};
}

class WorkerPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv(behaviour_variable);
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
    descriptors_ = open_descriptors();
  }
  /// Whatever a test did, no process and no descriptor stays behind.
  void TearDown() override {
    pool_.reset();
    set_log_sink({});
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a worker runs on, or is a zombie";
    EXPECT_EQ(errno, ECHILD);
    EXPECT_EQ(open_descriptors(), descriptors_);
  }

  static WorkerSettings settings(int workers) {
    return {.program = fs::read_symlink("/proc/self/exe"), .tried = {}, .workers = workers};
  }
  WorkerPool& pool(int workers) { return pool(settings(workers)); }
  WorkerPool& pool(WorkerSettings settings) {
    pool_ = std::make_unique<WorkerPool>(std::move(settings));
    return *pool_;
  }
  /// The pool of workers that behave so from their start.
  WorkerPool& pool_of(const char* behaviour) {
    setenv(behaviour_variable, behaviour, 1);
    WorkerSettings chosen = settings(2);
    if (std::string_view(behaviour) == "silent") chosen.start_limit = milliseconds(300);
    return pool(chosen);
  }
  std::optional<Binary> compile(const std::string& text, const NvrtcChoice& nvrtc = {}) {
    return pool_->compile(request(text), 90, nvrtc);
  }
  /// The process that compiles.
  std::string worker() {
    const auto binary = compile("who");
    return binary ? binary->log : "none";
  }
  /// Leaves the worker to be reaped by the pool.
  static void await_end_of(const std::string& worker) {
    siginfo_t info = {};
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(std::stoi(worker)), &info, WEXITED | WNOWAIT), 0);
  }
  /// The log of the CompileError that the request ends in; the source was kept, and is removed here.
  std::string failure_of(const std::string& text) {
    try {
      static_cast<void>(compile(text));
    } catch (const CompileError& error) {
      std::ifstream kept(error.source_path());
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), text);
      fs::remove_all(fs::path(error.source_path()).parent_path());
      return error.log();
    }
    return "compiled";
  }

  std::unique_ptr<WorkerPool> pool_;
  std::vector<std::string> lines_;
  std::size_t descriptors_ = 0;
};

TEST_F(WorkerPoolTest, CompilesAndKeepsItsWorker) {
  pool(4);
  EXPECT_EQ(pool_->size(), 4);
  const std::string first = worker();
  EXPECT_NE(first, std::to_string(getpid()));
  EXPECT_EQ(worker(), first) << "an idle worker is taken before a new one is started";
  const auto binary = compile("text");
  ASSERT_TRUE(binary);
  EXPECT_EQ(text_of(*binary), "text");
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_EQ(pool_->problem(), "");
}

TEST_F(WorkerPoolTest, StartsNothingBeforeItIsAsked) {
  pool(4);
  EXPECT_EQ(open_descriptors(), descriptors_);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(WorkerPoolTest, TransfersMoreThanASocketHolds) {
  pool(1);
  const std::string text(20'000'000, 'x');
  const auto binary = compile(text);
  ASSERT_TRUE(binary);
  EXPECT_TRUE(text_of(*binary) == text);
}

TEST_F(WorkerPoolTest, SeveralThreadsShareTheWorkers) {
  pool(3);
  std::mutex mutex;
  std::set<std::string> workers;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 20; ++i) {
          const std::string text = std::to_string(thread) + " " + std::to_string(i);
          const auto binary = compile(text);
          if (!binary || text_of(*binary) != text) {
            ++wrong;
            continue;
          }
          const std::lock_guard lock(mutex);
          workers.insert(binary->log);
        }
      });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(workers.size(), 3);
}

TEST_F(WorkerPoolTest, WorkersWorkAtTheSameTime) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("ce-meeting-" + std::to_string(getpid()));
  fs::create_directory(folder);
  pool(meeting_size);
  std::atomic<int> met = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < meeting_size; ++i)
      threads.emplace_back([&] { met += compile("meet " + folder.string()).has_value(); });
  }
  EXPECT_EQ(met, meeting_size);
  fs::remove_all(folder);
}

TEST_F(WorkerPoolTest, ErrorsTravelAsTheyAre) {
  pool(1);
  const std::string first = worker();
  try {
    static_cast<void>(compile("refused"));
    FAIL();
  } catch (const CompileError& error) {
    EXPECT_EQ(error.log(), "line 1: no");
    EXPECT_EQ(error.source_path(), "kept.cu");
    EXPECT_THAT(error.what(), HasSubstr("kernel does not compile"));
  }
  try {
    static_cast<void>(compile("device"));
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.call(), "f()");
    EXPECT_EQ(error.code(), 5);
    EXPECT_STREQ(error.what(), "f() failed with code 5: full");
  }
  EXPECT_THROW(static_cast<void>(compile("unsupported")), Unsupported);
  EXPECT_THROW(static_cast<void>(compile("failed")), Error);
  EXPECT_EQ(worker(), first) << "a refused kernel costs no worker";
}

TEST_F(WorkerPoolTest, ACrashIsNamedAndTheNextRequestHasAFreshWorker) {
  pool(1);
  const std::string first = worker();
  EXPECT_EQ(failure_of("crash"), "the compiler process ended by signal 11 (Segmentation fault)");
  const std::string second = worker();
  EXPECT_NE(second, "none");
  EXPECT_NE(second, first);
  EXPECT_EQ(failure_of("exit"), "the compiler process exited with status 3");
  EXPECT_NE(worker(), "none");
}

/// As where memory is short: the source may be sound.
TEST_F(WorkerPoolTest, OneThatIsKilledRefusedNothing) {
  pool(1);
  try {
    static_cast<void>(compile("killed"));
    ADD_FAILURE() << "answered";
  } catch (const CompileError& error) {
    ADD_FAILURE() << "taken for a fault of the source: " << error.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::compile);
    EXPECT_THAT(error.what(), testing::HasSubstr("ended by signal 9"));
  }
  EXPECT_NE(worker(), "none");
}

TEST_F(WorkerPoolTest, AHangingWorkerIsKilledAtTheLimit) {
  WorkerSettings impatient = settings(1);
  impatient.kernel_limit = milliseconds(1500);
  pool(impatient);
  EXPECT_EQ(failure_of("hang"), "the compiler process was killed because it did not answer within 1.5 s");
  EXPECT_NE(worker(), "none");
}

TEST_F(WorkerPoolTest, NonsenseEndsTheWorker) {
  pool(1);
  for (const char* nonsense : {"garbage", "other kind", "bad payload"}) {
    EXPECT_EQ(failure_of(nonsense), "the compiler process was killed because its answer was invalid");
    EXPECT_NE(worker(), "none");
  }
  EXPECT_EQ(failure_of("cut short"), "the compiler process exited with status 0");
}

TEST_F(WorkerPoolTest, AWorkerThatDiesWhileItIsSpokenToRaisesNoSignal) {
  pool_of("deaf");
  EXPECT_EQ(failure_of(std::string(5'000'000, 'x')), "the compiler process exited with status 5");
}

TEST_F(WorkerPoolTest, AWorkerThatDiesIdleFailsNoKernel) {
  pool(1);
  const std::string first = worker();
  ASSERT_TRUE(compile("one and out"));
  await_end_of(first);
  const std::string second = worker();
  EXPECT_NE(second, "none");
  EXPECT_NE(second, first);
  kill(std::stoi(second), SIGKILL);
  await_end_of(second);
  EXPECT_NE(worker(), "none");
}

TEST_F(WorkerPoolTest, EveryUnusableWorkerLeavesTheWorkToTheCaller) {
  const std::pair<const char*, const char*> cases[] = {
      {"exits", "exited with status 7"}, {"silent", "did not answer"},
      {"chatty", "answer was invalid"},  {"old", "it belongs to ce 0.0.1"},
      {"protocol", "(protocol 99)"},     {"no nvrtc", "NVRTC, which compiles the kernels, was not found"},
  };
  for (const auto& [behaviour, reason] : cases) {
    pool_of(behaviour);
    EXPECT_EQ(pool_->size(), 2);
    EXPECT_FALSE(compile("text")) << behaviour;
    EXPECT_EQ(pool_->size(), 0) << behaviour;
    EXPECT_FALSE(compile("text")) << behaviour;
    EXPECT_THAT(pool_->problem(), HasSubstr(reason));
  }
}

TEST_F(WorkerPoolTest, AProgramThatCannotRunLeavesTheWorkToTheCaller) {
  pool({.program = "/no/such/program", .tried = {}, .workers = 2});
  EXPECT_FALSE(compile("text"));
  EXPECT_THAT(pool_->problem(), HasSubstr("No such file"));
  pool({.program = {}, .tried = {"here", "there"}, .workers = 2});
  EXPECT_EQ(pool_->size(), 0);
  EXPECT_FALSE(compile("text"));
  EXPECT_THAT(pool_->problem(), HasSubstr("here, there"));
}

TEST_F(WorkerPoolTest, ThatTheCallerCompilesIsSaidOnce) {
  static int times = 0;  // where tests are repeated
  const std::string unique = "/no/such/program/" + std::to_string(++times);
  for (int i = 0; i < 2; ++i) {
    pool({.program = unique, .tried = {}, .workers = 2});
    EXPECT_FALSE(compile("text"));
  }
  EXPECT_THAT(lines_,
              ::testing::ElementsAre(HasSubstr("kernels compile in this process, one at a time: " + unique)));
}

TEST_F(WorkerPoolTest, TheNvrtcOfTheCallerDecides) {
  pool(1);
  const std::string first = worker();
  EXPECT_TRUE(compile("text", {"libnvrtc.so.13", "13.0"}));
  EXPECT_EQ(worker(), first);
  EXPECT_FALSE(compile("text", {"libnvrtc.so.12", "12.9"}));
  EXPECT_THAT(pool_->problem(), HasSubstr("it uses NVRTC 13.0, but this process uses 12.9"));
}

TEST_F(WorkerPoolTest, AWorkerHoldsNothingOfTheHostProgram) {
  const Descriptor inherited(open("/dev/null", O_RDONLY));
  pool(2);
  // Two at once: neither gets the other's socket, nor the host program's file.
  std::vector<std::string> counts(2);
  {
    std::vector<std::jthread> threads;
    for (std::string& count : counts) threads.emplace_back([&] { count = compile("descriptors")->log; });
  }
  EXPECT_THAT(counts, ::testing::Each("4")) << "the standard streams, and the folder that lists them";
  EXPECT_EQ(compile("group")->log, "its own");
}

TEST_F(WorkerPoolTest, SurvivesAHostProgramThatIgnoresAndBlocksSignals) {
  signal(SIGCHLD, SIG_IGN);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pool(1);
  EXPECT_EQ(compile("signals")->log, "all") << "else nothing tells the worker that the host program has died";
  EXPECT_EQ(failure_of("exit"),
            "the compiler process ended, but the host program collected its status first");
  EXPECT_NE(worker(), "none");
  pool_.reset();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGCHLD, SIG_DFL);
}

TEST_F(WorkerPoolTest, AWorkerOutlivesTheThreadThatStartedIt) {
  pool(1);
  std::string first;
  pid_t thread = 0;
  std::thread([&] {
    first = worker();
    thread = gettid();
  }).join();
  // Then its children have had whatever signal it leaves them.
  ASSERT_TRUE(ce::test::until([&] { return !fs::exists("/proc/self/task/" + std::to_string(thread)); }));
  EXPECT_EQ(worker(), first);
}

TEST_F(WorkerPoolTest, AForkedProcessLeavesTheWorkersAlone) {
  pool(1);
  const std::string first = worker();
  const pid_t child = fork();
  if (child == 0) {
    const bool alone = pool_->size() == 0 && !compile("text");
    pool_.reset();
    _exit(alone ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(worker(), first);
}

/// Runs a host program that dies while its worker is idle or busy, and waits for the worker.
void expect_end_of_orphan(const std::function<void(WorkerPool&)>& last_act, const WorkerSettings& settings) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const pid_t host = fork();
  if (host == 0) {
    WorkerPool pool(settings);
    const auto binary = pool.compile(request("who"), 90, {});
    const pid_t worker = binary ? std::stoi(binary->log) : -1;
    if (write(writing.get(), &worker, sizeof worker) != sizeof worker) _exit(1);
    last_act(pool);
    _exit(0);
  }
  pid_t worker = -1;
  ASSERT_EQ(read(reading.get(), &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  EXPECT_EQ(waitpid(host, nullptr, 0), host);
  EXPECT_GT(worker, 0);
  pid_t reaped = 0;
  static_cast<void>(ce::test::until([&] { return (reaped = waitpid(worker, nullptr, WNOHANG)) != 0; }));
  EXPECT_EQ(reaped, worker) << "the worker lives on";
  if (reaped == 0) {
    kill(worker, SIGKILL);
    EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
  }
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST_F(WorkerPoolTest, AnIdleWorkerEndsWithItsHostProgram) {
  expect_end_of_orphan([](WorkerPool&) {}, settings(1));
}

TEST_F(WorkerPoolTest, ABusyWorkerEndsWithItsHostProgram) {
  const fs::path sign = fs::temp_directory_path() / ("ce-busy-worker-" + std::to_string(getpid()));
  expect_end_of_orphan(
      [&](WorkerPool& pool) {
        std::thread([&] {
          static_cast<void>(pool.compile(request("hang " + sign.string()), 90, {}));
        }).detach();
        if (!ce::test::until([&] { return fs::exists(sign); })) _exit(1);
      },
      settings(1));
  EXPECT_TRUE(fs::remove(sign)) << "the worker was never busy";
}

TEST(WorkerSettings, CountsAndLimitsComeFromTheEnvironment) {
  {
    const ce::test::ScopedEnvironment none("CE_COMPILE_WORKERS", "0");
    EXPECT_EQ(worker_settings().workers, 0);
    WorkerPool pool(worker_settings());
    EXPECT_EQ(pool.size(), 0);
    EXPECT_FALSE(pool.compile(request("text"), 90, {}));
  }
  {
    const ce::test::ScopedEnvironment some("CE_COMPILE_WORKERS", "23"), limit("CE_COMPILE_TIMEOUT", "7");
    EXPECT_EQ(worker_settings().workers, 23);
    EXPECT_EQ(worker_settings().kernel_limit, std::chrono::seconds(7));
  }
  for (const char* wrong : {"-1", "many", "3x", "257", " 3"}) {
    const ce::test::ScopedEnvironment some("CE_COMPILE_WORKERS", wrong);
    EXPECT_THROW(static_cast<void>(worker_settings()), InvalidArgument) << wrong;
  }
  const ce::test::ScopedEnvironment limit("CE_COMPILE_TIMEOUT", "0");
  EXPECT_THROW(static_cast<void>(worker_settings()), InvalidArgument);
}

TEST(WorkerSettings, AQuarterOfTheProcessorsIsLeftToWhoWaits) {
  std::vector<int> workers;
  for (const int processors : {1, 2, 4, 8, 16, 20, 64, 1024}) workers.push_back(workers_for(processors));
  EXPECT_THAT(workers, ::testing::ElementsAre(1, 2, 3, 6, 12, 15, 16, 16));
}

TEST(WorkerSettings, ProcessesThatTuneTogetherShareTheProcessors) {
  std::vector<int> each;
  for (const int processes : {1, 2, 4, 8, 100}) each.push_back(workers_for(64, processes));
  EXPECT_THAT(each, ::testing::ElementsAre(16, 16, 12, 6, 1));
}

TEST(WorkerSettings, DefaultsFitThisMachine) {
  const ce::test::ScopedEnvironment workers("CE_COMPILE_WORKERS", ""), limit("CE_COMPILE_TIMEOUT", "");
  EXPECT_GE(worker_settings().workers, 1);
  EXPECT_LE(worker_settings().workers, 16);
  EXPECT_EQ(worker_settings().kernel_limit, std::chrono::seconds(60));
}

TEST(WorkerSettings, CeWorkerIsNotReplacedByAnother) {
  const ce::test::ScopedEnvironment named("CE_WORKER", "/no/such/ce-tune");
  EXPECT_EQ(worker_settings().program, "");
  EXPECT_THAT(worker_settings().tried, ::testing::ElementsAre("/no/such/ce-tune"));
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const ce::test::ScopedEnvironment found("CE_WORKER", self.string());
  EXPECT_EQ(worker_settings().program, self);
}

TEST(WorkerSettings, AnExecutableThatOffersItselfNeedsNoName) {
  const ce::test::ScopedEnvironment unnamed("CE_WORKER", "");
  ce::runtime::offer_this_executable();
  EXPECT_EQ(worker_settings().program, "/proc/self/exe");
  {
    const ce::test::ScopedEnvironment named("CE_WORKER", "/bin/true");
    EXPECT_EQ(worker_settings().program, "/bin/true");
  }
  ce::runtime::offer_this_executable(false);
  EXPECT_NE(worker_settings().program, "/proc/self/exe");
}

TEST(WorkerSettings, PathIsSearchedButNotTheCurrentFolder) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("ce-worker-" + std::to_string(getpid()));
  fs::create_directory(folder);
  fs::copy_file("/bin/true", folder / "ce-tune");
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  {
    const ce::test::ScopedEnvironment named("CE_WORKER", ""), path("PATH", "/usr/bin::.:" + folder.string());
    const WorkerSettings settings = worker_settings();
    EXPECT_TRUE(settings.program.is_absolute()) << settings.program;
    EXPECT_THAT(settings.tried, Not(Contains("./ce-tune")));
  }
  fs::current_path(before);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace ce::runtime::cuda

int main(int argument_count, char** arguments) {
  // Without the leak check at the end: its helper process may outlive a worker whose host program dies.
  if (argument_count == 2 && std::string_view(arguments[1]) == ce::runtime::compile_worker_argument)
    _exit(ce::runtime::cuda::worker_main());
  return ce::test::run_tests(argument_count, arguments);
}
