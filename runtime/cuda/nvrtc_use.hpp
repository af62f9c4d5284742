#pragma once
/// \file
/// NVRTC at the program's end.

namespace ce::runtime::cuda {

/// A thread inside NVRTC. A library's statics are destroyed at the program's end while threads still use them, and
/// NVRTC makes some as it compiles; so the end waits for the threads that are inside before it comes to those, and lets
/// no other in.
class NvrtcUse {
 public:
  /// \throws Error(interrupted) once the program is ending
  NvrtcUse();
  NvrtcUse(const NvrtcUse&) = delete;
  NvrtcUse& operator=(const NvrtcUse&) = delete;
  ~NvrtcUse();
};

}  // namespace ce::runtime::cuda
