#pragma once
/// \file
/// The memory through which the ranks of a communicator exchange. Not installed.

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

/// Waits until all work on the stream is done, as long as the communicator has patience and no failure.
/// \throws DeviceError where a rank does not come: memory that it may still come to must not be freed then
void wait_for_ranks(runtime::Device& device, const Communicator& communicator, Stream stream);

/// Where the ranks fail while the call waits for them, its memory is left as it is: freeing any would wait for what the
/// communicator still has on the GPU, perhaps for ever.
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

/// Thread-safe, where the ranks of a communicator are not threads that call for the same rank.
class RankExchanges {
 public:
  struct Found {
    PeerView view;    ///< nothing where a rank cannot
    std::string why;  ///< it cannot
  };
  /// Memory with so many bytes, which all ranks ask for at once: what there is, or made now.
  /// \param fixed  nothing may be made: nothing is found where what there is is too small
  [[nodiscard]] Found get(runtime::Device& device, PeerMemories& of_context, const Communicator& communicator,
                          std::int64_t bytes, Stream stream, bool fixed);

  /// Tells the other ranks that this one does not come.
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
