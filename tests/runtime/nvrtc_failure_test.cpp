// Failures of NVRTC that are not the source's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "ce/error.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "tests/environment.hpp"

namespace {

using ce::runtime::cuda::Nvrtc;
using ce::test::ScopedEnvironment;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int out_of_memory = 1, program_creation = 2, invalid_option = 5, compilation = 6, builtins = 7,
              internal = 11;

class NvrtcFailure : public ::testing::Test {
 protected:
  NvrtcFailure() : opened_(Nvrtc::open()) {}
  void SetUp() override { ASSERT_NE(opened_.nvrtc, nullptr); }

  /// What comes of compiling where the call ends with that result.
  enum class Blamed { nobody, source, compiler };
  Blamed blamed(const char* call, int result) {
    const ScopedEnvironment fails("FAKE_NVRTC_FAILS", call);
    const ScopedEnvironment how("FAKE_NVRTC_RESULT", std::to_string(result));
    try {
      static_cast<void>(opened_.nvrtc->compile({"kernel", "text", {}, {}}, 90));
      return Blamed::nobody;
    } catch (const ce::CompileError& error) {
      std::filesystem::remove_all(std::filesystem::path(error.source_path()).parent_path());
      return Blamed::source;
    } catch (const ce::Error& error) {
      EXPECT_EQ(error.kind(), ce::ErrorKind::compile);
      EXPECT_THAT(error.what(), HasSubstr("compiling kernel: "));
      return Blamed::compiler;
    }
  }

  const ScopedEnvironment fake_{"CE_NVRTC", CE_FAKE_NVRTC};
  Nvrtc::Opened opened_;
};

TEST_F(NvrtcFailure, IsTheSourcesOnlyWhereNvrtcRefusesTheSource) {
  EXPECT_EQ(blamed("none", 0), Blamed::nobody);
  for (const int result : {compilation, invalid_option})
    EXPECT_EQ(blamed("nvrtcCompileProgram", result), Blamed::source) << result;
  for (const int result : {out_of_memory, builtins, internal, 16, 99})
    EXPECT_EQ(blamed("nvrtcCompileProgram", result), Blamed::compiler) << result;
  EXPECT_EQ(blamed("nvrtcCreateProgram", out_of_memory), Blamed::compiler);
  EXPECT_EQ(blamed("nvrtcCreateProgram", program_creation), Blamed::compiler);
  EXPECT_EQ(blamed("nvrtcGetCUBIN", out_of_memory), Blamed::compiler);
}

TEST_F(NvrtcFailure, IsSaidBeforeThereIsAnythingToCompile) {
  EXPECT_THAT(opened_.nvrtc->problem(), IsEmpty());
  const ScopedEnvironment fails("FAKE_NVRTC_FAILS", "nvrtcCompileProgram"), how("FAKE_NVRTC_RESULT", "7");
  EXPECT_THAT(opened_.nvrtc->problem(), HasSubstr("NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"));
  EXPECT_THAT(opened_.nvrtc->problem(), HasSubstr("failed to open libnvrtc-builtins.so.13.0"));
}

}  // namespace
