#pragma once
/// \file
/// A handle is the object itself under another name.

#include "ce/ce.h"
#include "ce/context.hpp"

namespace ce::c {

[[nodiscard]] inline Context* from_handle(ce_context* handle) noexcept {
  return reinterpret_cast<Context*>(handle);
}
[[nodiscard]] inline Plan* from_handle(ce_plan* handle) noexcept { return reinterpret_cast<Plan*>(handle); }
[[nodiscard]] inline const Plan* from_handle(const ce_plan* handle) noexcept {
  return reinterpret_cast<const Plan*>(handle);
}
[[nodiscard]] inline Memory* from_handle(ce_memory* handle) noexcept {
  return reinterpret_cast<Memory*>(handle);
}
[[nodiscard]] inline const Memory* from_handle(const ce_memory* handle) noexcept {
  return reinterpret_cast<const Memory*>(handle);
}
[[nodiscard]] inline PeerMemory* from_handle(ce_peer_memory* handle) noexcept {
  return reinterpret_cast<PeerMemory*>(handle);
}
[[nodiscard]] inline const PeerMemory* from_handle(const ce_peer_memory* handle) noexcept {
  return reinterpret_cast<const PeerMemory*>(handle);
}
[[nodiscard]] inline const Choice* from_handle(const ce_choice* handle) noexcept {
  return reinterpret_cast<const Choice*>(handle);
}

[[nodiscard]] inline ce_context* to_handle(Context* context) noexcept {
  return reinterpret_cast<ce_context*>(context);
}
[[nodiscard]] inline ce_plan* to_handle(Plan* plan) noexcept { return reinterpret_cast<ce_plan*>(plan); }
[[nodiscard]] inline ce_memory* to_handle(Memory* memory) noexcept {
  return reinterpret_cast<ce_memory*>(memory);
}
[[nodiscard]] inline ce_peer_memory* to_handle(PeerMemory* memory) noexcept {
  return reinterpret_cast<ce_peer_memory*>(memory);
}
[[nodiscard]] inline const ce_choice* to_handle(const Choice* choice) noexcept {
  return reinterpret_cast<const ce_choice*>(choice);
}

[[nodiscard]] inline Context& context_or_default(ce_context* handle) {
  return handle != nullptr ? *from_handle(handle) : default_context();
}

}  // namespace ce::c
