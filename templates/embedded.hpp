#pragma once
/// \file
/// The files of this folder as text, embedded by the build.

#include <span>
#include <string_view>

namespace ce::templates {

struct File {
  std::string_view name, text;
};

[[nodiscard]] std::span<const File> files() noexcept;

}  // namespace ce::templates
