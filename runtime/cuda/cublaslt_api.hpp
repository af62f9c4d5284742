#pragma once
/// \file
/// The part of cuBLASLt's interface that is used, declared here: cublasLt.h is not needed for a build. A test compares
/// the declarations with that header if it is installed.

#include <cstddef>
#include <cstdint>

#include "ce/dtype.hpp"

namespace ce::runtime::cuda::lt {

using Status = int;  ///< 0: success
inline constexpr Status not_supported = 15;

struct Handle;
struct MatmulDescription;
struct MatrixLayout;
struct Preference;

/// Passed by value; its contents belong to cuBLASLt.
struct Algorithm {
  std::uint64_t data[8];
};

struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

// cudaDataType_t
inline constexpr int r_32f = 0, r_16f = 2, r_16bf = 14;
// cublasComputeType_t
inline constexpr int compute_32f = 68;
// cublasOperation_t
inline constexpr std::int32_t op_n = 0, op_t = 1;
// cublasLtMatmulDescAttributes_t
inline constexpr int desc_trans_a = 3, desc_trans_b = 4, desc_epilogue = 7, desc_bias_pointer = 8;
// cublasLtEpilogue_t
inline constexpr std::uint32_t epilogue_bias = 4;
// cublasLtMatmulPreferenceAttributes_t
inline constexpr int pref_max_workspace_bytes = 1, pref_reduction_scheme_mask = 3, pref_min_alignment_a = 5,
                     pref_min_alignment_b = 6, pref_min_alignment_c = 7, pref_min_alignment_d = 8;
// cublasLtReductionScheme_t: no splits of k; splits that are stored separately in f32 and added up in order; or splits
// that are added to the result as they end
inline constexpr std::uint32_t reduction_none = 0, reduction_compute_type = 2, reduction_in_place = 1;
// cublasLtClusterShape_t: 1x1x1 up to 1x8x1
inline constexpr std::uint32_t first_cluster = 2, last_cluster = 12;
// cublasLtMatmulAlgoConfigAttributes_t
inline constexpr int config_id = 0, config_tile = 1, config_split_k = 2, config_reduction = 3,
                     config_swizzling = 4, config_custom = 5, config_stages = 6, config_inner_shape = 7,
                     config_cluster = 8;
// cublasLtMatmulAlgoCapAttributes_t
inline constexpr int cap_split_k = 0, cap_reductions = 1, cap_swizzling = 2, cap_tiles = 6,
                     cap_most_custom = 7, cap_stages = 13;

/// Types of the functions, by the names of the API.
using cublasLtCreate = Status(Handle**);
using cublasLtDestroy = Status(Handle*);
using cublasLtGetVersion = std::size_t();
using cublasLtGetStatusString = const char*(Status);
using cublasLtMatmulDescCreate = Status(MatmulDescription**, int compute, int scale);
using cublasLtMatmulDescDestroy = Status(MatmulDescription*);
using cublasLtMatmulDescSetAttribute = Status(MatmulDescription*, int, const void*, std::size_t);
using cublasLtMatrixLayoutCreate = Status(MatrixLayout**, int type, std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride);
using cublasLtMatrixLayoutDestroy = Status(MatrixLayout*);
using cublasLtMatmulPreferenceCreate = Status(Preference**);
using cublasLtMatmulPreferenceDestroy = Status(Preference*);
using cublasLtMatmulPreferenceSetAttribute = Status(Preference*, int, const void*, std::size_t);
using cublasLtMatmulAlgoGetHeuristic = Status(Handle*, MatmulDescription*, MatrixLayout* a, MatrixLayout* b,
                                              MatrixLayout* c, MatrixLayout* d, Preference*, int most,
                                              HeuristicResult*, int* found);
using cublasLtMatmulAlgoInit = Status(Handle*, int compute, int scale, int a, int b, int c, int d, int id,
                                      Algorithm*);
using cublasLtMatmulAlgoCheck = Status(Handle*, MatmulDescription*, MatrixLayout* a, MatrixLayout* b,
                                       MatrixLayout* c, MatrixLayout* d, const Algorithm*, HeuristicResult*);
using cublasLtMatmulAlgoCapGetAttribute = Status(const Algorithm*, int, void*, std::size_t, std::size_t*);
using cublasLtMatmulAlgoConfigSetAttribute = Status(Algorithm*, int, const void*, std::size_t);
using cublasLtMatmulAlgoConfigGetAttribute = Status(const Algorithm*, int, void*, std::size_t, std::size_t*);
using cublasLtMatmul = Status(Handle*, MatmulDescription*, const void* alpha, const void* a, MatrixLayout*,
                              const void* b, MatrixLayout*, const void* beta, const void* c, MatrixLayout*,
                              void* d, MatrixLayout*, const Algorithm*, void* workspace, std::size_t, Stream);

// clang-format off
#define CE_CUBLASLT_FUNCTIONS(X)                                                                       \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtGetStatusString)                \
  X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)           \
  X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)                                         \
  X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                                 \
  X(cublasLtMatmulPreferenceSetAttribute)                                                              \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoInit) X(cublasLtMatmulAlgoCheck)               \
  X(cublasLtMatmulAlgoCapGetAttribute) X(cublasLtMatmulAlgoConfigSetAttribute)                         \
  X(cublasLtMatmulAlgoConfigGetAttribute) X(cublasLtMatmul)
// clang-format on

}  // namespace ce::runtime::cuda::lt
