// Ends while a kernel is being tuned in the background: on a driver that runs nothing, but with NVRTC at work in
// this process. Exit status 0, or 77 where there is no NVRTC.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ce/ce.hpp"
#include "tests/environment.hpp"
#include "tests/runtime/cuda_fake_driver.hpp"
#include "tests/tuner/fixture.hpp"

int main() {
  static const ce::test::Folder folder;  // outlives what is tuned
  ::setenv("CE_LIBCUDA", CE_FAKE_DRIVER, 1);
  ::setenv("CE_DB", (folder.path() / "ce.db").c_str(), 1);
  ::setenv("CE_POLICY", "background", 1);
  ::setenv("CE_COMPILE_WORKERS", "0", 1);
  ::unsetenv("CE_DEVICE");
  const ce::Tensor input{
      .data = fake_address(of_gpu_0), .dtype = ce::DType::bf16, .rows = 64, .columns = 1024};
  ce::Tensor output = input;
  output.data = fake_address(of_gpu_0, 1 << 20);
  try {
    const ce::Choice& choice = ce::run(ce::Softmax{}, {.input = input, .output = output});
    std::printf("%s: %s\n", choice.config.c_str(), choice.reason.c_str());
    return choice.provisional ? 0 : 1;
  } catch (const ce::Unsupported& error) {
    std::printf("%s\n", error.what());
    return ce::test::is_required("CE_REQUIRE_NVRTC") ? 1 : 77;
  }
}
