#include <memory>

#include "c/guard.hpp"
#include "c/handles.hpp"

using namespace ce::c;

ce_status ce_memory_create(ce_context* context, size_t bytes, ce_memory** memory) {
  if (memory != nullptr) *memory = nullptr;
  return guarded([&] {
    require_pointer("memory", memory, "an address for the handle");
    *memory = to_handle(std::make_unique<ce::Memory>(context_or_default(context).allocate(bytes)).release());
  });
}
void ce_memory_destroy(ce_memory* memory) { delete from_handle(memory); }

void* ce_memory_data(const ce_memory* memory) {
  return memory == nullptr ? nullptr : from_handle(memory)->data();
}
size_t ce_memory_bytes(const ce_memory* memory) {
  return memory == nullptr ? 0 : from_handle(memory)->bytes();
}

ce_status ce_memory_upload(ce_memory* memory, const void* from) {
  return guarded([&] {
    require_pointer("memory", memory, "a handle that ce_memory_create() returned");
    from_handle(memory)->upload(from);
  });
}
ce_status ce_memory_download(const ce_memory* memory, void* to) {
  return guarded([&] {
    require_pointer("memory", memory, "a handle that ce_memory_create() returned");
    from_handle(memory)->download(to);
  });
}
