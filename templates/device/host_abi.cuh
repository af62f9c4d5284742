// The interface between a kernel compiled for the host device and the scheduler that runs it: plain structs, compiled
// once into the kernel's shared object (through host.cuh) and once into runtime/host.
//
// A shared object exports, besides its entry points,
//   const int ce_host_abi                   the `version` below with which it was compiled
//   Thread** ce_host_thread()               where, on the calling OS thread, it looks for its current Thread
//   const int ce_host_threads_<entry>       the largest block that the entry point was compiled for
#pragma once

namespace ce::host_abi {

/// Raised by every change of these structs.
constexpr int version = 6;

constexpr int lanes = 32;  // lanes of a warp

/// A line of the kernel's text, for messages. `file` lives as long as the shared object.
struct Place {
  const char* file;
  int line;
};

/// The threads that take part in a barrier.
enum class Scope : int { warp, block };

struct Thread;

/// The scheduler's services for a thread. All may leave the kernel by an exception, so no function between the entry
/// point and a call of them may be noexcept.
struct Services {
  /// Returns when all threads of the scope have called it at the same source location.
  void (*barrier)(Thread& thread, Scope scope, Place place);
  /// The two halves of a barrier of all threads of the cluster, which must all arrive at the same source location.
  void (*cluster_arrive)(Thread& thread, Place place);
  void (*cluster_wait)(Thread& thread, Place place);
  /// `barrier` is a word of shared memory that only these seven functions interpret.
  void (*mbarrier_init)(Thread& thread, unsigned long long& barrier, int count, Place place);
  void (*mbarrier_arrive)(Thread& thread, unsigned long long& barrier, Place place);
  void (*mbarrier_wait)(Thread& thread, unsigned long long& barrier, int parity, Place place);
  bool (*mbarrier_test)(Thread& thread, unsigned long long& barrier, int parity, Place place);
  void (*mbarrier_arrive_expect_tx)(Thread& thread, unsigned long long& barrier, int bytes, Place place);
  /// Sends to the block of that rank: `to` and `barrier` are the addresses of its own copies in this thread's shared
  /// memory.
  void (*cluster_send)(Thread& thread, void* to, const void* words, int bytes, unsigned long long& barrier,
                       int rank, Place place);
  void (*bulk_load)(Thread& thread, void* to, const void* from, int bytes, unsigned long long& barrier,
                    Place place);
  /// A clock.
  unsigned long long (*nanoseconds)();
  /// Returns after the other threads have run as far as they could.
  void (*await_others)(Thread& thread, Place place);
  /// Ends the launch with an error. Does not return.
  void (*fail)(Thread& thread, const char* message, Place place);
};

/// Shared by the lanes of a warp to exchange values. The two halves are used in turn: a lane that has left one exchange
/// may write for the next while others still read, so one barrier for each exchange is enough.
struct Exchange {
  unsigned long long slot[2][lanes];
};

struct Block {
  long long index;  // index in the grid
  long long count;  // number of blocks in the grid
  unsigned char* shared;
  int rank;  // rank in the cluster
};

struct Thread {
  int index;  // index in the block
  int lane;
  int warp;
  unsigned exchanges;  // number of exchanges so far; its parity selects the half of `exchange`
  Exchange* exchange;  // shared by the warp
  const Block* block;
  const Services* services;
};

}  // namespace ce::host_abi
