#include "runtime/host/thread_state.hpp"

#include <fmt/format.h>

#include <cstring>

namespace ce::runtime::host {
namespace {

const char* words(Awaited awaited) {
  switch (awaited) {
    case Awaited::warp: return "its warp";
    case Awaited::block: return "its block";
    case Awaited::cluster: return "its cluster";
    // Copies that have not landed will land in the end.
    case Awaited::mbarrier: return "a phase of an mbarrier that does not end";
    case Awaited::others: return "other ranks";
  }
  return "";
}

}  // namespace

bool same(const host_abi::Place& a, const host_abi::Place& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string text(const host_abi::Place& place) { return fmt::format("{}:{}", place.file, place.line); }

std::string name(const ThreadState& thread, const host_abi::Block& about) {
  if (thread.block == &about) return fmt::format("thread {}", thread.index);
  return fmt::format("thread {} of block {}", thread.index, thread.block->index);
}

std::string whereabouts(const ThreadState& thread) {
  if (thread.state == State::finished) return "returned from the kernel";
  return fmt::format("waits for {} at {}", words(thread.awaited), text(thread.place));
}

}  // namespace ce::runtime::host
