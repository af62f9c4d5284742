#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "cache/file_system.hpp"
#include "cache/layers.hpp"
#include "cache/open.hpp"
#include "ce/device_name.hpp"
#include "ce/error.hpp"
#include "ce/policy.hpp"
#include "ce/version.hpp"
#include "cli/commands.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "cli/say.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "runtime/cuda/device.hpp"
#include "runtime/host/device.hpp"

namespace ce::cli {
namespace {

constexpr const char* doctor_examples =
    "\nExamples:\n"
    "  ce-tune doctor\n"
    "  ce-tune doctor --json --db my.db\n"
    "\n"
    "Exit status: 0 if this machine can tune (its GPUs, or the host device if it has none), the database and "
    "all its\nlayers can be used, and the values of CE_DEVICE, CE_POLICY, CE_LOG and CE_HOST_SEED are valid; "
    "otherwise that of\nthe first problem.\n";

/// The result of one check.
struct Diagnosis {
  enum class State { good, absent, bad };
  std::string what;  ///< "driver"
  State state = State::good;
  std::string detail;
  std::string remedy;  ///< how to fix it; empty if nothing needs fixing
  Json facts = Json::object();
  ExitCode code = ExitCode::success;  ///< exit code of a bad result, if it has several possible causes
};

std::string_view name(Diagnosis::State state) {
  switch (state) {
    case Diagnosis::State::good: return "ok";
    case Diagnosis::State::absent: return "none";
    case Diagnosis::State::bad: return "PROBLEM";
  }
  return "?";
}

Diagnosis check_driver(const runtime::CudaStatus& cuda) {
  if (!cuda.driver_found)
    return {.what = "driver",
            .state = Diagnosis::State::absent,
            .detail = cuda.driver_problem,
            .remedy =
                "for a GPU, install NVIDIA's driver (nvidia-smi shows whether it works); in a container, "
                "start it "
                "with --gpus all",
            .facts = {{"problem", cuda.driver_problem}}};
  return {.what = "driver",
          .detail = fmt::format("CUDA {}{}", cuda.cuda_version,
                                cuda.driver_version.empty() ? "" : ", driver " + cuda.driver_version),
          .facts = {{"cuda_version", cuda.cuda_version}, {"driver_version", cuda.driver_version}}};
}

/// Shortens a compiler's message.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, text.find_last_not_of("\n ") + 1))
    if (c != '\n' && c != ' ')
      line += c;
    else if (!line.ends_with(' '))
      line += ' ';
  return line;
}

Diagnosis check_nvrtc(const runtime::CudaStatus& cuda) {
  Json facts{{"tried", cuda.nvrtc_tried}};
  if (!cuda.nvrtc_found)
    return {.what = "nvrtc",
            .state = cuda.gpus.empty() ? Diagnosis::State::absent : Diagnosis::State::bad,
            .detail = fmt::format("not found; looked in {}", fmt::join(cuda.nvrtc_tried, "; ")),
            .remedy =
                "for a GPU, pip install nvidia-cuda-nvrtc, or install a CUDA toolkit, or set CE_NVRTC to "
                "libnvrtc.so",
            .facts = std::move(facts)};
  facts.update({{"path", cuda.nvrtc_path},
                {"version", cuda.nvrtc_version},
                {"architectures", cuda.nvrtc_architectures},
                {"problem", cuda.nvrtc_problem}});
  if (!cuda.nvrtc_problem.empty())
    return {.what = "nvrtc",
            .state = Diagnosis::State::bad,
            .detail = fmt::format("{} at {} cannot compile: {}", cuda.nvrtc_version, cuda.nvrtc_path,
                                  one_line(cuda.nvrtc_problem)),
            .remedy =
                "repair or reinstall it (all files of the package nvidia-cuda-nvrtc or of a CUDA toolkit, "
                "with libnvrtc-builtins), or set CE_NVRTC to another libnvrtc.so",
            .facts = std::move(facts),
            .code = ExitCode::compile};
  return {.what = "nvrtc",
          .detail = fmt::format("{} at {}, for sm_{}", cuda.nvrtc_version, cuda.nvrtc_path,
                                fmt::join(cuda.nvrtc_architectures, ", sm_")),
          .facts = std::move(facts)};
}

Diagnosis check_gpu(const runtime::CudaStatus::Gpu& gpu) {
  const runtime::Model& model = gpu.model;
  Json facts = json_of(model);
  facts["uuid"] = gpu.uuid;
  const std::string what = fmt::format("cuda:{}", gpu.ordinal);
  if (!gpu.problem.empty())
    return {.what = what,
            .state = Diagnosis::State::bad,
            .detail = gpu.problem,
            .remedy = "use another GPU with --device, or --device host",
            .facts = std::move(facts)};
  return {
      .what = what,
      .detail = fmt::format(
          "{}, compute capability {}.{}, {} multiprocessors, {} memory, {} L2, {} shared memory a "
          "block{}",
          model.name, model.capability / 10, model.capability % 10, model.multiprocessors,
          size_text(model.memory_bytes), size_text(model.l2_bytes), size_text(model.shared_bytes_per_block),
          model.mig_slice.empty() ? "" : ", MIG slice " + model.mig_slice),
      .facts = std::move(facts)};
}

Diagnosis check_host() {
  std::unique_ptr<runtime::Device> host;
  try {
    host = runtime::open_host_device();
  } catch (const InvalidArgument& error) {  // an invalid environment variable
    return {.what = "host",
            .state = Diagnosis::State::bad,
            .detail = error.what(),
            .remedy = fmt::format("unset {}, or set it to such a value", error.argument()),
            .code = ExitCode::usage};
  }
  Json facts = json_of(host->model());
  try {
    const std::string compiler = host->compiler();
    facts["compiler"] = compiler;
    const runtime::CompileRequest trial{.name = "trial",
                                        .text = "extern \"C\" int trial() {\n  return 1;\n}\n",
                                        .headers = {},
                                        .options = {}};
    static_cast<void>(host->compile(trial));
    return {
        .what = "host",
        .detail = fmt::format(
            "{}, compiler {}; it shows whether kernels are correct, but its times say nothing about a GPU",
            host->model().name, compiler),
        .facts = std::move(facts)};
  } catch (const Unsupported& error) {
    return {.what = "host",
            .state = Diagnosis::State::absent,
            .detail = "no C++ compiler",
            .remedy = error.what(),
            .facts = std::move(facts),
            .code = ExitCode::compile};
  } catch (const Error& error) {
    return {.what = "host",
            .state = Diagnosis::State::bad,
            .detail = fmt::format("the C++ compiler cannot compile: {}", one_line(error.what())),
            .remedy = "repair or reinstall the compiler, or set CE_HOST_COMPILER to another one",
            .facts = std::move(facts),
            .code = ExitCode::compile};
  }
}

/// The default device of programs and commands.
Diagnosis check_device(const CommonOptions& common) {
  const bool chosen = environment_variable("CE_DEVICE").has_value();
  Diagnosis diagnosis{.what = "device", .facts = {{"from_environment", chosen}}};
  try {
    if (chosen) static_cast<void>(open_device(common));
    const std::string device = default_device_name();
    diagnosis.facts["device"] = device;
    diagnosis.detail = fmt::format("{} ({})", device, chosen ? "CE_DEVICE" : "the default");
  } catch (const Error& error) {
    diagnosis.state = Diagnosis::State::bad;
    diagnosis.code = exit_code_of(error.kind());
    diagnosis.detail = error.what();
    diagnosis.remedy = "unset CE_DEVICE, or set it to a device that is listed above";
  }
  return diagnosis;
}

/// The folder of a database, or its nearest existing parent.
std::filesystem::path nearest_folder(const std::filesystem::path& database) {
  std::error_code ignored;  // a path that cannot be examined counts as missing
  std::filesystem::path folder = std::filesystem::absolute(database).parent_path();
  while (!std::filesystem::exists(folder, ignored) && folder.has_relative_path())
    folder = folder.parent_path();
  return folder;
}

/// Space for a few searches.
constexpr std::int64_t least_free_bytes = 16 << 20;

/// A message that a disk is nearly full; empty if it is not, or if that is unknown.
std::string shortage_in(const std::filesystem::path& folder) {
  std::error_code unknown;
  const auto free = static_cast<std::int64_t>(std::filesystem::space(folder, unknown).available);
  if (unknown || free >= least_free_bytes) return {};
  return fmt::format("the disk of {} has only {} left", folder.string(), size_text(free));
}

/// Why a missing or empty database cannot be created there; empty if it can be. Only a try shows it for its folder, or
/// its nearest existing parent.
std::string obstacle_to(const std::filesystem::path& database) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // a path that cannot be examined counts as missing
  if (fs::exists(database, ignored)) {
    if (::access(database.c_str(), R_OK | W_OK) != 0)
      return fmt::format("it cannot be written ({})", std::generic_category().message(errno));
  } else if (const std::string link = cache::dangling_link(database); !link.empty()) {
    return "it is " + link;
  } else if (std::string excess = cache::excess_of_name(database, cache::longest_of_all); !excess.empty()) {
    return excess;
  }
  const fs::path folder = nearest_folder(database);
  std::string trial = (folder / "ce-doctor-XXXXXX").string();
  if (::mkdtemp(trial.data()) == nullptr)
    return fmt::format("{} cannot be written ({})", folder.string(), std::generic_category().message(errno));
  fs::remove(trial, ignored);
  return shortage_in(folder);
}

Diagnosis check_database(const CommonOptions& common) {
  Diagnosis diagnosis{.what = "database"};
  std::filesystem::path path;
  try {
    path = database_path(common);
    diagnosis.facts["path"] = path.string();
    const cache::Status status = cache::Cache::open_existing(path).status();
    diagnosis.facts.update({{"schema_version", status.schema_version},
                            {"journal_mode", status.journal_mode},
                            {"file_bytes", status.file_bytes},
                            {"keys", status.keys},
                            {"measurements", status.measurements},
                            {"binaries", status.binaries}});
    diagnosis.detail = fmt::format("{}: {}, {}, {}, {}", path.string(), counted(status.keys, "key"),
                                   counted(status.measurements, "measurement"),
                                   counted(status.binaries, "compiled kernel"), size_text(status.file_bytes));
    if (!status.problem.empty()) {
      diagnosis.state = Diagnosis::State::bad;
      diagnosis.remedy = status.problem;
    } else if (const std::string obstacle = cache::obstacle_to_writing(path); !obstacle.empty()) {
      diagnosis.state = Diagnosis::State::bad;
      diagnosis.remedy = obstacle;
    } else if (const std::string shortage = shortage_in(nearest_folder(path)); !shortage.empty()) {
      diagnosis.state = Diagnosis::State::bad;
      diagnosis.detail += ", but " + shortage;
      diagnosis.remedy = "free some space there, or name another database with --db or CE_DB";
    }
  } catch (const NotFound& error) {
    const std::string obstacle = path.empty() ? "" : obstacle_to(path);
    const bool possible = !path.empty() && obstacle.empty();
    diagnosis.state = possible ? Diagnosis::State::absent : Diagnosis::State::bad;
    diagnosis.detail = obstacle.empty() ? error.what() : fmt::format("{}, and {}", error.what(), obstacle);
    diagnosis.remedy =
        possible ? "the first sweep creates it" : "name a file that can be written with --db or CE_DB";
  } catch (const DatabaseError& error) {
    diagnosis.state = Diagnosis::State::bad;
    diagnosis.detail = error.what();
    diagnosis.remedy = "restore the file, move it away, or name another with --db or CE_DB";
  }
  diagnosis.facts["problem"] = diagnosis.state == Diagnosis::State::bad ? diagnosis.detail : "";
  return diagnosis;
}

/// Checks the databases below the user's.
std::vector<Diagnosis> check_layers() {
  std::vector<Diagnosis> layers;
  for (const cache::Layer& layer : cache::open_lower_layers()) {
    const std::string path = layer.path.empty() ? "built in" : layer.path.string();
    const cache::Status status = layer.cache.status();
    Diagnosis diagnosis{.what = layer.name,
                        .detail = fmt::format("{}: {}, {}", path, counted(status.keys, "key"),
                                              counted(status.measurements, "measurement")),
                        .facts = {{"path", layer.path.string()},
                                  {"keys", status.keys},
                                  {"measurements", status.measurements},
                                  {"problem", layer.problem}}};
    if (!layer.problem.empty()) {
      diagnosis.state = Diagnosis::State::bad;
      diagnosis.detail = layer.problem;
      diagnosis.remedy =
          fmt::format("correct or unset {}", layer.name == "site" ? "CE_SITE_DB" : "CE_SYSTEM_DB");
    }
    layers.push_back(std::move(diagnosis));
  }
  return layers;
}

/// Checks an environment variable.
/// \param fact  the name of its fact
/// \param chosen  returns its meaning, or nothing if it is not set; throws InvalidArgument for an invalid value
template <class Chosen>
Diagnosis check_variable(const char* what, const char* variable, const char* fact, std::string_view otherwise,
                         const Chosen& chosen) {
  try {
    const std::optional<std::string> value = chosen();
    const std::string used = value.value_or(std::string(otherwise));
    return {.what = what,
            .detail = fmt::format("{} ({})", used, value ? variable : "the default"),
            .facts = {{fact, used}, {"from_environment", value.has_value()}}};
  } catch (const InvalidArgument& error) {
    return {.what = what,
            .state = Diagnosis::State::bad,
            .detail = error.what(),
            .remedy = fmt::format("unset {}, or set it to one of these", variable)};
  }
}

Diagnosis check_policy() {
  return check_variable("policy", "CE_POLICY", "policy", name(Policy::tune), [] {
    const std::optional<Policy> policy = policy_of_environment();
    return policy ? std::optional(std::string(name(*policy))) : std::nullopt;
  });
}

Diagnosis check_log() { return check_variable("log", "CE_LOG", "level", "info", log_level_of_environment); }

struct Examination {
  std::vector<Diagnosis> diagnoses;
  ExitCode code = ExitCode::success;
};

/// The first obstacle to tuning on the best device of this machine.
ExitCode verdict(const runtime::CudaStatus& cuda, const Diagnosis& host, const Diagnosis& device,
                 const Diagnosis& database) {
  bool usable = false;
  for (const auto& gpu : cuda.gpus) usable = usable || gpu.problem.empty();
  if (!cuda.gpus.empty() && !usable) return ExitCode::device;
  if (!cuda.gpus.empty() && (!cuda.nvrtc_found || !cuda.nvrtc_problem.empty())) return ExitCode::compile;
  if (cuda.gpus.empty() && host.state != Diagnosis::State::good) return host.code;
  if (device.state == Diagnosis::State::bad) return device.code;
  if (database.state == Diagnosis::State::bad) return ExitCode::database;
  return host.state == Diagnosis::State::bad ? host.code : ExitCode::success;
}

Examination examine(const CommonOptions& common) {
  const runtime::CudaStatus cuda = runtime::cuda_status();
  const Diagnosis host = check_host();
  const Diagnosis device = check_device(common);
  const Diagnosis database = check_database(common);
  Examination examination{.code = verdict(cuda, host, device, database)};
  examination.diagnoses = {check_driver(cuda), check_nvrtc(cuda)};
  for (const auto& gpu : cuda.gpus) examination.diagnoses.push_back(check_gpu(gpu));
  examination.diagnoses.push_back(host);
  examination.diagnoses.push_back(device);
  examination.diagnoses.push_back(database);
  for (Diagnosis& layer : check_layers()) {
    if (layer.state == Diagnosis::State::bad && examination.code == ExitCode::success)
      examination.code = ExitCode::database;
    examination.diagnoses.push_back(std::move(layer));
  }
  for (Diagnosis& variable : std::array{check_policy(), check_log()}) {
    if (variable.state == Diagnosis::State::bad && examination.code == ExitCode::success)
      examination.code = ExitCode::usage;
    examination.diagnoses.push_back(std::move(variable));
  }
  return examination;
}

Json document_of(const Examination& examination) {
  Json diagnoses = Json::array();
  for (const Diagnosis& diagnosis : examination.diagnoses) {
    Json json{{"what", diagnosis.what},
              {"state", diagnosis.state == Diagnosis::State::bad ? "problem" : name(diagnosis.state)}};
    json["detail"] = diagnosis.detail;
    json["remedy"] = diagnosis.remedy;
    json["facts"] = diagnosis.facts;
    diagnoses.push_back(std::move(json));
  }
  return {{"version", version()}, {"findings", diagnoses}, {"exit_code", static_cast<int>(examination.code)}};
}

std::string text_of(const Examination& examination) {
  std::string text = fmt::format("ce-tune {}\n", version());
  for (const Diagnosis& diagnosis : examination.diagnoses) {
    text += fmt::format("{:<9} {:<8} {}\n", diagnosis.what, name(diagnosis.state), diagnosis.detail);
    if (!diagnosis.remedy.empty()) text += fmt::format("{:<18} -> {}\n", "", diagnosis.remedy);
  }
  return text;
}

ExitCode doctor(const CommonOptions& common) {
  const Examination examination = examine(common);
  if (common.json)
    print(document_of(examination));
  else
    print_text("{}", text_of(examination));
  return examination.code;
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command =
      app.add_subcommand("doctor", "Show what was found, what is missing and how to correct it");
  command->footer(doctor_examples);
  add_database_option(*command, *options);
  add_json_option(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return doctor(*options); }; });
}

}  // namespace ce::cli
