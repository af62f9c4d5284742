// The calls of NCCL on a copy that the process has loaded already: a communicator that does not block, and failures.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "runtime/cuda/nccl.hpp"
#include "tests/runtime/fake_nccl.hpp"

namespace ce::runtime::cuda {
namespace {

using test::FakeComm;

class NcclCalls : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_NE(dlopen(CE_FAKE_NCCL, RTLD_NOW), nullptr) << dlerror(); }
  static const char* gather(FakeComm& comm) { return nccl_all_gather(&comm, nullptr, nullptr, 0, nullptr); }
};

TEST_F(NcclCalls, TellTheRank) {
  FakeComm comm{.rank = 2, .size = 5};
  const RankOf of = nccl_rank(&comm);
  EXPECT_EQ(of.rank, 2);
  EXPECT_EQ(of.size, 5);
}

TEST_F(NcclCalls, WaitForACommunicatorThatDoesNotBlock) {
  FakeComm comm{.all_gather = test::nccl_in_progress, .in_progress = 3};
  EXPECT_EQ(gather(comm), nullptr);
  EXPECT_EQ(comm.looks, 4);
  FakeComm failing{
      .all_gather = test::nccl_in_progress, .in_progress = 1, .async_error = test::nccl_remote_error};
  EXPECT_STREQ(gather(failing), "remote process exited or there was a network error");
  FakeComm blocking;
  EXPECT_EQ(gather(blocking), nullptr);
  EXPECT_EQ(blocking.looks, 0);
}

TEST_F(NcclCalls, SayWhatNcclHasFoundSince) {
  FakeComm comm;
  EXPECT_EQ(nccl_failure(&comm), nullptr);
  comm.in_progress = 10;
  EXPECT_EQ(nccl_failure(&comm), nullptr) << "what goes on is no failure";
  comm = {.async_error = test::nccl_remote_error};
  EXPECT_STREQ(nccl_failure(&comm), "remote process exited or there was a network error");
}

}  // namespace
}  // namespace ce::runtime::cuda
