// NVRTC, and templates/device/cuda.cuh for every architecture. Needs neither GPU nor driver.
// Without NVRTC the tests are skipped; with CE_REQUIRE_NVRTC=1 they fail.
#include "runtime/cuda/nvrtc.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "ce/error.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/cuda/nvrtc_use.hpp"
#include "tests/environment.hpp"
#include "tests/until.hpp"

namespace {

using namespace ce::runtime::cuda;
using ce::runtime::Binary;
using ce::runtime::CompileRequest;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::map<std::string, std::string> device_headers() {
  std::map<std::string, std::string> headers;
  const std::filesystem::path top = CE_TEMPLATE_DIR;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
    if (entry.path().extension() == ".cuh")
      headers[entry.path().lexically_relative(top)] = read_file(entry.path());
  }
  return headers;
}

std::string text_of(const Binary& binary) {
  return {reinterpret_cast<const char*>(binary.image.data()), binary.image.size()};
}

// Every function of device.cuh, with every cache modifier and width.
constexpr const char* all_functions = R"(
#include "device/device.cuh"

struct Arguments {
  const char* input;
  char* output;
  long long* counters;
};

namespace ce {

struct Shared { float partial[32]; };

template <Load from, Store to, int words>
CE_DEVICE void move_words(const Arguments& a, int64 at) {
  store<to>(a.output + 16 * at, load<from, words>(a.input + 16 * at));
}
template <Load from, Store to, class T>
CE_DEVICE void move_element(const Arguments& a, int64 at) {
  const T x = load_element<from>(reinterpret_cast<const T*>(a.input) + at);
  store_element<to>(reinterpret_cast<T*>(a.output) + at, from_float<T>(2.0f * to_float(x)));
}
template <Load from, Store to>
CE_DEVICE void move_all(const Arguments& a, int64 at) {
  move_words<from, to, 1>(a, at);
  move_words<from, to, 2>(a, at);
  move_words<from, to, 4>(a, at);
  move_element<from, to, f32>(a, at);
  move_element<from, to, f16>(a, at);
  move_element<from, to, bf16>(a, at);
}
template <Load from>
CE_DEVICE void move_from(const Arguments& a, int64 at) {
  move_all<from, Store::wb>(a, at);
  move_all<from, Store::cg>(a, at);
  move_all<from, Store::cs>(a, at);
  move_all<from, Store::wt>(a, at);
}
template <class T>
CE_DEVICE uint32 twice(uint32 word) {
  const Float2 pair = unpack<T>(word);
  return pack<T>(2.0f * pair.low, 2.0f * pair.high);
}

}  // namespace ce

CE_KERNEL(everything, 128) {
  using namespace ce;
  const int64 at = block_index() * 128 + thread_index() + block_count();
  move_from<Load::ca>(arguments, at);
  move_from<Load::cg>(arguments, at);
  move_from<Load::cs>(arguments, at);

  Shared& shared = shared_memory<Shared>();
  float x = maximum(ce::exp2(float(at)), ce::log(float(lane_index()))) + infinity() + not_a_number();
  x += shuffle_xor(x, 16);
  shared.partial[warp_index()] = x;
  warp_barrier();
  block_barrier();
  const uint32 word = twice<f16>(twice<bf16>(__float_as_uint(shared.partial[lane_index()])));
  store<Store::wb>(arguments.output + 4 * at, Words<1>{{word}});
  device_fence();
  const int64 before = atomic_add(arguments.counters, at) + atomic_min(arguments.counters + 1, at);
  if (before == at) arguments.counters[2] = before;
}
)";

// One 16-byte load and store, so that the instructions can be counted.
constexpr const char* one_move = R"(
#include "device/device.cuh"
struct Arguments { const char* input; char* output; };
CE_KERNEL(one_move, 32) {
  using namespace ce;
  store<Store::wt>(arguments.output + 16 * thread_index(),
                   load<Load::cs, 4>(arguments.input + 16 * thread_index()));
}
)";

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    nvrtc_ = Nvrtc::shared().nvrtc.get();
    if (nvrtc_ != nullptr) return;
    if (ce::test::is_required("CE_REQUIRE_NVRTC")) FAIL() << no_nvrtc(Nvrtc::shared().tried);
    GTEST_SKIP() << "no NVRTC on this machine";
  }
  const Nvrtc* nvrtc_ = nullptr;
};

class NvrtcArchitecture : public NvrtcTest, public ::testing::WithParamInterface<int> {};

TEST_P(NvrtcArchitecture, CompilesEveryDeviceFunction) {
  const int capability = GetParam();
  if (std::ranges::count(nvrtc_->architectures(), capability) == 0)
    GTEST_SKIP() << "NVRTC " << nvrtc_->version() << " does not know " << capability;
  const Binary binary = nvrtc_->compile({"everything", all_functions, device_headers(), {}}, capability);
  EXPECT_EQ(binary.log, "");
  const std::string image = text_of(binary);
  EXPECT_THAT(image, StartsWith("\177ELF"));
  EXPECT_THAT(image, HasSubstr("everything"));
}
INSTANTIATE_TEST_SUITE_P(All, NvrtcArchitecture, ::testing::ValuesIn(architectures_of_interest),
                         [](const auto& test) { return "sm_" + std::to_string(test.param); });

TEST_F(NvrtcTest, ReportsItselfAndItsArchitectures) {
  EXPECT_TRUE(std::filesystem::exists(nvrtc_->path())) << nvrtc_->path();
  EXPECT_THAT(nvrtc_->version(), ::testing::MatchesRegex("1[0-9]\\.[0-9]+"));
  EXPECT_THAT(nvrtc_->architectures_to_test(), Contains(90));
  EXPECT_EQ(nvrtc_->target(90), "sm_90");
  EXPECT_EQ(nvrtc_->target(90, true), "sm_90a");
  EXPECT_EQ(Nvrtc::if_opened(), nvrtc_);
}

TEST_F(NvrtcTest, FallsBackToPtxForAnUnknownCapability) {
  EXPECT_EQ(nvrtc_->target(91), "compute_90");
  EXPECT_THROW(static_cast<void>(nvrtc_->target(91, true)), ce::Unsupported);
  const std::string ptx = text_of(nvrtc_->compile({"move", one_move, device_headers(), {}}, 91));
  EXPECT_THAT(ptx, HasSubstr(".target sm_90"));
  EXPECT_EQ(ptx.back(), '\0') << "the driver looks for it";
}

TEST_F(NvrtcTest, RefusesACapabilityBelowAllItKnows) {
  EXPECT_THROW(static_cast<void>(nvrtc_->target(10)), ce::Unsupported);
}

TEST_F(NvrtcTest, KeepsCacheModifiersAndWideAccessesInPtx) {
  const std::string ptx = text_of(nvrtc_->compile({"everything", all_functions, device_headers(), {}}, 91));
  for (const std::string modifier : {"ca", "cg", "cs"}) {
    for (const char* width : {".b32", ".v2.b32", ".v4.b32", ".b16"})
      EXPECT_THAT(ptx, HasSubstr("ld.global." + modifier + width));
  }
  for (const std::string modifier : {"wb", "cg", "cs", "wt"}) {
    for (const char* width : {".b32", ".v2.b32", ".v4.b32", ".b16"})
      EXPECT_THAT(ptx, HasSubstr("st.global." + modifier + width));
  }
}

TEST_F(NvrtcTest, MovesSixteenBytesInOneInstruction) {
  const std::string ptx = text_of(nvrtc_->compile({"move", one_move, device_headers(), {}}, 91));
  const auto count = [&](const std::string& part) {
    int n = 0;
    for (std::size_t at = ptx.find(part); at != std::string::npos; at = ptx.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("ld.global"), 1) << ptx;
  EXPECT_EQ(count("st.global"), 1) << ptx;
  EXPECT_EQ(count("ld.global.cs.v4.b32"), 1) << ptx;
  EXPECT_EQ(count("st.global.wt.v4.b32"), 1) << ptx;
}

TEST_F(NvrtcTest, PassesOptionsAndKeepsWarnings) {
  const std::string text =
      "#if CHOSEN != 7\n#error not passed\n#endif\n"
      "extern \"C\" __global__ void f() { int unused_variable; }\n";
  const Binary binary = nvrtc_->compile({"options", text, {}, {"-DCHOSEN=7"}}, 90);
  EXPECT_THAT(binary.log, HasSubstr("unused_variable"));
}

TEST_F(NvrtcTest, CompilesCpp20) {
  if (nvrtc_->version() < "12") GTEST_SKIP() << "C++17 before NVRTC 12";
  const std::string text =
      "template <class T> requires(sizeof(T) == 4) __device__ T id(T x) { return x; }\n"
      "extern \"C\" __global__ void f(int* x) { *x = id(1); }\n";
  EXPECT_FALSE(nvrtc_->compile({"concepts", text, {}, {}}, 90).image.empty());
}

TEST_F(NvrtcTest, AFailureCarriesTheLogAndKeepsTheSource) {
  const CompileRequest request = {"softmax/block",
                                  "#include \"part.cuh\"\nint broken() { return undeclared; }\n",
                                  {{"part.cuh", "// a header\n"}},
                                  {}};
  try {
    static_cast<void>(nvrtc_->compile(request, 90));
    FAIL() << "compiled";
  } catch (const ce::CompileError& error) {
    EXPECT_EQ(error.kind(), ce::ErrorKind::compile);
    EXPECT_THAT(error.log(), HasSubstr("undeclared"));
    EXPECT_THAT(error.log(), HasSubstr("sm_90"));
    const std::filesystem::path path = error.source_path();
    EXPECT_EQ(path.filename(), "softmax-block.cu");
    EXPECT_EQ(read_file(path), request.text);
    EXPECT_EQ(read_file(path.parent_path() / "part.cuh"), "// a header\n");
    std::filesystem::remove_all(path.parent_path());
  }
}

TEST_F(NvrtcTest, AnUnknownOptionIsACompileError) {
  try {
    static_cast<void>(nvrtc_->compile({"f", "", {}, {"--no-such-option"}}, 90));
    FAIL() << "compiled";
  } catch (const ce::CompileError& error) {
    EXPECT_THAT(error.log(), HasSubstr("no-such-option"));
    std::filesystem::remove_all(std::filesystem::path(error.source_path()).parent_path());
  }
}

TEST_F(NvrtcTest, ThreadsMayCompileAtTheSameTime) {
  std::vector<std::string> images(4);
  std::vector<std::thread> threads;
  for (std::string& image : images) {
    threads.emplace_back([&image, this] {
      image = text_of(nvrtc_->compile({"move", one_move, device_headers(), {}}, 90));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& image : images) EXPECT_EQ(image, images.front());
  EXPECT_THAT(images.front(), StartsWith("\177ELF"));
}

/// It has none of its parent's threads.
TEST(NvrtcUseTest, AForkedChildEndsWhileAThreadOfItsParentIsInside) {
  { const NvrtcUse once; }  // whose end is registered
  std::promise<void> inside, enough;
  std::thread user([&] {
    const NvrtcUse use;
    inside.set_value();
    enough.get_future().wait();
  });
  inside.get_future().wait();
  for (const bool uses : {false, true}) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      if (uses) const NvrtcUse own;
      std::exit(0);
    }
    int status = 0;
    pid_t ended = 0;
    static_cast<void>(ce::test::until([&] { return (ended = ::waitpid(child, &status, WNOHANG)) != 0; }));
    EXPECT_EQ(ended, child) << "it waits for a thread that it does not have";
    if (ended == 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    }
    EXPECT_EQ(status, 0);
  }
  enough.set_value();
  user.join();
}

TEST(NvrtcSearch, AWrongCeNvrtcIsNotReplacedByAnother) {
  const ce::test::ScopedEnvironment file("CE_NVRTC", "/no/such/libnvrtc.so.13");
  const Nvrtc::Opened opened = Nvrtc::open();
  EXPECT_EQ(opened.nvrtc, nullptr);
  ASSERT_EQ(opened.tried.size(), 1);
  EXPECT_THAT(opened.tried[0], HasSubstr("/no/such/libnvrtc.so.13"));
}

TEST(NvrtcSearch, NoLibraryGivesUnsupportedWithThePlacesTried) {
  const std::filesystem::path empty = std::filesystem::temp_directory_path() / "ce-nvrtc-test-empty";
  std::filesystem::create_directory(empty);
  const ce::test::ScopedEnvironment folder("CE_NVRTC", empty.string());
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, whose first search it is
  EXPECT_EXIT(
      {
        try {
          static_cast<void>(Nvrtc::get());
        } catch (const ce::Unsupported& error) {
          std::fputs(error.what(), stderr);
          std::exit(3);
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(3), "CE_NVRTC(.|\n)*ce-nvrtc-test-empty");
  std::filesystem::remove(empty);
}

TEST(NvrtcSearch, ALibraryThatIsNotNvrtcIsNamed) {
  const ce::test::ScopedEnvironment file("CE_NVRTC", "libm.so.6");
  const Nvrtc::Opened opened = Nvrtc::open();
  EXPECT_EQ(opened.nvrtc, nullptr);
  EXPECT_THAT(opened.tried, Contains(AllOf(HasSubstr("libm.so.6"), HasSubstr("nvrtcGetErrorString"))));
}

TEST_F(NvrtcTest, AFolderInCeNvrtcIsSearched) {
  const ce::test::ScopedEnvironment folder("CE_NVRTC",
                                           std::filesystem::path(nvrtc_->path()).parent_path().string());
  const Nvrtc::Opened opened = Nvrtc::open();
  ASSERT_NE(opened.nvrtc, nullptr) << no_nvrtc(opened.tried);
  EXPECT_EQ(opened.nvrtc->version(), nvrtc_->version());
}

TEST(Nvml, ThrottleReasonsBecomeWords) {
  EXPECT_EQ(throttle_text(0), "none");
  EXPECT_EQ(throttle_text(0x1), "idle");
  EXPECT_EQ(throttle_text(0x24), "power cap, software thermal");
  EXPECT_EQ(throttle_text(0x40000004), "power cap, 0x40000000");
}

}  // namespace
