#pragma once
/// \file
/// The errors that `ce` throws. Expected outcomes (a cache miss, no GPU) are values, never exceptions.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/export.hpp"
#include "ce/language.hpp"
#include "ce/source_location.hpp"

namespace ce {

enum class ErrorKind : std::uint8_t {
  invalid_argument,     ///< an argument of a call, an option of a command or a text form is wrong
  unsupported,          ///< valid, but not on this device or not in this version
  device,               ///< the CUDA driver or the host device reported a failure
  compile,              ///< a kernel failed to compile
  database,             ///< the tuning database could not do what was explicitly asked for
  not_found,            ///< a key, config or file that was asked for by name does not exist
  target_out_of_range,  ///< a cross entropy target was neither a class index nor `ignore_index`
  verification,         ///< no config computed the right answer
  interrupted,          ///< the caller asked to stop
};

[[nodiscard]] CE_API std::string_view name(ErrorKind kind) noexcept;

/// Base of all exceptions that `ce` throws. what() is printable(): it may quote files, databases, compilers and
/// drivers.
class CE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, SourceLocation where = SourceLocation::current());

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  /// The source location in `ce` that threw.
  [[nodiscard]] const SourceLocation& where() const noexcept { return where_; }

 private:
  ErrorKind kind_;
  SourceLocation where_;
};

/// An argument that cannot be used; what() reads "`argument` is `value`; expected `expected`". The name of the
/// operation precedes it if a call was refused: "Softmax: input.rows is -1; expected 0 or more". The value is
/// printable(), on one line.
class CE_API InvalidArgument : public Error {
 public:
  InvalidArgument(std::string_view argument, std::string_view value, std::string_view expected,
                  SourceLocation where = SourceLocation::current());

  /// For an argument of a call of `operation`.
  [[nodiscard]] InvalidArgument in(std::string_view operation) const;

  /// "CrossEntropy"; empty if the argument belongs to no operation.
  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }
  [[nodiscard]] const std::string& argument() const noexcept { return argument_; }
  [[nodiscard]] const std::string& value() const noexcept { return value_; }
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }

 private:
  InvalidArgument(std::string_view operation, const InvalidArgument& error);

  std::string operation_, argument_, value_, expected_;
};

class CE_API Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(ErrorKind::unsupported, message, where) {}
};

/// A failed call into the CUDA driver or NVRTC, or a fault found by the host device.
class CE_API DeviceError : public Error {
 public:
  /// \param call  the text of the call that failed
  /// \param code  the foreign API's error code, 0 if there is none
  DeviceError(std::string_view call, int code, std::string_view message,
              SourceLocation where = SourceLocation::current());

  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  std::string call_;
  int code_;
};

/// Memory of the device, or of the host device, was short.
class CE_API OutOfMemory : public DeviceError {
 public:
  OutOfMemory(std::string_view call, int code, std::string_view message,
              SourceLocation where = SourceLocation::current())
      : DeviceError(call, code, message, where) {}
};

/// A Source that the compiler refused, crashed on or did not finish. The text stays on disk at source_path() for
/// inspection. If the compiler never got to the source, because it was killed, or because memory or disk were full, the
/// error is a plain Error of the same kind.
class CE_API CompileError : public Error {
 public:
  CompileError(std::string_view name, std::string_view log, std::string_view source_path,
               SourceLocation where = SourceLocation::current());

  [[nodiscard]] const std::string& log() const noexcept { return log_; }
  [[nodiscard]] const std::string& source_path() const noexcept { return source_path_; }

 private:
  std::string log_, source_path_;
};

class CE_API DatabaseError : public Error {
 public:
  DatabaseError(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(ErrorKind::database, message, where) {}
};

class CE_API NotFound : public Error {
 public:
  explicit NotFound(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(ErrorKind::not_found, message, where) {}
};

/// Under Policy::frozen: a problem that the database has no winner for.
class CE_API NotTuned : public NotFound {
 public:
  NotTuned(const std::string& message, std::vector<std::string> problems,
           SourceLocation where = SourceLocation::current())
      : NotFound(message, where), problems_(std::move(problems)) {}

  /// This problem and all others that the Context did not find, one line each: "TITLE (key ID)".
  [[nodiscard]] const std::vector<std::string>& problems() const noexcept { return problems_; }

 private:
  std::vector<std::string> problems_;
};

/// Thrown by Context::check() for targets outside [0, columns) that were not ignore_index. what() reads "CrossEntropy:
/// 3 rows had a target that is neither a class index nor ignore_index; the first is row 2 with target 50257".
class CE_API TargetOutOfRange : public Error {
 public:
  /// \param first_row  -1: not known
  TargetOutOfRange(std::string_view operation, std::int64_t count, std::int64_t first_row,
                   std::optional<std::int64_t> first_target,
                   SourceLocation where = SourceLocation::current());

  /// "CrossEntropy" or "CrossEntropyBackward": the operation of the first row.
  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }
  /// Number of rows with such a target since the last check.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// The smallest such row index. It may be a larger row's index, or -1 (not known), if a call on another stream or
  /// thread met such rows during a check.
  [[nodiscard]] std::int64_t first_row() const noexcept { return first_row_; }
  /// The target of that row; beyond -2^23 and 2^23 - 1 the nearest of these.
  [[nodiscard]] std::optional<std::int64_t> first_target() const noexcept { return first_target_; }

 private:
  std::string operation_;
  std::int64_t count_, first_row_;
  std::optional<std::int64_t> first_target_;
};

}  // namespace ce
