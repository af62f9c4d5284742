#pragma once
/// \file
/// What a test sees of the driver in cuda_fake_driver.cpp.

#include <cstdint>

/// What the driver holds and what was asked of it. Counts are of live things.
struct FakeCuda {
  int primary_contexts = 0, modules = 0, allocations = 0, streams = 0, events = 0;
  int pushed = 0, popped = 0;
  int synchronised = 0;
  int launches = 0;
  std::uint32_t blocks = 0, threads = 0, cluster = 0, shared_bytes = 0;  ///< of the last launch
  std::uint64_t argument = 0;  ///< the first 8 bytes of its parameter; 0 without one
  double clock_us = 0;         ///< advances by 5 with each launch of "work"
  int capability = 90;
  int next_launch_result = 0;
  bool global_capture = false;       ///< as if some thread captured a stream in global mode
  bool legacy_stream_waits = false;  ///< a stream that waits for the default stream is being captured
  bool has_ptx_compiler = true;
};

/// The type of `ce_fake_cuda`, which the library exports.
using FakeCudaState = FakeCuda& (*)();
