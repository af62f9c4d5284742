#include "cli/failure.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>

#include "base/printable.hpp"
#include "ce/error.hpp"
#include "ce/source_location.hpp"

namespace ce::cli {
namespace {

/// "runtime/device.cpp:17", without the path of the sources at compile time.
std::string place(const SourceLocation& where) {
  const std::filesystem::path file(where.file_name());
  const std::string folder = file.parent_path().filename().string();
  return fmt::format("{}{}{}:{}", folder, folder.empty() ? "" : "/", file.filename().string(), where.line());
}

/// The first line with an error in a compiler's messages.
std::string_view first_error(std::string_view log) {
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end);
    if (line.find("error") != std::string_view::npos) return line;
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
  }
  return {};
}

}  // namespace

std::string Failure::line() const {
  std::string message = fields.at("message");
  if (const std::size_t end = message.find('\n'); end != std::string::npos) message.resize(end);
  if (const auto log = fields.find("log"); log != fields.end())
    if (const std::string_view error = first_error(log->second); !error.empty())
      message += fmt::format(" {}", error);
  return printable(fmt::format("ce-tune: {}: {}", fields.at("kind"), message));
}

Failure describe(const std::exception& error) {
  Failure failure;
  failure.fields["message"] = error.what();
  failure.fields["kind"] = "internal error";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) failure.fields["message"] = "out of memory";
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known == nullptr) return failure;

  failure.code = exit_code_of(known->kind());
  failure.fields["kind"] = name(known->kind());
  failure.fields["place"] = place(known->where());
  if (const auto* argument = dynamic_cast<const InvalidArgument*>(&error)) {
    failure.fields["argument"] = argument->argument();
    failure.fields["value"] = argument->value();
    failure.fields["expected"] = argument->expected();
  }
  if (const auto* device = dynamic_cast<const DeviceError*>(&error)) {
    failure.fields["call"] = device->call();
    if (device->code() != 0) failure.fields["code"] = fmt::to_string(device->code());
  }
  if (const auto* compile = dynamic_cast<const CompileError*>(&error)) {
    failure.fields["log"] = compile->log();
    failure.fields["source_path"] = compile->source_path();
  }
  return failure;
}

Failure usage_failure(const std::string& message) {
  return {.code = ExitCode::usage, .fields = {{"kind", "usage"}, {"message", message}}};
}

}  // namespace ce::cli
