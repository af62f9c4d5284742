#include "c/last_error.hpp"

#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "c/guard.hpp"
#include "c/structs.hpp"

namespace ce::c {
namespace {

thread_local LastError last_error;

ce_status status_of_kind(ErrorKind kind) noexcept {
  switch (kind) {  // a new kind does not compile until it has a status
    case ErrorKind::invalid_argument: return CE_STATUS_INVALID_ARGUMENT;
    case ErrorKind::unsupported: return CE_STATUS_UNSUPPORTED;
    case ErrorKind::device: return CE_STATUS_DEVICE;
    case ErrorKind::compile: return CE_STATUS_COMPILE;
    case ErrorKind::database: return CE_STATUS_DATABASE;
    case ErrorKind::not_found: return CE_STATUS_NOT_FOUND;
    case ErrorKind::target_out_of_range: return CE_STATUS_TARGET_OUT_OF_RANGE;
    case ErrorKind::verification: return CE_STATUS_VERIFICATION;
    case ErrorKind::interrupted: return CE_STATUS_INTERRUPTED;
  }
  return CE_STATUS_INTERNAL;
}

/// Returns the location of the throw, such as "context.cpp:75".
std::string text_of_place(const SourceLocation& where) {
  return std::string(where.file_name()) + ':' + std::to_string(where.line());
}

std::string in_lines(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += lines.empty() ? text : '\n' + text;
  return lines;
}

LastError of_status(ce_status status, const char* message) {
  LastError error;
  error.status = status;
  error.message = message;
  return error;
}

LastError current_exception_in_parts() {
  try {
    throw;
  } catch (const Error& error) {
    return parts_of(error);
  } catch (const std::bad_alloc&) {
    return of_status(CE_STATUS_OUT_OF_HOST_MEMORY, "the process has no memory left");
  } catch (const std::exception& error) {
    return of_status(CE_STATUS_INTERNAL, error.what());
  } catch (...) {
    return of_status(CE_STATUS_INTERNAL, "an exception of an unknown type");
  }
}

}  // namespace

ce_status status_of(const Error& error) noexcept {
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return CE_STATUS_OUT_OF_MEMORY;
  if (dynamic_cast<const NotTuned*>(&error) != nullptr) return CE_STATUS_NOT_TUNED;
  return status_of_kind(error.kind());
}

LastError parts_of(const Error& error) {
  LastError parts = of_status(status_of(error), error.what());
  parts.place = text_of_place(error.where());
  if (const auto* invalid = dynamic_cast<const InvalidArgument*>(&error)) {
    parts.operation = invalid->operation();
    parts.argument = invalid->argument();
    parts.value = invalid->value();
    parts.expected = invalid->expected();
  } else if (const auto* device = dynamic_cast<const DeviceError*>(&error)) {
    parts.call = device->call();
    parts.code = device->code();
  } else if (const auto* compile = dynamic_cast<const CompileError*>(&error)) {
    parts.log = compile->log();
    parts.source_path = compile->source_path();
  } else if (const auto* not_tuned = dynamic_cast<const NotTuned*>(&error)) {
    parts.problems = in_lines(not_tuned->problems());
  } else if (const auto* target = dynamic_cast<const TargetOutOfRange*>(&error)) {
    parts.operation = target->operation();
  }
  return parts;
}

ce_error_details details_of(const LastError& error) noexcept {
  return {.struct_size = sizeof(ce_error_details),
          .status = error.status,
          .code = error.code,
          .message = error.message.c_str(),
          .place = error.place.c_str(),
          .operation = error.operation.c_str(),
          .argument = error.argument.c_str(),
          .value = error.value.c_str(),
          .expected = error.expected.c_str(),
          .call = error.call.c_str(),
          .log = error.log.c_str(),
          .source_path = error.source_path.c_str(),
          .problems = error.problems.c_str()};
}

ce_status keep_current_exception() noexcept {
  try {
    last_error = current_exception_in_parts();
  } catch (...) {  // not even the error's text could be allocated: this error needs no memory
    last_error = LastError();
    last_error.status = CE_STATUS_OUT_OF_HOST_MEMORY;
  }
  return last_error.status;
}

void require_pointer(std::string_view argument, const void* pointer, std::string_view expected) {
  if (pointer == nullptr) throw InvalidArgument(argument, "NULL", expected);
}

}  // namespace ce::c

using namespace ce::c;

const char* ce_status_name(ce_status status) {
  switch (status) {
    case CE_STATUS_SUCCESS: return "success";
    case CE_STATUS_OUT_OF_MEMORY: return "out of device memory";
    case CE_STATUS_OUT_OF_HOST_MEMORY: return "out of host memory";
    case CE_STATUS_NOT_TUNED: return "not tuned";
    case CE_STATUS_INTERNAL: return "internal error";
    default: break;
  }
  for (const ce::ErrorKind kind :
       {ce::ErrorKind::invalid_argument, ce::ErrorKind::unsupported, ce::ErrorKind::device,
        ce::ErrorKind::compile, ce::ErrorKind::database, ce::ErrorKind::not_found,
        ce::ErrorKind::target_out_of_range, ce::ErrorKind::verification, ce::ErrorKind::interrupted})
    if (status_of_kind(kind) == status) return ce::name(kind).data();
  return "unknown status";
}

const char* ce_last_error() {
  if (last_error.status == CE_STATUS_OUT_OF_HOST_MEMORY && last_error.message.empty())
    return "the process has no memory left";
  return last_error.message.c_str();
}

void ce_last_error_details(ce_error_details* details) {
  if (details == nullptr) return;
  ce_error_details known = details_of(last_error);
  known.message = ce_last_error();
  write_struct(*details, known);
}
