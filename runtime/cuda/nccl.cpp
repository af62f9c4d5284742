#include "runtime/cuda/nccl.hpp"

#include <dlfcn.h>

#include <chrono>
#include <thread>
#include <type_traits>

#include "base/made_once.hpp"
#include "ce/error.hpp"

namespace ce::runtime::cuda {
namespace {

// Declared here: not every machine that builds this has nccl.h. All of it belongs to NCCL's stable interface.
using NcclResult = int;
constexpr NcclResult nccl_success = 0, nccl_in_progress = 7;
constexpr int nccl_uint8 = 1;

struct Nccl {
  NcclResult (*all_gather)(const void*, void*, std::size_t count, int type, void* comm,
                           void* stream) = nullptr;
  NcclResult (*rank)(void* comm, int*) = nullptr;
  NcclResult (*size)(void* comm, int*) = nullptr;
  const char* (*words)(NcclResult) = nullptr;
  NcclResult (*async_error)(void* comm, NcclResult*) = nullptr;  ///< null before NCCL 2.4

  [[nodiscard]] bool is_whole() const {
    return all_gather != nullptr && rank != nullptr && size != nullptr && words != nullptr;
  }
};

/// The copy that created the caller's communicator comes first.
Nccl load_nccl() {
  constexpr const char* name = "libnccl.so.2";
  void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  Nccl nccl;
  // A program may be linked with NCCL statically.
  const auto find = [&](auto& function, const char* symbol) {
    void* found = library != nullptr ? dlsym(library, symbol) : dlsym(RTLD_DEFAULT, symbol);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(nccl.all_gather, "ncclAllGather");
  find(nccl.rank, "ncclCommUserRank");
  find(nccl.size, "ncclCommCount");
  find(nccl.words, "ncclGetErrorString");
  find(nccl.async_error, "ncclCommGetAsyncError");
  return nccl;
}

const Nccl& the_nccl() {
  static constinit MadeOnce<Nccl> nccl;
  return nccl.get(load_nccl);
}

void require(const Nccl& nccl, NcclResult result, const char* call) {
  if (result != nccl_success) throw DeviceError(call, result, nccl.words(result));
}

}  // namespace

RankOf nccl_rank(void* comm) {
  const Nccl& nccl = the_nccl();
  if (!nccl.is_whole()) throw Unsupported("the process cannot load libnccl.so.2");
  RankOf of;
  require(nccl, nccl.rank(comm, &of.rank), "ncclCommUserRank");
  require(nccl, nccl.size(comm, &of.size), "ncclCommCount");
  return of;
}

const char* nccl_failure(void* comm) noexcept {
  const Nccl& nccl = the_nccl();
  NcclResult found = nccl_success;
  if (nccl.async_error == nullptr || nccl.async_error(comm, &found) != nccl_success) return nullptr;
  return found == nccl_success || found == nccl_in_progress ? nullptr : nccl.words(found);
}

const char* nccl_all_gather(void* comm, const void* send, void* receive, std::size_t bytes,
                            Stream stream) noexcept {
  const Nccl& nccl = the_nccl();
  NcclResult result = nccl.all_gather(send, receive, bytes, nccl_uint8, comm, stream);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  while (result == nccl_in_progress && nccl.async_error != nullptr &&
         std::chrono::steady_clock::now() < end) {
    if (nccl.async_error(comm, &result) != nccl_success) break;
    if (result == nccl_in_progress) std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
  return result == nccl_success ? nullptr : nccl.words(result);
}

}  // namespace ce::runtime::cuda
