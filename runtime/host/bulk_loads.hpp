#pragma once
/// \file
/// Bulk copies from global to shared memory, which land when nothing else can be done.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/host/order.hpp"
#include "runtime/host/report.hpp"
#include "runtime/host/shared_memory.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// An arrival: a word in shared memory, and the one bulk load that it tells of.
struct BulkLoad {
  enum class State { not_started, under_way, landed };

  unsigned long long* arrival = nullptr;
  const host_abi::Block* block = nullptr;
  State state = State::not_started;
  std::uint32_t waiting = 0;     ///< threads
  host_abi::Place started = {};  ///< from here on once it is under way
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

/// The arrivals of a group's blocks. An arrival's word names its place in this list, so a word that was never
/// initialised, or overwritten since, is known for what it is.
class BulkLoads {
 public:
  BulkLoads(const SharedMemory& shared, const Report& report) : shared_(shared), report_(report) {}
  void start() noexcept { loads_.clear(); }

  /// What a thread may do; each throws DeviceError where it is a mistake.
  void init(const ThreadState& thread, unsigned long long& arrival, host_abi::Place place);
  /// The destination becomes NaN: what was there before may be gone at any moment.
  void load(const ThreadState& thread, void* to, const void* from, int bytes,
            const unsigned long long& arrival, host_abi::Place place);
  /// True where the thread has to wait; its `bulk_load` says for which.
  [[nodiscard]] bool wait(ThreadState& thread, const unsigned long long& arrival, host_abi::Place place);

  /// Lands one at random of those under way for which a thread waits; null where there is none.
  /// \throws DeviceError where the destination was written to in the meantime
  [[nodiscard]] const BulkLoad* land_one(Random& random);
  /// Lands all of a block.
  void land_all(const host_abi::Block& block);
  [[nodiscard]] std::size_t index_of(const BulkLoad& load) const;

 private:
  BulkLoad& find(const ThreadState& thread, const unsigned long long& arrival, host_abi::Place place);
  void require_shared(const ThreadState& thread, const void* data, std::size_t bytes, const char* what,
                      host_abi::Place place) const;
  void land(BulkLoad& load) const;

  const SharedMemory& shared_;
  const Report& report_;
  std::vector<BulkLoad> loads_;
};

}  // namespace ce::runtime::host
