// A libnccl.so.2 that gathers nothing: the communicator says what each call comes to.
#include "tests/runtime/fake_nccl.hpp"

#include <cstddef>

extern "C" {

using ce::test::FakeComm;

int ncclAllGather(const void*, void*, std::size_t, int, void* comm, void*) {
  return static_cast<FakeComm*>(comm)->all_gather;
}
int ncclCommUserRank(void* comm, int* rank) { return *rank = static_cast<FakeComm*>(comm)->rank, 0; }
int ncclCommCount(void* comm, int* size) { return *size = static_cast<FakeComm*>(comm)->size, 0; }
int ncclCommGetAsyncError(void* comm, int* error) {
  auto& own = *static_cast<FakeComm*>(comm);
  return *error = own.looks++ < own.in_progress ? ce::test::nccl_in_progress : own.async_error, 0;
}
const char* ncclGetErrorString(int error) {
  return error == ce::test::nccl_remote_error ? "remote process exited or there was a network error"
                                              : "another error";
}
}
