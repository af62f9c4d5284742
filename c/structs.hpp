#pragma once
/// \file
/// Structs of callers that were compiled with an older or a newer ce.h: `struct_size` tells how much of a struct
/// exists.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "ce/error.hpp"

namespace ce::c {

/// Handles a struct whose size is not this header's. \throws InvalidArgument
template <class Struct>
[[gnu::noinline]] const Struct& read_other_size(std::string_view name, const Struct& given,
                                                const Struct& initial, std::size_t first_size,
                                                Struct& storage) {
  const std::size_t size = given.struct_size;
  if (size < first_size)
    throw InvalidArgument(std::string(name) + ".struct_size", std::to_string(size),
                          "the size of the struct, which its ..._INIT sets");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  if (size > sizeof(Struct) &&
      std::any_of(bytes + sizeof(Struct), bytes + size, [](unsigned char byte) { return byte != 0; }))
    throw InvalidArgument(std::string(name) + ".struct_size", std::to_string(size),
                          std::to_string(sizeof(Struct)) + ", or zero in all fields that ce " +
                              "of this version does not know");
  storage = initial;
  std::memcpy(&storage, &given, std::min(size, sizeof(Struct)));
  return storage;
}

/// The struct as this version knows it: fields that the caller's header did not have are taken from `initial`.
/// \param first_size  its size when it was first published
/// \param storage  holds the struct if it must be assembled
/// \throws InvalidArgument for a size that it never had, and for a field that this version does not know
template <class Struct>
[[nodiscard]] const Struct& read_struct(std::string_view name, const Struct& given, const Struct& initial,
                                        std::size_t first_size, Struct& storage) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  if (given.struct_size == sizeof(Struct)) [[likely]]
    return given;
  return read_other_size(name, given, initial, first_size, storage);
}

/// Fills as much as the caller has room for, and zeroes the fields that this version does not know.
template <class Struct>
void write_struct(Struct& given, Struct value) noexcept {
  static_assert(std::is_trivially_copyable_v<Struct>);
  const std::size_t size = given.struct_size;
  value.struct_size = size;
  auto* bytes = reinterpret_cast<unsigned char*>(&given);
  std::memcpy(bytes, &value, std::min(size, sizeof(Struct)));
  if (size > sizeof(Struct)) std::memset(bytes + sizeof(Struct), 0, size - sizeof(Struct));
}

}  // namespace ce::c
