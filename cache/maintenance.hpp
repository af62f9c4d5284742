#pragma once
/// \file
/// What people do with a database as a file: merge, carry, check and shrink it.

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

/// A database that was asked for by name. Unlike Cache, which never stops a computation, it throws where the
/// file does not do what is asked. Every method throws DatabaseError naming the file.
///
/// An export (see export.hpp) is ordered by device, problem, time and identity, so databases with the same
/// measurements give the same text.
class Maintenance {
 public:
  /// Opens a file for writing, once it has been examined: a damaged one stays as it is.
  /// \throws NotFound also where it has no tables, Damaged, DatabaseError
  [[nodiscard]] static Maintenance open(const std::filesystem::path& path);
  /// The same, and creates it, or its tables, where there are none.
  [[nodiscard]] static Maintenance create(const std::filesystem::path& path);
  /// The same, for one add() or merge() of much, and nothing after it. Where there is no file, there is none before that
  /// has succeeded.
  [[nodiscard]] static Maintenance create_to_fill(const std::filesystem::path& path);
  /// The file itself, for reading; what others commit meanwhile is seen. \throws NotFound, DatabaseError
  [[nodiscard]] static Maintenance read(const std::filesystem::path& path);
  /// A copy in memory, with today's schema: the file is not changed. \throws NotFound, DatabaseError
  [[nodiscard]] static Maintenance copy(const std::filesystem::path& path);

  /// \throws DatabaseError where others can have written its binaries
  void expect_own_binaries();
  /// Adds what the others have, all or nothing. Merging is commutative and idempotent: the measurements of all, each
  /// once. Binaries run on the device, so they come only when `with_binaries` says so.
  /// \returns what of each was new, of several that have the same the first
  /// \throws Damaged where a measurement of the others is not what was written, InvalidArgument naming the field of one
  /// that cannot be (see possible.hpp)
  std::vector<Store::Copied> merge(std::span<const Maintenance> others, bool with_binaries);

  /// Picks those to write of the measurements of one key. Called on several threads at once.
  using Selection = std::function<std::vector<Measurement>(std::vector<Measurement>)>;
  struct Written {
    std::int64_t measurements = 0;
    std::int64_t left_out =
        0;  ///< that cannot be (see possible.hpp): with one of them the whole export would be refused
    std::string because;  ///< of the first of these: its field, the value and what it can be
  };
  /// \param selection  none for all
  Written write_lines(std::ostream& out, const Selection& selection = {});
  /// Adds the measurements, all or none. \returns how many it had not
  std::int64_t add(const Store::Source& source);

  /// Keeps a decision of a person, or that it is taken away. \returns whether no later one was there
  bool pin(const Pin& pin);

  Store::Pruned prune(std::int64_t keep, bool rehearse);
  [[nodiscard]] std::vector<std::string> damages();
  /// The same of a file, also of one that is too damaged to be copied. \throws NotFound, DatabaseError
  [[nodiscard]] static std::vector<std::string> damages_of(const std::filesystem::path& path);

  struct Mended {
    std::vector<std::string> damages;  ///< what there was
    std::string done;                  ///< what became of it, for people; empty where nothing was damaged
  };
  /// Takes out compiled kernels that are damaged; where anything else is, sets the file aside as repair() does.
  /// \throws NotFound; DatabaseError where it cannot, or where the file cannot be read
  [[nodiscard]] static Mended mend(const std::filesystem::path& path);

  struct Vacuumed {
    std::int64_t bytes_before = 0, bytes_after = 0;  ///< of the file with its log
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
  std::unique_ptr<Draft> draft_;  ///< goes after its store
  std::unique_ptr<Store> store_;
};

}  // namespace ce::cache
