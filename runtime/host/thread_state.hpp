#pragma once
/// \file
/// A thread of a kernel as the scheduler sees it, and in words for messages.

#include <string>

#include "templates/device/host_abi.cuh"

namespace ce::runtime::host {

enum class State { unstarted, ready, waiting, finished };

/// The thing that a waiting thread waits for: the other threads of its warp, block or cluster, an mbarrier, or other
/// ranks.
enum class Awaited { warp, block, cluster, mbarrier, others };

/// Read at every switch, so it is kept small; rare data is elsewhere.
struct ThreadState : host_abi::Thread {
  State state = State::unstarted;
  Awaited awaited = Awaited::block;
  host_abi::Place place = {};  ///< where it waits
};

[[nodiscard]] bool same(const host_abi::Place& a, const host_abi::Place& b);

/// "x.cu:12"
[[nodiscard]] std::string text(const host_abi::Place& place);

/// "thread 3", or "thread 3 of block 7" if the message is about another block.
[[nodiscard]] std::string name(const ThreadState& thread, const host_abi::Block& about);

/// The location of a waiting thread: "waits for its block at x.cu:12".
[[nodiscard]] std::string whereabouts(const ThreadState& thread);

}  // namespace ce::runtime::host
