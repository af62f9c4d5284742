#pragma once
/// \file
/// Makes the errors of a launch.

#include <cstdint>
#include <string_view>

#include "ce/error.hpp"
#include "runtime/host/thread_state.hpp"

namespace ce::runtime::host {

/// Every error names the launch, the block and the seed that reproduces the same order of threads.
class Report {
 public:
  explicit Report(std::uint64_t seed) : seed_(seed) {}
  /// \param kernel  its name, which must live as long as the launch
  void start(std::string_view kernel) { kernel_ = kernel; }

  [[nodiscard]] DeviceError error(const host_abi::Block& block, std::string_view message) const;
  /// The error of one thread at a location of the kernel: "thread 3 <message> at x.cu:12".
  [[nodiscard]] DeviceError mistake(const ThreadState& thread, std::string_view message,
                                    host_abi::Place place) const;

 private:
  std::uint64_t seed_;
  std::string_view kernel_;
};

}  // namespace ce::runtime::host
