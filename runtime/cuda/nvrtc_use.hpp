#pragma once
/// \file
/// Use of NVRTC near the program's end.

namespace ce::runtime::cuda {

/// Marks a thread as inside NVRTC. NVRTC creates statics as it compiles, and the program's end destroys a library's
/// statics while threads may still use them. So the end first waits for the threads that are inside, and lets no other
/// thread in.
class NvrtcUse {
 public:
  /// \throws Error(interrupted) once the program is ending
  NvrtcUse();
  NvrtcUse(const NvrtcUse&) = delete;
  NvrtcUse& operator=(const NvrtcUse&) = delete;
  ~NvrtcUse();
};

}  // namespace ce::runtime::cuda
