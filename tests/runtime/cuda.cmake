# The CUDA device: what needs no GPU, what needs NVRTC, and what needs a GPU.
function(ce_cuda_test name label)
  ce_test(${name} LABEL ${label} SOURCES ${name}.cpp
          LINK ce_room_runtime ce_room_base fmt::fmt-header-only GTest::gmock)
  target_include_directories(${name} SYSTEM PRIVATE ${CE_CUDA_INCLUDE_DIR})
endfunction()

ce_cuda_test(cuda_no_driver_test unit)
ce_cuda_test(nvrtc_test nvrtc)
target_compile_definitions(nvrtc_test PRIVATE CE_TEMPLATE_DIR="${PROJECT_SOURCE_DIR}/templates")
add_library(ce_fake_nvrtc MODULE fake_nvrtc.cpp)
target_include_directories(ce_fake_nvrtc SYSTEM PRIVATE ${CE_CUDA_INCLUDE_DIR})
target_link_libraries(ce_fake_nvrtc PRIVATE ce_warnings)
ce_cuda_test(nvrtc_failure_test unit)
target_compile_definitions(nvrtc_failure_test PRIVATE CE_FAKE_NVRTC="$<TARGET_FILE:ce_fake_nvrtc>")
add_dependencies(nvrtc_failure_test ce_fake_nvrtc)
ce_cuda_test(cublaslt_api_test unit)
ce_cuda_test(cuda_matmul_test gpu)
ce_cuda_test(cuda_device_test gpu)
ce_cuda_test(cuda_coexistence_test gpu)

add_library(ce_fake_cuda MODULE cuda_fake_driver.cpp)
target_include_directories(ce_fake_cuda PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_include_directories(ce_fake_cuda SYSTEM PRIVATE ${CE_CUDA_INCLUDE_DIR})
target_link_libraries(ce_fake_cuda PRIVATE ce_warnings)
ce_cuda_test(cuda_calls_test unit)
target_compile_definitions(cuda_calls_test PRIVATE CE_FAKE_DRIVER="$<TARGET_FILE:ce_fake_cuda>")
add_dependencies(cuda_calls_test ce_fake_cuda)

# Compile workers. worker_test is its own worker; the others take this program, which needs no command line.
add_executable(ce_worker_program worker_program.cpp)
target_include_directories(ce_worker_program PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(ce_worker_program PRIVATE ce_room_runtime ce_room_base ce_warnings)
ce_cuda_test(worker_frames_test unit)
ce_cuda_test(worker_test unit)
ce_cuda_test(worker_nvrtc_test nvrtc)
target_compile_definitions(worker_nvrtc_test PRIVATE
  CE_FAKE_DRIVER="$<TARGET_FILE:ce_fake_cuda>" CE_TEST_WORKER="$<TARGET_FILE:ce_worker_program>")
add_dependencies(worker_nvrtc_test ce_fake_cuda ce_worker_program)
