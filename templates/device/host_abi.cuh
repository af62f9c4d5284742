// What a kernel compiled for the host device and the scheduler that runs it know of each other: plain
// structs, compiled once into the kernel's shared object (through device_host.cuh) and once into
// runtime/host.
//
// A shared object exports, besides its entry points,
//   const int ce_host_abi                   the `version` below with which it was compiled
//   Thread** ce_host_thread()               where, on the calling OS thread, it looks for its current Thread
//   const int ce_host_threads_<entry>       the largest block that the entry point was compiled for
#pragma once

namespace ce::host_abi {

/// Raised by every change of these structs.
constexpr int version = 6;

constexpr int lanes = 32;  // of a warp

/// A line of the kernel's text, for messages. `file` lives as long as the shared object.
struct Place {
  const char* file;
  int line;
};

/// Who takes part in a barrier.
enum class Scope : int { warp, block };

struct Thread;

/// What the scheduler does for a thread. All may leave the kernel by an exception, so nothing between the
/// entry point and a call of them may be noexcept.
struct Services {
  /// Returns when all threads of the scope have called it at the same place.
  void (*barrier)(Thread& thread, Scope scope, Place place);
  /// The two halves of a barrier of all threads of the cluster, who all arrive at the same place.
  void (*cluster_arrive)(Thread& thread, Place place);
  void (*cluster_wait)(Thread& thread, Place place);
  /// `barrier` is a word of shared memory that only these seven understand.
  void (*mbarrier_init)(Thread& thread, unsigned long long& barrier, int count, Place place);
  void (*mbarrier_arrive)(Thread& thread, unsigned long long& barrier, Place place);
  void (*mbarrier_wait)(Thread& thread, unsigned long long& barrier, int parity, Place place);
  bool (*mbarrier_test)(Thread& thread, unsigned long long& barrier, int parity, Place place);
  void (*mbarrier_arrive_expect_tx)(Thread& thread, unsigned long long& barrier, int bytes, Place place);
  /// Sends to where the thread's own shared memory at `to` and its own `barrier` are in that block of the cluster.
  void (*cluster_send)(Thread& thread, void* to, const void* words, int bytes, unsigned long long& barrier,
                       int rank, Place place);
  void (*bulk_load)(Thread& thread, void* to, const void* from, int bytes, unsigned long long& barrier,
                    Place place);
  /// The time of a clock that goes on.
  unsigned long long (*nanoseconds)();
  /// Returns after a while in which the other threads have done all they could.
  void (*await_others)(Thread& thread, Place place);
  /// Ends the launch with an error. Does not return.
  void (*fail)(Thread& thread, const char* message, Place place);
};

/// Where the lanes of a warp show each other a value. The two halves are used in turn: a lane that has left
/// one exchange may write for the next while others still read, so one barrier for each exchange is enough.
struct Exchange {
  unsigned long long slot[2][lanes];
};

struct Block {
  long long index;  // in the grid
  long long count;  // of blocks in the grid
  unsigned char* shared;
  int rank;  // in the cluster
};

struct Thread {
  int index;  // in the block
  int lane;
  int warp;
  unsigned exchanges;  // so far; its parity picks the half of `exchange`
  Exchange* exchange;  // of the warp
  const Block* block;
  const Services* services;
};

}  // namespace ce::host_abi
