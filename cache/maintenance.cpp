#include "cache/maintenance.hpp"

#include <SQLiteCpp/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <ostream>
#include <system_error>
#include <utility>

#include "base/in_order.hpp"
#include "base/own_descriptor.hpp"
#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/file_system.hpp"
#include "cache/not_readable.hpp"
#include "cache/open.hpp"
#include "cache/ownership.hpp"
#include "cache/possible.hpp"
#include "cache/repair/repair.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

/// Examines the database. \throws Damaged; DatabaseError if it cannot be read
void examine(const fs::path& file, Store& store) {
  try {
    const std::string damage = store.first_damage(Store::usual_depth(bytes_on_disk(file)));
    if (!damage.empty()) throw Damaged(file, damage);
  } catch (const SQLite::Exception& error) {
    rethrow(file, error);
  }
}

/// Refuses to write to a damaged file.
std::unique_ptr<Store> writable(const fs::path& file, IfEmpty if_empty) {
  Opened opened = open_file(file, if_empty);
  if (!opened.problem.empty()) throw DatabaseError(opened.problem);
  examine(file, *opened.store);
  return std::move(opened.store);
}

/// \throws InvalidArgument naming the file, the measurement and its field
void expect_possible_in(const fs::path& file, const MeasurementView& measurement) {
  try {
    expect_possible(measurement);
  } catch (const InvalidArgument& error) {
    const Key key{.problem = std::string(measurement.problem), .device = std::string(measurement.device)};
    throw InvalidArgument(fmt::format("{}: {} of a measurement of {} of key {}", file.string(),
                                      error.argument(), measurement.created_at, key.id()),
                          error.value(), error.expected());
  }
}

/// The lines of an export for one key.
class Exported {
 public:
  explicit Exported(KeyRows all) : rows_(std::move(all)) {
    rows_.expect_whole(KeyRows::Lines::kept);
    rows_.sort();
    for (const KeyRows::Row& row : rows_.rows())
      add(why_impossible(row.measurement), {row.measurement.created_at, row.identity, row.line});
    std::sort(lines_.begin(), lines_.end());
  }
  explicit Exported(const std::vector<Measurement>& chosen) {
    std::string line;
    for (const Measurement& measurement : chosen) {
      const EncodedMeasurement encoded(measurement);
      line.clear();
      append_json(line, encoded.view());
      add(why_impossible(encoded.view()),
          {texts_.keep(measurement.created_at), texts_.keep(identity_of_line(line)), texts_.keep(line)});
    }
    std::sort(lines_.begin(), lines_.end());
  }

  /// Lines sort by these members.
  struct Line {
    std::string_view created_at, identity, text;
    friend auto operator<=>(const Line&, const Line&) = default;
  };
  [[nodiscard]] const std::vector<Line>& lines() const noexcept { return lines_; }
  [[nodiscard]] std::int64_t left_out() const noexcept { return left_out_; }
  /// Why the first of them was left out.
  [[nodiscard]] const std::string& because() const noexcept { return because_; }

 private:
  /// \param impossible  why no import would accept the measurement; empty if one would
  void add(std::string&& impossible, const Line& line) {
    if (impossible.empty())
      lines_.push_back(line);
    else if (left_out_++ == 0)
      because_ = std::move(impossible);
  }

  KeyRows rows_;
  Texts texts_;
  std::vector<Line> lines_;
  std::int64_t left_out_ = 0;
  std::string because_;
};

}  // namespace

/// A database that is moved to its path when it is complete. Until then no reader sees it: if filling it fails, or the
/// process is killed, nothing is left at the path, and a file that appears there meanwhile stays.
class Maintenance::Draft {
 public:
  explicit Draft(const fs::path& of) : target_(of), path_(path_beside(of)) {
    remove();  // left by a killed process with the same process id
    create_file(path_);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() { remove(); }

  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

  /// \returns false if a file has appeared at the path meanwhile
  [[nodiscard]] bool move_to_target() const {
    {
      const OwnDescriptor descriptor([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); });
      if (descriptor.get() < 0 || ::fsync(descriptor.get()) != 0) fail();
    }
    if (::link(path_.c_str(), target_.c_str()) == 0) return true;
    // Not every file system has hard links.
    if (errno != EEXIST &&
        ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0)
      return true;
    if (errno == EEXIST) return false;
    fail();
  }

 private:
  /// An error with the message of errno.
  [[noreturn]] void fail() const {
    throw DatabaseError(fmt::format("cannot replace {} with a new database ({})", target_.string(),
                                    std::generic_category().message(errno)));
  }
  static fs::path path_beside(const fs::path& of) {
    static std::atomic<int> number = 0;
    return of.parent_path() / fmt::format(".ce-tune.{}.{}.new", ::getpid(), number++);
  }
  void remove() const noexcept {
    std::error_code ignored;
    fs::remove(path_, ignored);
    for (const char* end : files_of_sqlite) fs::remove(path_.string() + end, ignored);
  }

  const fs::path target_, path_;
};

Maintenance::Maintenance(fs::path path, std::unique_ptr<Store> store)
    : path_(std::move(path)), store_(std::move(store)) {}
Maintenance::Maintenance(Maintenance&&) noexcept = default;
Maintenance& Maintenance::operator=(Maintenance&&) noexcept = default;
Maintenance::~Maintenance() = default;

Maintenance Maintenance::open(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, writable(file, IfEmpty::refuse)};
}

Maintenance Maintenance::create(const fs::path& path) {
  const fs::path file = fs::absolute(path);
  create_file(file);
  return {file, writable(file, IfEmpty::fill)};
}

Maintenance Maintenance::create_to_fill(const fs::path& path) {
  const fs::path file = fs::absolute(path);
  // If no draft can be created, creating the file at its path reports why.
  std::error_code error;
  const bool is_free = fs::symlink_status(file, error).type() == fs::file_type::not_found &&
                       ::access(file.parent_path().c_str(), W_OK) == 0 &&
                       network_file_system(file.parent_path()).empty();
  const bool has_journal =
      fs::exists(file.string() + "-wal", error) || fs::exists(file.string() + "-journal", error);
  if (!is_free || has_journal) return create(path);
  auto draft = std::make_unique<Draft>(file);
  try {
    Maintenance created(file, open_draft(draft->path()));
    created.draft_ = std::move(draft);
    return created;
  } catch (const SQLite::Exception& failed) {
    rethrow(file, failed);
  }
}

Maintenance Maintenance::copy(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, copy_file(file)};
}

Maintenance Maintenance::read(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, open_reader(file)};
}

template <class Action>
auto Maintenance::run(const Action& action) {
  try {
    return action();
  } catch (const SQLite::Exception& error) {
    rethrow(path_, error);
  }
}

template <class Action>
auto Maintenance::fill(const Action& action) {
  auto result = run(action);
  if (draft_ == nullptr) return result;
  run([&] { store_->end_draft(); });
  store_.reset();
  if (!draft_->move_to_target()) {
    const Maintenance filled = read(draft_->path());
    Maintenance there = create(path_);
    static_cast<void>(there.merge({&filled, 1}, true));
  }
  draft_.reset();
  return result;
}

void Maintenance::expect_own_binaries() {
  if (const std::string writer = other_writer_of(path_); !writer.empty())
    throw DatabaseError(
        fmt::format("compiled kernels are not copied from {}, because {}: merge without them, or make your "
                    "own copy of the file and merge that",
                    path_.string(), writer));
}

std::vector<Store::Copied> Maintenance::merge(std::span<const Maintenance> others, bool with_binaries) {
  std::vector<Store*> stores;
  for (const Maintenance& other : others) stores.push_back(other.store_.get());
  const auto check = [&](std::size_t number, const MeasurementView& measurement) {
    expect_possible_in(others[number].path_, measurement);
  };
  return fill([&] {
    try {
      return store_->merge(stores, with_binaries, Triggers::off, check);
    } catch (const NotReadable& error) {
      rethrow(others[error.number()].path_, error);
    }
  });
}

Maintenance::Written Maintenance::write_lines(std::ostream& out, const Selection& selection) {
  return run([&] {
    Written written;
    ExportWriter writer(out);
    store_->expect_all_listed();
    const std::vector<KeySummary> keys = store_->keys();
    std::mutex reading;
    const auto lines_of = [&](std::size_t i) {
      std::unique_lock lock(reading);
      KeyRows rows = store_->rows(keys[i].key);
      lock.unlock();
      if (!selection) return Exported(std::move(rows));
      rows.expect_whole();
      rows.sort();
      return Exported(selection(rows.measurements()));
    };
    make_in_order(keys.size(), lines_of, [&](std::size_t, const Exported& of_key) {
      for (const Exported::Line& line : of_key.lines()) writer.add(line.text, line.identity);
      written.measurements += static_cast<std::int64_t>(of_key.lines().size());
      if (written.left_out == 0) written.because = of_key.because();
      written.left_out += of_key.left_out();
    });
    writer.end();
    return written;
  });
}

std::int64_t Maintenance::add(const Store::Source& source) {
  return fill([&] { return store_->add(source); });
}

bool Maintenance::pin(const Pin& pin) {
  return run([&] { return store_->pin(pin); });
}

Store::Pruned Maintenance::prune(std::int64_t keep, bool rehearse) {
  return run([&] { return store_->prune(keep, rehearse); });
}

std::vector<std::string> Maintenance::damages() {
  return run([&] { return store_->damages(); });
}

std::vector<std::string> Maintenance::damages_of(const fs::path& path) {
  try {
    return copy(path).damages();
  } catch (const Damaged& damage) {
    return {"database: " + damage.cause()};
  }
}

Maintenance::Mended Maintenance::mend(const fs::path& path) {
  const fs::path file = existing_file(path);
  const FileId id = FileId::of(file);
  Mended result{.damages = damages_of(file), .done = {}};
  if (result.damages.empty()) return result;
  const bool only_binaries =
      std::all_of(result.damages.begin(), result.damages.end(),
                  [](const std::string& damage) { return damage.starts_with(Store::damaged_binary); });
  if (only_binaries) {
    Maintenance database = open(file);
    const std::int64_t removed = database.run([&] { return database.store_->remove_damaged_binaries(); });
    result.done = fmt::format(
        "{} removed from {}; ce compiles what it needs again",
        removed == 1 ? "1 compiled kernel" : fmt::format("{} compiled kernels", removed), file.string());
    return result;
  }
  const Repair done = repair(file, id, result.damages.front());
  if (done.memory != nullptr) throw DatabaseError(done.report);
  result.done = done.report.empty()
                    ? fmt::format("another process has set {} aside in the meantime", file.string())
                    : done.report;
  return result;
}

Maintenance::Vacuumed Maintenance::vacuum() {
  return run([&] {
    Vacuumed result{.bytes_before = bytes_on_disk(path_)};
    store_->vacuum();
    result.bytes_after = bytes_on_disk(path_);
    return result;
  });
}

}  // namespace ce::cache
