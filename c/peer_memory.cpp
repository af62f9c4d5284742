#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/structs.hpp"

using namespace ce::c;

ce_status ce_peer_memory_bytes_for(int32_t ranks, int64_t rows, int64_t words, int64_t* bytes) {
  return guarded([&] {
    require_pointer("bytes", bytes, "an address for the number");
    *bytes = ce::PeerMemory::bytes_for(ranks, rows, words);
  });
}

ce_status ce_peer_memory_create(ce_context* context, const ce_peer_memory_options* options,
                                ce_peer_memory** memory) {
  static constexpr ce_peer_memory_options no_options = CE_PEER_MEMORY_OPTIONS_INIT;
  if (memory != nullptr) *memory = nullptr;
  return guarded([&] {
    require_pointer("memory", memory, "an address for the handle");
    require_pointer("options", options, "an address of a ce_peer_memory_options");
    ce_peer_memory_options storage;
    const auto& [size, rank, ranks, bytes, patience] =
        read_struct("options", *options, no_options, sizeof(ce_peer_memory_options), storage);
    *memory = to_handle(std::make_unique<ce::PeerMemory>(
                            context_or_default(context).peer_memory(
                                {.rank = rank, .ranks = ranks, .bytes = bytes, .patience = patience}))
                            .release());
  });
}
void ce_peer_memory_destroy(ce_peer_memory* memory) { delete from_handle(memory); }

ce_status ce_peer_memory_describe(const ce_peer_memory* memory, void* description) {
  static_assert(CE_PEER_DESCRIPTION_BYTES == ce::PeerMemory::description_bytes);
  return guarded([&] {
    require_pointer("memory", memory, "a handle that ce_peer_memory_create() returned");
    require_pointer("description", description, "an address for the bytes");
    const auto own = from_handle(memory)->description();
    std::memcpy(description, own.data(), own.size());
  });
}
ce_status ce_peer_memory_connect(ce_peer_memory* memory, const void* descriptions, size_t bytes) {
  return guarded([&] {
    require_pointer("memory", memory, "a handle that ce_peer_memory_create() returned");
    require_pointer("descriptions", descriptions, "the descriptions of all ranks");
    from_handle(memory)->connect({static_cast<const std::byte*>(descriptions), bytes});
  });
}
void ce_peer_memory_give_up(ce_peer_memory* memory) {
  if (memory != nullptr) from_handle(memory)->give_up();
}
