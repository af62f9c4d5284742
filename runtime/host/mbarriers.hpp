#pragma once
/// \file
/// Mbarriers in shared memory, and the copies that they tell of: bulk copies from global memory, and what other blocks
/// of the cluster send.

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

/// A bulk load or a send under way.
struct Copy {
  host_abi::Place started = {};
  std::byte* to = nullptr;
  const std::byte* from = nullptr;  ///< null: `sent`
  std::size_t bytes = 0;
  std::array<std::byte, 16> sent = {};
};

/// A word in shared memory and its phase, which ends when all have arrived and all copies have landed, of the sends as
/// many bytes as were announced.
struct Mbarrier {
  unsigned long long* word = nullptr;
  const host_abi::Block* block = nullptr;
  int count = 1;                            ///< arrivals that end a phase
  int pending = 1;                          ///< of these, still to come
  std::uint64_t phase = 0;                  ///< how many have ended
  std::vector<const ThreadState*> waiting;  ///< for the end of this phase, of its own block
  std::vector<Copy> copies;
  std::int64_t announced = 0;  ///< bytes of sends that have not landed; below 0 before they are announced
};

/// The arrivals of a group's blocks. An mbarrier's word names its place in this list, so a word that was never
/// initialised, or overwritten since, is known for what it is.
///
/// A copy lands as late as it may, one at a time and in any order.
class Mbarriers {
 public:
  Mbarriers(const SharedMemory& shared, const Report& report) : shared_(shared), report_(report) {}
  void start() noexcept { mbarriers_.clear(); }

  /// What a thread may do; each throws DeviceError where it is a mistake.
  void init(const ThreadState& thread, unsigned long long& word, int count, host_abi::Place place);
  /// Threads that can go on, because a phase has ended.
  using Woken = std::vector<const ThreadState*>;
  [[nodiscard]] Woken arrive(const ThreadState& thread, const unsigned long long& word,
                             host_abi::Place place);
  /// One barrier, which announces that many bytes of sends.
  [[nodiscard]] Woken expect(const ThreadState& thread, const unsigned long long& word, int bytes,
                             host_abi::Place place);
  /// To the shared memory of any block of the group; the destination becomes NaN.
  /// \param word  an mbarrier of the same block
  void send(const ThreadState& thread, void* to, const void* words, int bytes, const unsigned long long& word,
            host_abi::Place place);
  /// One barrier. The destination becomes NaN: what was there before may be gone at any moment.
  [[nodiscard]] Woken load(const ThreadState& thread, void* to, const void* from, int bytes,
                           const unsigned long long& word, host_abi::Place place);
  /// True where the thread has to wait for the end of the phase of that parity.
  [[nodiscard]] bool wait(const ThreadState& thread, const unsigned long long& word, int parity,
                          host_abi::Place place);

  /// Whether that phase has ended.
  [[nodiscard]] bool test(const ThreadState& thread, const unsigned long long& word, int parity,
                          host_abi::Place place);

  /// Lands one at random of those for which a thread waits; nothing where there is none.
  /// \throws DeviceError where the destination was written to in the meantime, or more was sent than announced
  [[nodiscard]] std::optional<Woken> land_one(Random& random);
  /// Lands all of a block that has returned.
  /// \throws DeviceError where a send to it is under way
  void land_all(const host_abi::Block& block);

  /// "1 of 2 arrivals", "1 of 1 arrivals, 16 bytes not sent": what there is of the phase for which this thread waits.
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
