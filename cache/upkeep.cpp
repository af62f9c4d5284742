#include "cache/upkeep.hpp"

#include <SQLiteCpp/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "cache/codec.hpp"
#include "cache/open.hpp"
#include "ce/base/digest.hpp"
#include "ce/base/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* format = "ce measurements";
constexpr int format_version = 1;

std::unique_ptr<Store> writable(const fs::path& file) {
  Opened opened = open_file(file);
  if (!opened.problem.empty()) throw DatabaseError(opened.problem);
  return std::move(opened.store);
}

/// What an export ends with.
std::string last_line(const std::vector<std::string>& identities) {
  std::string all;
  for (const std::string& identity : identities) all += identity;
  return json{{"measurements", identities.size()}, {"digest", digest({all})}}.dump();
}

/// The measurements of an export that is whole. Errors name stream and line.
std::vector<Measurement> parse_lines(std::istream& in, const std::string& name) {
  std::int64_t number = 0;
  const auto fail = [&](const std::string& found, const std::string& expected) {
    throw InvalidArgument(fmt::format("line {} of {}", number, name), found, expected);
  };
  const json first{{"format", format}, {"version", format_version}};
  std::vector<Measurement> list;
  std::vector<std::string> identities;
  std::string line, previous;
  for (; std::getline(in, line); previous = line) {
    ++number;
    if (number == 1 && line != first.dump()) fail("no beginning of an export", first.dump());
    if (number <= 2) continue;
    try {
      list.push_back(from_json(previous));
    } catch (const std::exception& error) {
      --number;
      fail("no measurement", fmt::format("an object of all its fields ({})", error.what()));
    }
    identities.push_back(digest({previous}));
  }
  if (in.bad()) throw InvalidArgument(name, "cut short", "a file that can be read to its end");
  if (number < 2 || previous != last_line(identities))
    fail(number == 0 ? "missing" : "no end of these measurements", last_line(identities));
  return list;
}

}  // namespace

Upkeep::Upkeep(fs::path path, std::unique_ptr<Store> store)
    : path_(std::move(path)), store_(std::move(store)) {}

Upkeep Upkeep::open(const fs::path& path) {
  const fs::path file = existing_file(path);
  return {file, writable(file)};
}

Upkeep Upkeep::create(const fs::path& path) {
  const fs::path file = fs::absolute(path);
  create_file(file);
  return {file, writable(file)};
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
    throw DatabaseError(explain(path_, error));
  }
}

Store::Copied Upkeep::merge(Upkeep& other, bool with_binaries) {
  return run([&] { return other.store_->copy_into(*store_, with_binaries); });
}

std::int64_t Upkeep::write_lines(std::ostream& out) {
  return run([&] {
    out << json{{"format", format}, {"version", format_version}}.dump() << '\n';
    std::vector<std::string> identities;
    for (const KeySummary& summary : store_->keys()) {
      std::vector<Measurement> list = store_->measurements(summary.key);
      std::sort(list.begin(), list.end(), [](const Measurement& a, const Measurement& b) {
        return std::pair(a.created_at, identity_of(a)) < std::pair(b.created_at, identity_of(b));
      });
      for (const Measurement& measurement : list) {
        out << to_json(measurement) << '\n';
        identities.push_back(identity_of(measurement));
      }
    }
    out << last_line(identities) << '\n';
    return static_cast<std::int64_t>(identities.size());
  });
}

Upkeep::Imported Upkeep::read_lines(std::istream& in, const std::string& name) {
  const std::vector<Measurement> list = parse_lines(in, name);
  return run([&] {
    return Imported{.measurements = static_cast<std::int64_t>(list.size()), .added = store_->add(list)};
  });
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
