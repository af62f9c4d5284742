#include "cache/upkeep.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ostream>
#include <utility>

#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/not_readable.hpp"
#include "cache/open.hpp"
#include "cache/ownership.hpp"
#include "cache/possible.hpp"
#include "cache/repair.hpp"
#include "ce/base/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Store> writable(const fs::path& file, IfEmpty if_empty) {
  Opened opened = open_file(file, if_empty);
  if (!opened.problem.empty()) throw DatabaseError(opened.problem);
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

/// The order of an export. Identities cost much: they decide only between those of the same time.
bool is_before(const Measurement& a, const Measurement& b) {
  if (a.created_at != b.created_at) return a.created_at < b.created_at;
  return identity_of(a) < identity_of(b);
}

}  // namespace

Upkeep::Upkeep(fs::path path, std::unique_ptr<Store> store)
    : path_(std::move(path)), store_(std::move(store)) {}

Upkeep Upkeep::open(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, writable(file, IfEmpty::refuse)};
}

Upkeep Upkeep::create(const fs::path& path) {
  const fs::path file = fs::absolute(path);
  create_file(file);
  return {file, writable(file, IfEmpty::fill)};
}

Upkeep Upkeep::copy(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, copy_file(file)};
}

template <class Action>
auto Upkeep::run(const Action& action) {
  try {
    return action();
  } catch (const SQLite::Exception& error) {
    rethrow(path_, error);
  }
}

void Upkeep::expect_readable(bool with_binaries) {
  if (const std::string writer = with_binaries ? other_writer_of(path_) : ""; !writer.empty())
    throw DatabaseError(fmt::format(
        "compiled kernels are not taken from {}, as {}: merge without them, or merge a copy of your own",
        path_.string(), writer));
  run([&] { store_->expect_readable(with_binaries); });
  for (const KeySummary& summary : run([&] { return store_->keys(); }))
    for (const Measurement& measurement : run([&] { return store_->measurements(summary.key); }))
      expect_possible_in(path_, measurement);
}

std::vector<Store::Copied> Upkeep::merge(std::span<const Upkeep> others, bool with_binaries) {
  std::vector<Store*> stores;
  for (const Upkeep& other : others) stores.push_back(other.store_.get());
  return run([&] {
    try {
      return store_->merge(stores, with_binaries);
    } catch (const NotReadable& error) {
      rethrow(others[error.number()].path_, error);
    }
  });
}

std::int64_t Upkeep::write_lines(std::ostream& out, const Selection& selection) {
  return run([&] {
    std::vector<Measurement> all;
    for (const KeySummary& summary : store_->keys()) {
      std::vector<Measurement> list = store_->measurements(summary.key);
      if (selection) list = selection(std::move(list));
      std::sort(list.begin(), list.end(), is_before);
      std::move(list.begin(), list.end(), std::back_inserter(all));
    }
    write_export(out, all);
    return static_cast<std::int64_t>(all.size());
  });
}

std::int64_t Upkeep::add(std::span<const Measurement> list) {
  return run([&] { return store_->add(list); });
}

Store::Pruned Upkeep::prune(std::int64_t keep, bool rehearse) {
  return run([&] { return store_->prune(keep, rehearse); });
}

std::vector<std::string> Upkeep::damages() {
  return run([&] { return store_->damages(); });
}

Upkeep::Vacuumed Upkeep::vacuum() {
  return run([&] {
    Vacuumed result{.bytes_before = bytes_on_disk(path_)};
    store_->vacuum();
    result.bytes_after = bytes_on_disk(path_);
    return result;
  });
}

}  // namespace ce::cache
