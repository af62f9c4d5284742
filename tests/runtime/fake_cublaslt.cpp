// A cuBLASLt that makes no product. It names one algorithm of each scheme of reductions, whatever was asked for, and takes
// all that an algorithm can be set to.
#include "tests/runtime/fake_cublaslt.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/cuda/cublaslt_api.hpp"

namespace lt = ce::runtime::cuda::lt;

namespace {

char object;  // what all handles point to

template <class T>
lt::Status make(T** made) {
  *made = reinterpret_cast<T*>(&object);
  return 0;
}

// Of an algorithm data[i] is what its attribute i says.
constexpr std::size_t attributes = 8;
/// The cluster, which the fake does not have, is the ninth.
bool has(int attribute) { return 0 <= attribute && static_cast<std::size_t>(attribute) < attributes; }

lt::HeuristicResult result_of(const lt::Algorithm& algorithm) {
  lt::HeuristicResult result{};
  result.algorithm = algorithm;
  result.waves = 1;
  return result;
}

}  // namespace

extern "C" {

FakeCublasLt fake_cublaslt_state;

lt::Status cublasLtCreate(lt::Handle** made) { return make(made); }
lt::Status cublasLtDestroy(lt::Handle*) { return 0; }
std::size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(lt::Status) { return "a status"; }
lt::Status cublasLtMatmulDescCreate(lt::MatmulDescription** made, int, int) { return make(made); }
lt::Status cublasLtMatmulDescDestroy(lt::MatmulDescription*) { return 0; }
lt::Status cublasLtMatmulDescSetAttribute(lt::MatmulDescription*, int, const void*, std::size_t) { return 0; }
lt::Status cublasLtMatrixLayoutCreate(lt::MatrixLayout** made, int, std::uint64_t, std::uint64_t,
                                      std::int64_t) {
  return make(made);
}
lt::Status cublasLtMatrixLayoutDestroy(lt::MatrixLayout*) { return 0; }
lt::Status cublasLtMatmulPreferenceCreate(lt::Preference** made) { return make(made); }
lt::Status cublasLtMatmulPreferenceDestroy(lt::Preference*) { return 0; }
lt::Status cublasLtMatmulPreferenceSetAttribute(lt::Preference*, int attribute, const void* value,
                                                std::size_t bytes) {
  if (attribute == lt::pref_reduction_scheme_mask && bytes == sizeof fake_cublaslt_state.reductions)
    std::memcpy(&fake_cublaslt_state.reductions, value, bytes);
  return 0;
}
lt::Status cublasLtMatmulAlgoGetHeuristic(lt::Handle*, lt::MatmulDescription*, lt::MatrixLayout*,
                                          lt::MatrixLayout*, lt::MatrixLayout*, lt::MatrixLayout*,
                                          lt::Preference*, int most, lt::HeuristicResult* results,
                                          int* found) {
  constexpr std::array<std::uint64_t, 4> schemes{0, 1, 2, 4};
  *found = std::min<int>(most, schemes.size());
  for (int i = 0; i < *found; ++i) {
    lt::Algorithm algorithm{};
    algorithm.data[lt::config_id] = 66;
    algorithm.data[lt::config_split_k] = i == 0 ? 1 : 2;
    algorithm.data[lt::config_reduction] = schemes[static_cast<std::size_t>(i)];
    results[i] = result_of(algorithm);
  }
  return 0;
}
lt::Status cublasLtMatmulAlgoInit(lt::Handle*, int, int, int, int, int, int, int id,
                                  lt::Algorithm* algorithm) {
  *algorithm = {};
  algorithm->data[lt::config_id] = static_cast<std::uint64_t>(id);
  return 0;
}
lt::Status cublasLtMatmulAlgoCheck(lt::Handle*, lt::MatmulDescription*, lt::MatrixLayout*, lt::MatrixLayout*,
                                   lt::MatrixLayout*, lt::MatrixLayout*, const lt::Algorithm* algorithm,
                                   lt::HeuristicResult* result) {
  *result = result_of(*algorithm);
  return 0;
}
lt::Status cublasLtMatmulAlgoCapGetAttribute(const lt::Algorithm*, int which, void* value, std::size_t bytes,
                                             std::size_t* written) {
  const std::uint32_t splits = 1;
  if (which != lt::cap_split_k) return lt::not_supported;
  *written = sizeof splits;
  if (bytes >= sizeof splits) std::memcpy(value, &splits, sizeof splits);
  return 0;
}
lt::Status cublasLtMatmulAlgoConfigSetAttribute(lt::Algorithm* algorithm, int attribute, const void* value,
                                                std::size_t bytes) {
  if (!has(attribute)) return lt::not_supported;
  algorithm->data[attribute] = 0;
  std::memcpy(&algorithm->data[attribute], value, bytes);
  return 0;
}
lt::Status cublasLtMatmulAlgoConfigGetAttribute(const lt::Algorithm* algorithm, int attribute, void* value,
                                                std::size_t bytes, std::size_t* written) {
  if (!has(attribute)) return lt::not_supported;
  std::memcpy(value, &algorithm->data[attribute], bytes);
  *written = bytes;
  return 0;
}
lt::Status cublasLtMatmul(lt::Handle*, lt::MatmulDescription*, const void*, const void*, lt::MatrixLayout*,
                          const void*, lt::MatrixLayout*, const void*, const void*, lt::MatrixLayout*, void*,
                          lt::MatrixLayout*, const lt::Algorithm*, void*, std::size_t, ce::Stream) {
  return lt::not_supported;
}
}
