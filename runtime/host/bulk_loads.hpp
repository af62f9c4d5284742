#pragma once
/// \file
/// Bulk copies from global to shared memory, which land when nothing else can be done.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/host/order.hpp"
#include "runtime/host/report.hpp"
#include "runtime/host/shared_memory.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// An arrival: a word in shared memory, its phase, and the bulk load under way that it tells of.
struct Arrival {
  unsigned long long* word = nullptr;
  const host_abi::Block* block = nullptr;
  int count = 1;                            ///< arrivals that end a phase
  int pending = 1;                          ///< of these, still to come
  std::uint64_t phase = 0;                  ///< how many have ended
  std::vector<const ThreadState*> waiting;  ///< for the end of this phase
  bool loading = false;
  host_abi::Place started = {};  ///< of the load
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

/// The arrivals of a group's blocks. An arrival's word names its place in this list, so a word that was never
/// initialised, or overwritten since, is known for what it is.
class BulkLoads {
 public:
  BulkLoads(const SharedMemory& shared, const Report& report) : shared_(shared), report_(report) {}
  void start() noexcept { arrivals_.clear(); }

  /// What a thread may do; each throws DeviceError where it is a mistake.
  void init(const ThreadState& thread, unsigned long long& word, int count, host_abi::Place place);
  /// Threads that can go on, because a phase has ended.
  using Woken = std::vector<const ThreadState*>;
  [[nodiscard]] Woken arrive(const ThreadState& thread, const unsigned long long& word,
                             host_abi::Place place);
  /// The destination becomes NaN: what was there before may be gone at any moment.
  [[nodiscard]] Woken load(const ThreadState& thread, void* to, const void* from, int bytes,
                           const unsigned long long& word, host_abi::Place place);
  /// True where the thread has to wait for the end of the phase of that parity.
  [[nodiscard]] bool wait(const ThreadState& thread, const unsigned long long& word, int parity,
                          host_abi::Place place);

  /// Lands one at random of those under way for which a thread waits; nothing where there is none.
  /// \throws DeviceError where the destination was written to in the meantime
  [[nodiscard]] std::optional<Woken> land_one(Random& random);
  /// Lands all of a block.
  void land_all(const host_abi::Block& block);

 private:
  Arrival& find(const ThreadState& thread, const unsigned long long& word, host_abi::Place place);
  static Woken end_phase_if_complete(Arrival& arrival);
  void require_shared(const ThreadState& thread, const void* data, std::size_t bytes, const char* what,
                      host_abi::Place place) const;
  void land(Arrival& arrival) const;

  const SharedMemory& shared_;
  const Report& report_;
  std::vector<Arrival> arrivals_;
};

}  // namespace ce::runtime::host
