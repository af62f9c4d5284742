#include "base/digest.hpp"

#include <fmt/format.h>

#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ce {

std::string digest_of(std::span<const std::string_view> parts) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const std::string_view part : parts) {
    const std::uint64_t size = part.size();
    XXH3_128bits_update(&state, &size, sizeof size);
    XXH3_128bits_update(&state, part.data(), part.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace ce
