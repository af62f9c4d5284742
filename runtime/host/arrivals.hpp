#pragma once
/// \file
/// Arrivals in shared memory, and the bulk copies from global memory that they tell of.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/host/order.hpp"
#include "runtime/host/report.hpp"
#include "runtime/host/shared_memory.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// A bulk load under way.
struct Copy {
  host_abi::Place started = {};
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

/// A word in shared memory and its phase, which ends when all have arrived and all copies have landed.
struct Arrival {
  unsigned long long* word = nullptr;
  const host_abi::Block* block = nullptr;
  int count = 1;                            ///< arrivals that end a phase
  int pending = 1;                          ///< of these, still to come
  std::uint64_t phase = 0;                  ///< how many have ended
  std::vector<const ThreadState*> waiting;  ///< for the end of this phase, of its own block
  std::vector<Copy> copies;
  std::optional<host_abi::Place> block_waits;     ///< the first wait for threads of the own block alone
  std::optional<host_abi::Place> others_arrived;  ///< the first arrival from another block
};

/// The arrivals of a group's blocks. An arrival's word names its place in this list, so a word that was never
/// initialised, or overwritten since, is known for what it is.
///
/// A copy lands as late as it may, one at a time and in any order.
class Arrivals {
 public:
  Arrivals(const SharedMemory& shared, const Report& report) : shared_(shared), report_(report) {}
  void start() noexcept { arrivals_.clear(); }

  /// What a thread may do; each throws DeviceError where it is a mistake.
  void init(const ThreadState& thread, unsigned long long& word, int count, host_abi::Place place);
  /// Threads that can go on, because a phase has ended.
  using Woken = std::vector<const ThreadState*>;
  [[nodiscard]] Woken arrive(const ThreadState& thread, const unsigned long long& word,
                             host_abi::Place place);
  /// \param word  in the shared memory of any block of the group
  [[nodiscard]] Woken arrive_in_cluster(const ThreadState& thread, const unsigned long long& word,
                                        host_abi::Place place);
  /// One arrival. The destination becomes NaN: what was there before may be gone at any moment.
  [[nodiscard]] Woken load(const ThreadState& thread, void* to, const void* from, int bytes,
                           const unsigned long long& word, host_abi::Place place);
  /// True where the thread has to wait for the end of the phase of that parity.
  /// \param in_cluster  sees what other blocks wrote before they arrived
  [[nodiscard]] bool wait(const ThreadState& thread, const unsigned long long& word, int parity,
                          bool in_cluster, host_abi::Place place);

  /// Lands one at random of those for which a thread waits; nothing where there is none.
  /// \throws DeviceError where the destination was written to in the meantime
  [[nodiscard]] std::optional<Woken> land_one(Random& random);
  /// Lands all of a block.
  void land_all(const host_abi::Block& block);

  /// "1 of 2 arrivals": what there is of the phase for which this thread waits.
  [[nodiscard]] std::string progress(const ThreadState& waiting) const;

 private:
  Arrival& find(const ThreadState& thread, const unsigned long long& word, host_abi::Place place);
  Arrival& find_own(const ThreadState& thread, const unsigned long long& word, host_abi::Place place);
  Woken arrive(const ThreadState& thread, Arrival& arrival, host_abi::Place place) const;
  void require_shared(const ThreadState& thread, const void* data, std::size_t bytes, std::string_view what,
                      host_abi::Place place) const;
  void require_free(const ThreadState& thread, const Copy& copy) const;
  void require_cluster_waits(const Arrival& arrival) const;
  void land(const Copy& copy, const host_abi::Block& block) const;

  const SharedMemory& shared_;
  const Report& report_;
  std::vector<Arrival> arrivals_;
};

}  // namespace ce::runtime::host
