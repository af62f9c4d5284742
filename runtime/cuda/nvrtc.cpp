#include "runtime/cuda/nvrtc.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <nvrtc.h>

#include <algorithm>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "base/made_once.hpp"
#include "ce/error.hpp"
#include "ce/source_location.hpp"
#include "runtime/cuda/keep_source.hpp"
#include "runtime/cuda/library_paths.hpp"
#include "runtime/cuda/nvrtc_use.hpp"

namespace ce::runtime::cuda {

// clang-format off
#define CE_NVRTC_FUNCTIONS(X)                                                                          \
  X(nvrtcGetErrorString) X(nvrtcVersion) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs)        \
  X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram)                                  \
  X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN)                \
  X(nvrtcGetPTXSize) X(nvrtcGetPTX)
// clang-format on

struct Nvrtc::Api {
#define CE_NVRTC_MEMBER(name) decltype(&::name) name = nullptr;
  CE_NVRTC_FUNCTIONS(CE_NVRTC_MEMBER)
#undef CE_NVRTC_MEMBER

  std::string path;
  int major = 0, minor = 0;
  std::vector<int> architectures;

  void check(nvrtcResult result, std::string_view call,
             SourceLocation where = SourceLocation::current()) const {
    if (result != NVRTC_SUCCESS) throw DeviceError(call, result, nvrtcGetErrorString(result), where);
  }
};

#define CE_NVRTC_CHECK(api, call) (api).check((api).call, #call)

namespace {

/// Whether the error is about the source. Other errors (missing builtins, short memory, internal errors) are the
/// compiler's, and no config is blamed for them.
bool is_of_source(nvrtcResult result) {
  return result == NVRTC_ERROR_COMPILATION || result == NVRTC_ERROR_INVALID_OPTION;
}

Error not_compiled(std::string_view name, std::string_view why) {
  return Error(ErrorKind::compile, fmt::format("compiling {}: {}", name, why));
}

}  // namespace

namespace {

constinit MadeOnce<Nvrtc::Opened> shared_nvrtc;

/// The first function that the library lacks, or an empty text.
template <class Api>
std::string bind(void* library, Api& api) {
  std::string missing;
  const auto find = [&](auto& member, const char* symbol) {
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(library, symbol));
    if (member == nullptr && missing.empty()) missing = symbol;
  };
#define CE_NVRTC_FIND(name) find(api.name, #name);
  CE_NVRTC_FUNCTIONS(CE_NVRTC_FIND)
#undef CE_NVRTC_FIND
  return missing;
}

std::string file_of(void* library, const std::string& name) {
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0') return name;
  return map->l_name;
}

}  // namespace

Nvrtc::Nvrtc(std::unique_ptr<const Api> api) : api_(std::move(api)) {}
Nvrtc::~Nvrtc() = default;

namespace {

/// NVRTC opens its builtins by name. The loader finds them if NVRTC has a search path for them (a toolkit's has one, a
/// wheel's may not), or if a library of that name is open already.
void open_builtins_beside(const std::string& nvrtc) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(nvrtc).parent_path(), error))
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so"))
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

Nvrtc::Opened Nvrtc::open() {
  Opened opened;
  for (const std::string& name : library_paths(nvrtc_library, opened.tried)) {
    // Never closed: NVRTC may leave threads and thread-local data behind.
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      opened.tried.push_back(reason == nullptr ? name : reason);
      continue;
    }
    auto api = std::make_unique<Api>();
    if (const std::string missing = bind(library, *api); !missing.empty()) {
      opened.tried.push_back(
          fmt::format("{}: it is too old or is not NVRTC, because it has no function {}", name, missing));
      continue;
    }
    api->path = file_of(library, name);
    open_builtins_beside(api->path);
    int count = 0;
    CE_NVRTC_CHECK(*api, nvrtcVersion(&api->major, &api->minor));
    CE_NVRTC_CHECK(*api, nvrtcGetNumSupportedArchs(&count));
    api->architectures.resize(static_cast<std::size_t>(count));
    CE_NVRTC_CHECK(*api, nvrtcGetSupportedArchs(api->architectures.data()));
    std::sort(api->architectures.begin(), api->architectures.end());
    opened.nvrtc.reset(new Nvrtc(std::move(api)));
    return opened;
  }
  return opened;
}

const Nvrtc::Opened& Nvrtc::shared() { return shared_nvrtc.get(open); }

const Nvrtc& Nvrtc::get() {
  const Opened& opened = shared();
  if (opened.nvrtc == nullptr) throw Unsupported(no_nvrtc(opened.tried));
  return *opened.nvrtc;
}

const Nvrtc* Nvrtc::if_opened() noexcept {
  const Opened* opened = shared_nvrtc.if_made();
  return opened == nullptr ? nullptr : opened->nvrtc.get();
}

const std::string& Nvrtc::path() const noexcept { return api_->path; }
std::string Nvrtc::version() const { return fmt::format("{}.{}", api_->major, api_->minor); }
const std::vector<int>& Nvrtc::architectures() const noexcept { return api_->architectures; }

std::vector<int> Nvrtc::architectures_to_test() const {
  std::vector<int> both;
  for (const int capability : architectures_of_interest) {
    if (std::binary_search(architectures().begin(), architectures().end(), capability))
      both.push_back(capability);
  }
  return both;
}

std::string Nvrtc::target(int capability, bool specific) const {
  const std::vector<int>& known = architectures();
  const auto above = std::upper_bound(known.begin(), known.end(), capability);
  if (above == known.begin() || (specific && *(above - 1) != capability))
    throw Unsupported(fmt::format("NVRTC {} ({}) cannot compile for compute capability {}.{}", version(),
                                  path(), capability / 10, capability % 10));
  const int nearest = *(above - 1);
  return fmt::format("{}_{}{}", nearest == capability ? "sm" : "compute", nearest, specific ? "a" : "");
}

std::string Nvrtc::problem() const {
  try {
    const CompileRequest trial{.name = "trial",
                               .text = "extern \"C\" __global__ void trial(float* x) {\n  *x = 1.0f;\n}\n",
                               .headers = {},
                               .options = {}};
    static_cast<void>(compile(trial, architectures().empty() ? 0 : architectures().front()));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Binary Nvrtc::compile(const CompileRequest& request, int capability) const {
  try {
    return compile_program(request, capability);
  } catch (const DeviceError& error) {  // the error of an NVRTC call, which is not a device
    throw not_compiled(request.name, error.what());
  }
}

Binary Nvrtc::compile_program(const CompileRequest& request, int capability) const {
  const NvrtcUse use;
  const std::string architecture = target(capability, request.architecture_specific);
  std::vector<std::string> options = {"--gpu-architecture=" + architecture,
                                      api_->major >= 12 ? "-std=c++20" : "-std=c++17"};
  // ce caches compiled kernels itself. NVRTC's own cache would load and start the driver in every worker first, which
  // takes as long as a compilation, and longer the more workers do it at once.
  if (std::pair(api_->major, api_->minor) >= std::pair(12, 9)) options.emplace_back("--no-cache");
  options.insert(options.end(), request.options.begin(), request.options.end());
  std::vector<const char*> option_texts, header_texts, header_names;
  for (const std::string& option : options) option_texts.push_back(option.c_str());
  for (const auto& [name, text] : request.headers) {
    header_names.push_back(name.c_str());
    header_texts.push_back(text.c_str());
  }

  struct Program {
    const Api& api;
    nvrtcProgram handle = nullptr;
    ~Program() { static_cast<void>(api.nvrtcDestroyProgram(&handle)); }
  } program{*api_};
  const std::string file_name = request.name + ".cu";
  CE_NVRTC_CHECK(*api_, nvrtcCreateProgram(&program.handle, request.text.c_str(), file_name.c_str(),
                                           static_cast<int>(header_texts.size()), header_texts.data(),
                                           header_names.data()));
  const nvrtcResult result =
      api_->nvrtcCompileProgram(program.handle, static_cast<int>(option_texts.size()), option_texts.data());

  Binary binary;
  std::size_t bytes = 0;
  CE_NVRTC_CHECK(*api_, nvrtcGetProgramLogSize(program.handle, &bytes));
  binary.log.resize(bytes);
  if (bytes > 0) CE_NVRTC_CHECK(*api_, nvrtcGetProgramLog(program.handle, binary.log.data()));
  while (!binary.log.empty() && (binary.log.back() == '\0' || binary.log.back() == '\n'))
    binary.log.pop_back();
  if (result != NVRTC_SUCCESS) {
    const std::string verdict = fmt::format("{} (NVRTC {}, {})", api_->nvrtcGetErrorString(result), version(),
                                            fmt::join(options, " "));
    const std::string log = binary.log.empty() ? verdict : verdict + "\n" + binary.log;
    if (!is_of_source(result)) throw not_compiled(request.name, log);
    throw CompileError(request.name, log, keep_source(request));
  }
  if (architecture.starts_with("sm_")) {
    CE_NVRTC_CHECK(*api_, nvrtcGetCUBINSize(program.handle, &bytes));
    binary.image.resize(bytes);
    CE_NVRTC_CHECK(*api_, nvrtcGetCUBIN(program.handle, reinterpret_cast<char*>(binary.image.data())));
  } else {
    CE_NVRTC_CHECK(*api_, nvrtcGetPTXSize(program.handle, &bytes));
    binary.image.resize(bytes);  // includes the NUL that the driver expects
    CE_NVRTC_CHECK(*api_, nvrtcGetPTX(program.handle, reinterpret_cast<char*>(binary.image.data())));
  }
  return binary;
}

std::string no_nvrtc(const std::vector<std::string>& tried) {
  return fmt::format(
      "NVRTC, which compiles the kernels, was not found. Install the package nvidia-cuda-nvrtc with pip or a "
      "CUDA "
      "toolkit of version 12 or 13, or set CE_NVRTC to libnvrtc.so.13 or its folder. Looked in:\n  {}",
      fmt::join(tried, "\n  "));
}

}  // namespace ce::runtime::cuda
