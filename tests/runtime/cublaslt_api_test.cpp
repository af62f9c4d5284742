#include "runtime/cuda/cublaslt_api.hpp"

#include <gtest/gtest.h>

#include "runtime/cuda/cublaslt.hpp"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace ce::runtime::cuda {
namespace {

TEST(CublasLtApi, TheDeclarationsAreThoseOfTheHeader) {
#if __has_include(<cublasLt.h>)
  EXPECT_EQ(lt::not_supported, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(sizeof(lt::Algorithm), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(lt::HeuristicResult), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(lt::HeuristicResult, workspace_bytes),
            offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(lt::HeuristicResult, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(lt::r_32f, CUDA_R_32F);
  EXPECT_EQ(lt::r_16f, CUDA_R_16F);
  EXPECT_EQ(lt::r_16bf, CUDA_R_16BF);
  EXPECT_EQ(lt::compute_32f, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(lt::op_n, CUBLAS_OP_N);
  EXPECT_EQ(lt::op_t, CUBLAS_OP_T);
  EXPECT_EQ(lt::desc_trans_a, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(lt::desc_trans_b, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(lt::desc_epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(lt::desc_bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(lt::epilogue_bias, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(lt::pref_max_workspace_bytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(lt::pref_reduction_scheme_mask, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(lt::pref_min_alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(lt::pref_min_alignment_b, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  EXPECT_EQ(lt::pref_min_alignment_c, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  EXPECT_EQ(lt::pref_min_alignment_d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(lt::reduction_compute_type, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(lt::reduction_in_place, CUBLASLT_REDUCTION_SCHEME_INPLACE);
  EXPECT_EQ(lt::reduction_none, CUBLASLT_REDUCTION_SCHEME_NONE);
  EXPECT_EQ(lt::first_cluster, CUBLASLT_CLUSTER_SHAPE_1x1x1);
  EXPECT_EQ(lt::last_cluster, CUBLASLT_CLUSTER_SHAPE_1x8x1);
  EXPECT_EQ(lt::config_id, CUBLASLT_ALGO_CONFIG_ID);
  EXPECT_EQ(lt::config_tile, CUBLASLT_ALGO_CONFIG_TILE_ID);
  EXPECT_EQ(lt::config_split_k, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  EXPECT_EQ(lt::config_reduction, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  EXPECT_EQ(lt::config_swizzling, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  EXPECT_EQ(lt::config_custom, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  EXPECT_EQ(lt::config_stages, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  EXPECT_EQ(lt::config_inner_shape, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
  EXPECT_EQ(lt::config_cluster, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  EXPECT_EQ(lt::cap_split_k, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT);
  EXPECT_EQ(lt::cap_reductions, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(lt::cap_swizzling, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
  EXPECT_EQ(lt::cap_tiles, CUBLASLT_ALGO_CAP_TILE_IDS);
  EXPECT_EQ(lt::cap_most_custom, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
  EXPECT_EQ(lt::cap_stages, CUBLASLT_ALGO_CAP_STAGES_IDS);
#else
  GTEST_SKIP() << "no cublasLt.h";
#endif
}

TEST(CublasLtApi, AMissingLibraryIsTold) {
  setenv("CE_CUBLASLT", "/nowhere/libcublasLt.so.13", 1);
  const auto& [library, tried] = CublasLt::shared();
  ASSERT_EQ(library, nullptr);
  ASSERT_FALSE(tried.empty());
  EXPECT_NE(tried.back().find("/nowhere/libcublasLt.so.13"), std::string::npos) << tried.back();
}

}  // namespace
}  // namespace ce::runtime::cuda
