#include "ce/error.hpp"

#include <fmt/format.h>

#include "base/printable.hpp"

namespace ce {
std::string_view name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid argument";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::device: return "device error";
    case ErrorKind::compile: return "compile error";
    case ErrorKind::database: return "database error";
    case ErrorKind::not_found: return "not found";
    case ErrorKind::target_out_of_range: return "target out of range";
    case ErrorKind::verification: return "verification failed";
    case ErrorKind::interrupted: return "interrupted";
  }
  return "error";
}

Error::Error(ErrorKind kind, const std::string& message, SourceLocation where)
    : std::runtime_error(printable(message, Lines::many)), kind_(kind), where_(where) {}

InvalidArgument::InvalidArgument(std::string_view argument, std::string_view value, std::string_view expected,
                                 SourceLocation where)
    : Error(ErrorKind::invalid_argument,
            fmt::format("{} is {}; expected {}", argument, printable(value), expected), where),
      argument_(argument),
      value_(printable(value)),
      expected_(expected) {}

DeviceError::DeviceError(std::string_view call, int code, std::string_view message, SourceLocation where)
    : Error(ErrorKind::device,
            code == 0 ? fmt::format("{}: {}", call, message)
                      : fmt::format("{} failed with code {}: {}", call, code, message),
            where),
      call_(call),
      code_(code) {}

CompileError::CompileError(std::string_view name, std::string_view log, std::string_view source_path,
                           SourceLocation where)
    : Error(ErrorKind::compile,
            fmt::format("{} does not compile (source kept at {}):\n{}", name, source_path, log), where),
      log_(log),
      source_path_(source_path) {}

InvalidArgument::InvalidArgument(std::string_view operation, const InvalidArgument& error)
    : Error(ErrorKind::invalid_argument, fmt::format("{}: {}", operation, error.what()), error.where()),
      operation_(operation),
      argument_(error.argument_),
      value_(error.value_),
      expected_(error.expected_) {}

InvalidArgument InvalidArgument::in(std::string_view operation) const { return {operation, *this}; }

namespace {

std::string text_of_first(std::int64_t row, std::optional<std::int64_t> target) {
  if (row < 0) return "not known";
  return target ? fmt::format("row {} with target {}", row, *target) : fmt::format("row {}", row);
}

}  // namespace

TargetOutOfRange::TargetOutOfRange(std::string_view operation, std::int64_t count, std::int64_t first_row,
                                   std::optional<std::int64_t> first_target, SourceLocation where)
    : Error(ErrorKind::target_out_of_range,
            fmt::format(
                "{}: {} row{} had a target that is neither a class index nor ignore_index; the first is {}",
                operation, count, count == 1 ? "" : "s", text_of_first(first_row, first_target)),
            where),
      operation_(operation),
      count_(count),
      first_row_(first_row),
      first_target_(first_target) {}

}  // namespace ce
