#pragma once
/// \file
/// Mbarriers in shared memory, and the copies that complete at them: bulk copies from global memory, and sends from
/// other blocks of the cluster.

#include <array>
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

/// A bulk load or a send that has not landed yet.
struct Copy {
  host_abi::Place started = {};
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  ///< null: the data is in `sent`
  std::size_t bytes = 0;
  std::array<std::byte, 16> sent = {};
};

/// A word in shared memory and its phase. The phase ends when all threads have arrived and all copies have landed; of
/// sends, as many bytes as were announced.
struct Mbarrier {
  unsigned long long* word = nullptr;
  const host_abi::Block* block = nullptr;
  int count = 1;                            ///< arrivals that end a phase
  int pending = 1;                          ///< arrivals of this phase that are missing
  std::uint64_t phase = 0;                  ///< number of phases that have ended
  std::vector<const ThreadState*> waiting;  ///< threads of its own block that wait for the end of this phase
  std::vector<Copy> copies;
  std::int64_t announced = 0;  ///< bytes of sends that have not landed; below 0 before they are announced
};

/// The mbarriers of a group's blocks. An mbarrier's word holds its index in this list, so a word that was never
/// initialised, or was overwritten, is detected.
///
/// A copy lands as late as possible, one at a time and in any order.
class Mbarriers {
 public:
  Mbarriers(const SharedMemory& shared, const Report& report) : shared_(shared), report_(report) {}
  void start() noexcept { mbarriers_.clear(); }

  /// The operations of a thread; each throws DeviceError for a mistake.
  void init(const ThreadState& thread, unsigned long long& word, int count, host_abi::Place place);
  /// Threads that can continue because a phase has ended.
  using Woken = std::vector<const ThreadState*>;
  [[nodiscard]] Woken arrive(const ThreadState& thread, const unsigned long long& word,
                             host_abi::Place place);
  /// Arrives once, and announces that many bytes of sends.
  [[nodiscard]] Woken expect(const ThreadState& thread, const unsigned long long& word, int bytes,
                             host_abi::Place place);
  /// Sends to the shared memory of any block of the group; the destination becomes NaN until the data lands.
  /// \param word  an mbarrier of the same block
  void send(const ThreadState& thread, void* to, const void* words, int bytes, const unsigned long long& word,
            host_abi::Place place);
  /// Arrives once, and starts a bulk load. The destination becomes NaN: its old contents may disappear at any moment.
  [[nodiscard]] Woken load(const ThreadState& thread, void* to, const void* from, int bytes,
                           const unsigned long long& word, host_abi::Place place);
  /// Returns true if the thread must wait for the end of the phase with that parity.
  [[nodiscard]] bool wait(const ThreadState& thread, const unsigned long long& word, int parity,
                          host_abi::Place place);

  /// Whether that phase has ended.
  [[nodiscard]] bool test(const ThreadState& thread, const unsigned long long& word, int parity,
                          host_abi::Place place);

  /// Lands a random one of the copies that a thread waits for; does nothing if there is none.
  /// \throws DeviceError if the destination was written to in the meantime, or more was sent than announced
  [[nodiscard]] std::optional<Woken> land_one(Random& random);
  /// Lands all copies of a block that has returned.
  /// \throws DeviceError if a send to it has not landed
  void land_all(const host_abi::Block& block);

  /// The progress of the phase that this thread waits for: "1 of 2 arrivals", "1 of 1 arrivals, 16 bytes not sent".
  [[nodiscard]] std::string progress(const ThreadState& waiting) const;

 private:
  Mbarrier& find(const ThreadState& thread, const unsigned long long& word, host_abi::Place place);
  Mbarrier& find_own(const ThreadState& thread, const unsigned long long& word, host_abi::Place place);
  Woken arrive(const ThreadState& thread, Mbarrier& barrier, host_abi::Place place) const;
  void require_shared(const ThreadState& thread, const void* data, std::size_t bytes, std::string_view what,
                      host_abi::Place place) const;
  void require_free(const ThreadState& thread, const Copy& copy, std::string_view what) const;
  void start(const ThreadState& thread, Mbarrier& barrier, const Copy& copy, std::string_view what) const;
  void land(Mbarrier& barrier, const Copy& copy) const;
  Woken end_phase_if_complete(Mbarrier& barrier) const;

  const SharedMemory& shared_;
  const Report& report_;
  std::vector<Mbarrier> mbarriers_;
};

}  // namespace ce::runtime::host
