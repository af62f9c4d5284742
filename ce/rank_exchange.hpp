#pragma once
/// \file
/// The memory through which the ranks of a communicator exchange rows. Not installed.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ce/error.hpp"
#include "ce/ranks.hpp"
#include "runtime/device.hpp"

namespace ce {

class PeerMemories;

/// Enqueues the communicator's all-gather. \throws DeviceError
void gather(const Communicator& communicator, const void* send, void* receive, std::size_t bytes,
            Stream stream);

/// Waits until all work on the stream is done, until the communicator's patience ends or it fails.
/// \throws DeviceError if a rank does not come: memory that the late rank may still use must not be freed then
void wait_for_ranks(runtime::Device& device, const Communicator& communicator, Stream stream);

/// Runs a call that waits for the ranks. If they fail, leaks its memory: freeing it would wait for the communicator's
/// work on the GPU, perhaps for ever.
template <class Memory, class Call>
auto unless_ranks_fail(std::unique_ptr<Memory>& memory, const Call& call) {
  try {
    return call();
  } catch (const DeviceError&) {
    static_cast<void>(memory.release());
    throw;
  }
}

/// Gathers `bytes` of host memory from every rank, in their order.
/// \throws DeviceError
[[nodiscard]] std::vector<std::byte> gather_from_ranks(runtime::Device& device,
                                                       const Communicator& communicator,
                                                       std::span<const std::byte> own, Stream stream);

/// Thread-safe, unless the ranks of a communicator are threads that call for the same rank.
class RankExchanges {
 public:
  struct Found {
    PeerView view;    ///< empty if a rank cannot exchange
    std::string why;  ///< why a rank cannot exchange
  };
  /// Memory of at least that many bytes: existing or newly allocated. All ranks call this at once.
  /// \param fixed  forbids allocation: nothing is found if the existing memory is too small
  [[nodiscard]] Found get(runtime::Device& device, PeerMemories& of_context, const Communicator& communicator,
                          std::int64_t bytes, Stream stream, bool fixed);

  /// Tells the other ranks that this rank will not come.
  void give_up(const Communicator& communicator) noexcept;

 private:
  struct OfCommunicator {
    std::vector<PeerMemory> memories;  ///< the last is the largest; graphs may still use the others
    std::string why_not;
  };
  [[nodiscard]] OfCommunicator& of(const Communicator& communicator) {
    const std::lock_guard lock(mutex_);
    return all_[{communicator.state, communicator.rank, communicator.size}];
  }
  std::mutex mutex_;
  std::map<std::tuple<const void*, int, int>, OfCommunicator> all_;
};

}  // namespace ce
