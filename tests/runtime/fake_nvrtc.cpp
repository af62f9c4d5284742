// An NVRTC that compiles nothing: each call that FAKE_NVRTC_FAILS names ends with the result in FAKE_NVRTC_RESULT.
#include <nvrtc.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

nvrtcResult result_of(std::string_view call) {
  const char* fails = std::getenv("FAKE_NVRTC_FAILS");
  const char* result = std::getenv("FAKE_NVRTC_RESULT");
  if (fails == nullptr || result == nullptr || call != fails) return NVRTC_SUCCESS;
  return static_cast<nvrtcResult>(std::atoi(result));
}

constexpr char message[] = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure of it.\n";

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    default: return "NVRTC_ERROR";
  }
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  *architectures = 90;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int, const char* const*,
                               const char* const*) {
  *program = nullptr;
  return result_of("nvrtcCreateProgram");
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return result_of("nvrtcCompileProgram");
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t* bytes) {
  *bytes = sizeof message;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* text) {
  std::memcpy(text, message, sizeof message);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t* bytes) {
  *bytes = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* image) {
  *image = 'x';
  return result_of("nvrtcGetCUBIN");
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* bytes) {
  return nvrtcGetCUBINSize(program, bytes);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* image) { return nvrtcGetCUBIN(program, image); }

}  // extern "C"
