# Compiles the public headers as a user would:
#   cmake -D COMPILER=clang++-14|nvcc|... -D HEADERS=ce/ce.hpp:... -D INCLUDE=... -D WORK=... -P headers.cmake
# All of them in a program, with every warning; and each as C++17, which one clear error refuses.

find_program(program ${COMPILER} PATHS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
if(NOT program)
  message("${COMPILER} is not installed")
  return()
endif()
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
string(REPLACE ":" ";" headers "${HEADERS}")

if(COMPILER STREQUAL "nvcc")
  set(command ${program} -Werror all-warnings -I${INCLUDE} -c -o ${WORK}/object.o)
  set(extension cu)
else()
  set(command ${program} -Wall -Wextra -Wpedantic -Werror -I${INCLUDE} -fsyntax-only)
  set(extension cpp)
endif()

function(expect_to_compile name text)
  file(WRITE ${WORK}/${name}.${extension} "${text}")
  execute_process(COMMAND ${command} -std=c++20 ${WORK}/${name}.${extension} RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${COMPILER} does not compile ${name}:\n${errors}")
  endif()
endfunction()

set(all "")
foreach(header IN LISTS headers)
  string(APPEND all "#include <${header}>\n")
endforeach()
if(COMPILER STREQUAL "nvcc")
  # ce's headers know these types before CUDA's define them.
  string(APPEND all "#include <cuda_bf16.h>
#include <cuda_fp16.h>
static_assert(ce::tensor(static_cast<__half*>(nullptr), 1).dtype == ce::DType::f16);
static_assert(ce::tensor(static_cast<const __nv_bfloat16*>(nullptr), 1).dtype == ce::DType::bf16);
")
endif()
expect_to_compile(program "${all}
#include <filesystem>
ce::ContextOptions options(const std::filesystem::path& database) { return {.database = database}; }
void softmax(const ce::Tensor& x, ce::Stream stream) { ce::run(ce::Softmax{}, {.input = x, .output = x}, stream); }
void softmax(const float* x, float* y, ce::Stream stream) {
  ce::run(ce::Softmax{}, {.input = ce::tensor(x, 2, 3), .output = ce::tensor(y, 2, 3)}, stream);
}
int main() {
  try {
    softmax(ce::Tensor{}, nullptr);
  } catch (const ce::OutOfMemory& error) {
    return static_cast<int>(error.where().line());
  }
}
")

# Every file that includes a header of ce pays for what that includes.
if(NOT COMPILER STREQUAL "nvcc")
  file(WRITE ${WORK}/included.cpp "#include <ce/ce.hpp>\n")
  execute_process(COMMAND ${program} -std=c++20 -I${INCLUDE} -M ${WORK}/included.cpp OUTPUT_VARIABLE included
                  COMMAND_ERROR_IS_FATAL ANY)
  foreach(header filesystem iostream regex)
    if(included MATCHES "/${header}[ \n]")
      message(FATAL_ERROR "ce/ce.hpp includes <${header}>")
    endif()
  endforeach()
endif()

foreach(header IN LISTS headers)
  file(WRITE ${WORK}/old.${extension} "#include <${header}>\n")
  execute_process(COMMAND ${command} -std=c++17 ${WORK}/old.${extension} RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(status EQUAL 0 OR NOT errors MATCHES "ce needs C\\+\\+20: compile with")
    message(FATAL_ERROR "${COMPILER} takes ${header} with -std=c++17, or says something else:\n${errors}")
  endif()
endforeach()
