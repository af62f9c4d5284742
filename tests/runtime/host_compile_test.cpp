// Compilers of the host device that do not do what they should.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "ce/error.hpp"
#include "runtime/host/compiler.hpp"
#include "runtime/host/device.hpp"
#include "tests/runtime/host_fixture.hpp"

namespace ce::runtime::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds, std::chrono::seconds, std::chrono::steady_clock;

class HostCompile : public ::testing::Test {
 protected:
  HostCompile() {
    std::string name = fs::temp_directory_path() / "ce-test-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~HostCompile() override { fs::remove_all(folder_); }

  /// A compiler that tells its version, and for a kernel runs these commands in its folder.
  [[nodiscard]] std::string compiler_that(const std::string& commands) const {
    const fs::path script = folder() / "c++";
    std::ofstream(script) << "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ (Test 1-2) 1.2.3' && exit\n"
                          << commands << "\n";
    fs::permissions(script, fs::perms::owner_all);
    return script;
  }
  [[nodiscard]] const fs::path& folder() const { return folder_; }

  /// What an Error(compile) says that is no CompileError, as the source is not at fault.
  static std::string obstacle(const std::string& program) {
    const ScopedEnvironment chosen("CE_HOST_COMPILER", program);
    const host::Compiler compiler;
    try {
      static_cast<void>(compiler.compile(request("")));
      ADD_FAILURE() << "compiled";
    } catch (const CompileError& error) {
      ADD_FAILURE() << "taken for a fault of the source: " << error.what();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::compile);
      return error.what();
    }
    return "";
  }
  /// The log of one.
  static std::string fault(const host::Compiler& compiler, milliseconds limit) {
    try {
      static_cast<void>(compiler.compile(request(""), limit));
      ADD_FAILURE() << "compiled";
    } catch (const CompileError& error) {
      fs::remove_all(fs::path(error.source_path()).parent_path());
      return error.log();
    }
    return "";
  }

 private:
  fs::path folder_;
};

std::vector<std::byte> image() {
  return compiled(
             "#include \"device/device.cuh\"\nstruct Arguments { float* out; };\nCE_KERNEL(k, 32) { "
             "*arguments.out "
             "= 1; }\n")
      .image;
}

TEST_F(HostCompile, HalfAKernelIsTheCompilersFault) {
  const std::vector<std::byte> whole = image();
  const std::string file = folder() / "whole.so";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(whole.data()), static_cast<std::streamsize>(whole.size()));
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{63}, whole.size() / 2, whole.size() - 1}) {
    const std::string said =
        obstacle(compiler_that("head -c " + std::to_string(bytes) + " " + file + " > kernel.so"));
    EXPECT_NE(said.find("ended with status 0, but its output is not a kernel"), std::string::npos) << said;
  }
  EXPECT_NE(obstacle(compiler_that("exit 0")).find("0 bytes"), std::string::npos) << "without a file";
  EXPECT_NE(obstacle(compiler_that("cp $0 kernel.so; head -c 5000 /dev/zero >> kernel.so"))
                .find("not a shared object"),
            std::string::npos);
}

TEST_F(HostCompile, HalfAKernelIsNotLoaded) {
  const std::vector<std::byte> whole = image();
  const auto device = open_host_device();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{63}, std::size_t{64}, std::size_t{4096},
                                  whole.size() / 2, whole.size() - 1})
    EXPECT_THROW(static_cast<void>(device->load(std::span(whole).first(bytes))), DeviceError) << bytes;
  EXPECT_NO_THROW(static_cast<void>(device->load(whole)));
}

/// Has the system refuse files in memory, and to map those of folders as code, as where /tmp is mounted noexec.
/// \returns whether it does
bool execute_nothing() {
  constexpr auto of_prot =
      offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t);  // the low half comes first
  constexpr auto of_flags = offsetof(seccomp_data, args) + 3 * sizeof(std::uint64_t);
  std::array filter{sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 5),
                    sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, of_flags),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 3, 0),
                    sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, of_prot),
                    sock_filter BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                    sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// What loading the image says in a process that may do what `prepare` leaves it.
template <class Prepare>
std::string said_of(runtime::Device& device, const std::vector<std::byte>& image, const Prepare& prepare) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said = "not prepared";
    if (prepare()) {
      try {
        static_cast<void>(device.load(image));
        said = "loaded";
      } catch (const DeviceError& error) {
        said = std::string("a fault of the kernel: ") + error.what();
      } catch (const Error& error) {
        said = fmt::format("{}: {}", name(error.kind()), error.what());
      }
    }
    static_cast<void>(!::write(ends[1], said.data(), said.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(4096, ' ');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], said.data(), said.size()))));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

TEST_F(HostCompile, AFolderThatNothingIsExecutedFromIsNoFaultOfAKernel) {
  const auto device = open_host_device();
  const std::vector<std::byte> image =
      device->compile(request("#include \"device/device.cuh\"\nstruct Arguments {};\nCE_KERNEL(k, 32) {}"))
          .image;
  const ScopedEnvironment chosen("TMPDIR", folder());
  const std::string said = said_of(*device, image, execute_nothing);
  if (said == "not prepared") GTEST_SKIP() << "the system takes no filters of system calls";
  EXPECT_EQ(
      said,
      fmt::format("device error: no kernel of the host device can be loaded: the system does not execute "
                  "files in memory or in {} (Operation not permitted): name a folder in TMPDIR that is not "
                  "mounted noexec",
                  folder().string()));
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(HostCompile, WhatACompilerLeavesRunningHoldsNothingUp) {
  const std::vector<std::byte> whole = image();
  const std::string file = folder() / "whole.so";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(whole.data()), static_cast<std::streamsize>(whole.size()));
  const ScopedEnvironment chosen(
      "CE_HOST_COMPILER", compiler_that("echo before\ncp " + file + " kernel.so\nsleep 60 &\necho $! > " +
                                        (folder() / "left").string()));
  const auto start = steady_clock::now();
  const Binary binary = host::Compiler().compile(request(""));
  EXPECT_LT(steady_clock::now() - start, seconds(30));
  EXPECT_EQ(binary.image, whole);
  EXPECT_EQ(binary.log, "before\n");
  pid_t left = 0;
  std::ifstream(folder() / "left") >> left;
  ASSERT_GT(left, 0);
  EXPECT_EQ(::kill(left, SIGKILL), 0) << "it is not ce's to end";
}

TEST_F(HostCompile, TheTimeLimitHoldsForACompilerThatIsSilent) {
  const ScopedEnvironment chosen("CE_HOST_COMPILER", compiler_that("exec >&- 2>&-\nexec sleep 60"));
  const auto start = steady_clock::now();
  EXPECT_NE(fault(host::Compiler(), milliseconds(100)).find("killed because it did not end within 100 ms"),
            std::string::npos);
  EXPECT_LT(steady_clock::now() - start, seconds(30));
}

/// One that is killed cannot remove them.
TEST_F(HostCompile, TheCompilersOwnFilesLieInTheFolderThatGoes) {
  const std::string seen = folder() / "seen";
  const ScopedEnvironment chosen("CE_HOST_COMPILER", compiler_that("(cd \"$TMPDIR\"; pwd -P) > " + seen +
                                                                   "; pwd -P >> " + seen + "; exit 1"));
  static_cast<void>(fault(host::Compiler(), seconds(60)));
  std::string temporary, working;
  std::ifstream(seen) >> temporary >> working;
  EXPECT_EQ(temporary, working);
  EXPECT_NE(temporary.find("/ce-source-"), std::string::npos) << temporary;
  EXPECT_FALSE(fs::exists(temporary));
}

TEST_F(HostCompile, TheTimeLimitIsOfTheEnvironment) {
  const ScopedEnvironment chosen("CE_HOST_COMPILER", compiler_that("exec sleep 60"));
  {
    const ScopedEnvironment limit("CE_COMPILE_TIMEOUT", "1");
    const host::Compiler compiler;
    try {
      static_cast<void>(compiler.compile(request("")));
      ADD_FAILURE() << "compiled";
    } catch (const CompileError& error) {
      fs::remove_all(fs::path(error.source_path()).parent_path());
      EXPECT_NE(error.log().find("killed because it did not end within 1000 ms"), std::string::npos)
          << error.log();
    }
  }
  const ScopedEnvironment nonsense("CE_COMPILE_TIMEOUT", "soon");
  EXPECT_THROW(static_cast<void>(open_host_device()), InvalidArgument);
}

/// Of the compiler's own files, under `ulimit -f`.
TEST_F(HostCompile, ALimitOnFilesIsNotTheSourcesFault) {
  EXPECT_NE(obstacle(compiler_that("kill -XFSZ $$; sleep 60")).find("ended by signal 25"), std::string::npos);
  const std::string said = obstacle(compiler_that("echo 'as: File size limit exceeded' >&2; exit 1"));
  EXPECT_NE(said.find("File size limit exceeded"), std::string::npos) << said;
}

}  // namespace
}  // namespace ce::runtime::testing
