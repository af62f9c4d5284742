#pragma once
/// \file
/// The circumstances of measurements; measurements with equal ones share them.

#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace ce::cache {

/// A map of names and values. Copies share one map until one of them is changed: a database has a thousand measurements
/// for each environment.
class Environment {
 public:
  using Map = std::map<std::string, std::string>;
  using key_type = Map::key_type;
  using mapped_type = Map::mapped_type;
  using value_type = Map::value_type;
  using const_iterator = Map::const_iterator;
  using iterator = const_iterator;

  Environment() = default;
  Environment(Map values) : values_(std::make_shared<Map>(std::move(values))) {}  // NOLINT: stands for a map
  Environment(std::initializer_list<value_type> values) : Environment(Map(values)) {}

  [[nodiscard]] const Map& map() const noexcept {
    static const Map none;
    return values_ == nullptr ? none : *values_;
  }
  operator const Map&() const noexcept { return map(); }  // NOLINT: stands for a map
  [[nodiscard]] const_iterator begin() const noexcept { return map().begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return map().end(); }
  [[nodiscard]] const_iterator find(const std::string& name) const { return map().find(name); }
  [[nodiscard]] bool contains(const std::string& name) const { return map().contains(name); }
  [[nodiscard]] std::size_t count(const std::string& name) const { return map().count(name); }
  [[nodiscard]] const std::string& at(const std::string& name) const { return map().at(name); }
  [[nodiscard]] std::size_t size() const noexcept { return map().size(); }
  [[nodiscard]] bool empty() const noexcept { return map().empty(); }

  std::string& operator[](const std::string& name) { return own()[name]; }
  std::size_t erase(const std::string& name) { return contains(name) ? own().erase(name) : 0; }

  friend bool operator==(const Environment& a, const Environment& b) {
    return a.values_ == b.values_ || a.map() == b.map();
  }

 private:
  /// The map for changes; it becomes this object's own first.
  Map& own() {
    if (values_ == nullptr || values_.use_count() > 1) values_ = std::make_shared<Map>(map());
    return *values_;
  }

  std::shared_ptr<Map> values_;  ///< null: empty
};

}  // namespace ce::cache
