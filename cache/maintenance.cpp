#include "cache/maintenance.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <ostream>
#include <tuple>
#include <utility>

#include "base/in_order.hpp"
#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/not_readable.hpp"
#include "cache/open.hpp"
#include "cache/ownership.hpp"
#include "cache/possible.hpp"
#include "cache/repair/repair.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

/// \throws Damaged; DatabaseError where it cannot be read
void examine(const fs::path& file, Store& store) {
  try {
    const std::string damage = store.first_damage(Store::usual_depth(bytes_on_disk(file)));
    if (!damage.empty()) throw Damaged(file, damage);
  } catch (const SQLite::Exception& error) {
    rethrow(file, error);
  }
}

/// Nothing is written to a file that is damaged.
std::unique_ptr<Store> writable(const fs::path& file, IfEmpty if_empty) {
  Opened opened = open_file(file, if_empty);
  if (!opened.problem.empty()) throw DatabaseError(opened.problem);
  examine(file, *opened.store);
  return std::move(opened.store);
}

/// \throws InvalidArgument naming the file, the measurement and its field
void expect_possible_in(const fs::path& file, const Measurement& measurement) {
  try {
    expect_possible(measurement);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {} of a measurement of {} of key {}", file.string(),
                                      error.argument(), measurement.created_at, measurement.key.id()),
                          error.value(), error.expected());
  }
}

/// What is chosen of them, with its lines.
std::vector<Store::Recorded> select(std::vector<Store::Recorded> list,
                                    const Maintenance::Selection& selection) {
  if (!selection) return list;
  std::vector<Measurement> measurements;
  measurements.reserve(list.size());
  for (Store::Recorded& one : list) measurements.push_back(std::move(one.measurement));
  std::vector<Store::Recorded> chosen;
  for (Measurement& measurement : selection(std::move(measurements))) {
    std::string line = to_json(measurement);
    std::string identity = identity_of_line(line);
    chosen.push_back({std::move(measurement), std::move(identity), std::move(line)});
  }
  return chosen;
}

bool comes_before_in_export(const Store::Recorded& a, const Store::Recorded& b) {
  return std::tie(a.measurement.created_at, a.identity) < std::tie(b.measurement.created_at, b.identity);
}

/// What an export says of one key.
struct Exported {
  std::vector<Store::Recorded> list;  ///< in its order
  std::int64_t left_out = 0;
  std::string because;  ///< of the first of these
};

Exported exported(std::vector<Store::Recorded> list) {
  Exported of_key;
  std::erase_if(list, [&](const Store::Recorded& one) {
    std::string because = why_impossible(one.measurement);
    if (because.empty()) return false;
    if (of_key.left_out++ == 0) of_key.because = std::move(because);
    return true;
  });
  std::sort(list.begin(), list.end(), comes_before_in_export);
  of_key.list = std::move(list);
  return of_key;
}

}  // namespace

Maintenance::Maintenance(fs::path path, std::unique_ptr<Store> store)
    : path_(std::move(path)), store_(std::move(store)) {}

Maintenance Maintenance::open(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, writable(file, IfEmpty::refuse)};
}

Maintenance Maintenance::create(const fs::path& path) {
  const fs::path file = fs::absolute(path);
  create_file(file);
  return {file, writable(file, IfEmpty::fill)};
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

void Maintenance::expect_readable(bool with_binaries) {
  if (const std::string writer = with_binaries ? other_writer_of(path_) : ""; !writer.empty())
    throw DatabaseError(fmt::format(
        "compiled kernels are not taken from {}, as {}: merge without them, or merge a copy of your own",
        path_.string(), writer));
  if (with_binaries) run([&] { store_->expect_readable_binaries(); });
  run([&] {
    store_->check_each([&](const Measurement& measurement) { expect_possible_in(path_, measurement); });
  });
}

std::vector<Store::Copied> Maintenance::merge(std::span<const Maintenance> others, bool with_binaries) {
  std::vector<Store*> stores;
  for (const Maintenance& other : others) stores.push_back(other.store_.get());
  return run([&] {
    try {
      return store_->merge(stores, with_binaries, Triggers::off);
    } catch (const NotReadable& error) {
      rethrow(others[error.number()].path_, error);
    }
  });
}

Maintenance::Written Maintenance::write_lines(std::ostream& out, const Selection& selection) {
  return run([&] {
    Written written;
    ExportWriter writer(out);
    const std::vector<KeySummary> keys = store_->keys();
    std::mutex reading;
    const auto lines_of = [&](std::size_t i) {
      std::unique_lock lock(reading);
      std::vector<Store::Recorded> list = store_->recorded(keys[i].key);
      lock.unlock();
      return exported(select(std::move(list), selection));
    };
    make_in_order(keys.size(), lines_of, [&](std::size_t, const Exported& of_key) {
      for (const Store::Recorded& one : of_key.list) writer.add(one.line, one.identity);
      written.measurements += static_cast<std::int64_t>(of_key.list.size());
      if (written.left_out == 0) written.because = of_key.because;
      written.left_out += of_key.left_out;
    });
    writer.end();
    return written;
  });
}

std::int64_t Maintenance::add(const Store::Source& source) {
  return run([&] { return store_->add(source); });
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
        "{} taken out of {}: compiled again when needed",
        removed == 1 ? "1 compiled kernel" : fmt::format("{} compiled kernels", removed), file.string());
    return result;
  }
  const Repair done = repair(file, id, result.damages.front());
  if (done.memory != nullptr) throw DatabaseError(done.report);
  result.done = done.report.empty() ? fmt::format("another process has set {} aside meanwhile", file.string())
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
