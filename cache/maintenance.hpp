#pragma once
/// \file
/// Maintenance of a database as a file: merge, export, check and shrink it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/store.hpp"

namespace ce::cache {

/// A database that a user named. Unlike Cache, which never stops a computation, it throws if the file does not work.
/// Every method throws DatabaseError naming the file.
///
/// An export (see export.hpp) is sorted by device, problem, time and identity, so databases with the same measurements
/// give the same text.
class Maintenance {
 public:
  /// Opens a file for writing, after examining it: a damaged file stays as it is.
  /// \throws NotFound also if it has no tables, Damaged, DatabaseError
  [[nodiscard]] static Maintenance open(const std::filesystem::path& path);
  /// Like open(), and creates the file or its tables if they are missing.
  [[nodiscard]] static Maintenance create(const std::filesystem::path& path);
  /// Like create(), for one large add() or merge() and nothing after it. A missing file appears only when that has
  /// succeeded.
  [[nodiscard]] static Maintenance create_to_fill(const std::filesystem::path& path);
  /// The file itself, for reading; it sees later commits of others. \throws NotFound, DatabaseError
  [[nodiscard]] static Maintenance read(const std::filesystem::path& path);
  /// A copy in memory, with the current schema: the file is not changed. \throws NotFound, DatabaseError
  [[nodiscard]] static Maintenance copy(const std::filesystem::path& path);

  /// The binaries. \throws DatabaseError if others can have written them
  void expect_own_binaries();
  /// Adds the measurements of other databases, all or nothing. Merging is commutative and idempotent: the result has
  /// the measurements of all, each once. Binaries run on the device, so they are only copied if `with_binaries` is set.
  /// \returns how many measurements and binaries of each were new; duplicates count for the first database that has
  /// them
  /// \throws Damaged if a measurement of the others does not match its identity, InvalidArgument naming the field of an
  /// impossible one (see possible.hpp)
  std::vector<Store::Copied> merge(std::span<const Maintenance> others, bool with_binaries);

  /// Selects the measurements of one key to write. Called on several threads at once.
  using Selection = std::function<std::vector<Measurement>(std::vector<Measurement>)>;
  struct Written {
    std::int64_t measurements = 0;
    std::int64_t left_out = 0;  ///< impossible measurements (see possible.hpp), which imports refuse
    std::string because;  ///< why the first of these is impossible: its field, the value and the valid ones
  };
  /// \param selection  empty: all measurements
  Written write_lines(std::ostream& out, const Selection& selection = {});
  /// Adds the measurements, all or none. \returns how many were new
  std::int64_t add(const Store::Source& source);

  /// Stores a pin, or that a pin was removed. \returns false if a later one was there
  bool pin(const Pin& pin);

  Store::Pruned prune(std::int64_t keep, bool rehearse);
  [[nodiscard]] std::vector<std::string> damages();
  /// Lists the damage of a file, even one that is too damaged to be copied. \throws NotFound, DatabaseError
  [[nodiscard]] static std::vector<std::string> damages_of(const std::filesystem::path& path);

  struct Mended {
    std::vector<std::string> damages;  ///< the damage that was found
    std::string done;                  ///< what was done about it, for people; empty if nothing was damaged
  };
  /// Removes damaged compiled kernels. If anything else is damaged, sets the file aside as repair() does.
  /// \throws NotFound; DatabaseError if that fails, or if the file cannot be read
  [[nodiscard]] static Mended mend(const std::filesystem::path& path);

  struct Vacuumed {
    std::int64_t bytes_before = 0, bytes_after = 0;  ///< size of the file with its log
  };
  Vacuumed vacuum();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  Maintenance(Maintenance&&) noexcept;
  Maintenance& operator=(Maintenance&&) noexcept;
  ~Maintenance();

 private:
  class Draft;

  Maintenance(std::filesystem::path path, std::unique_ptr<Store> store);
  template <class Action>
  auto run(const Action& action);

  template <class Action>
  auto fill(const Action& action);

  std::filesystem::path path_;
  std::unique_ptr<Draft> draft_;  ///< destroyed after its store
  std::unique_ptr<Store> store_;
};

}  // namespace ce::cache
