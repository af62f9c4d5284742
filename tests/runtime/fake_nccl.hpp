#pragma once
/// \file
/// What a communicator of the fake NCCL is.

namespace ce::test {

constexpr int nccl_remote_error = 6, nccl_in_progress = 7;

struct FakeComm {
  int rank = 1, size = 3;
  int all_gather = 0;   ///< result of that call
  int in_progress = 0;  ///< so many looks find it still going on
  int async_error = 0;  ///< what looks find then
  int looks = 0;
};

}  // namespace ce::test
