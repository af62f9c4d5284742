# Third-party libraries, and the headers of the CUDA driver API and NVRTC. Driver and NVRTC themselves are
# opened at run time: nothing here links them.

include(${CMAKE_CURRENT_LIST_DIR}/libraries.cmake)
ce_find_libraries(missing)
if(missing)
  message(FATAL_ERROR "Not found: ${missing}. scripts/install-dependencies installs what ce needs.")
endif()

# Header only: a consumer of the built library needs none of these.
find_package(fmt REQUIRED)
# What sources link for fmt, whose code then is in each of them. With CE_FMT_ONCE, for the version whose layout is known, it
# is in the room base alone, which takes a tenth off the time to build.
add_library(ce_fmt INTERFACE)
if(CE_FMT_ONCE AND fmt_VERSION MATCHES "^9\\.")
  target_include_directories(ce_fmt SYSTEM INTERFACE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
  set(CE_FMT_SOURCE fmt.cpp)
else()
  target_link_libraries(ce_fmt INTERFACE fmt::fmt-header-only)
endif()
find_package(nlohmann_json REQUIRED)
find_path(CE_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_path(CE_SQLITE_INCLUDE_DIR sqlite3.h REQUIRED)
find_path(CE_SQLITECPP_INCLUDE_DIR SQLiteCpp/SQLiteCpp.h REQUIRED)

# cuda.h and nvrtc.h: where the user says, from a CUDA toolkit, or from the folder that scripts/fetch-cuda fills.
if(NOT CE_CUDA_INCLUDE_DIR AND NOT "$ENV{CE_CUDA_INCLUDE_DIR}" STREQUAL "")
  set(CE_CUDA_INCLUDE_DIR "$ENV{CE_CUDA_INCLUDE_DIR}" CACHE PATH "Folder of cuda.h and nvrtc.h, CUDA 12 or later")
endif()
if(NOT CE_CUDA_INCLUDE_DIR)
  find_package(CUDAToolkit QUIET)
  find_path(CE_CUDA_INCLUDE_DIR NAMES nvrtc.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${PROJECT_SOURCE_DIR}/build/cuda/include
    PATHS /usr/local/cuda/include ENV CUDA_HOME
    PATH_SUFFIXES include
    DOC "Folder of cuda.h and nvrtc.h, CUDA 12 or later")
endif()
if(NOT EXISTS "${CE_CUDA_INCLUDE_DIR}/cuda.h" OR NOT EXISTS "${CE_CUDA_INCLUDE_DIR}/nvrtc.h")
  message(FATAL_ERROR "No cuda.h with nvrtc.h beside it. Run scripts/fetch-cuda, which takes both from NVIDIA's "
                      "Python wheels, or install a CUDA toolkit, or set CE_CUDA_INCLUDE_DIR.")
endif()
file(STRINGS "${CE_CUDA_INCLUDE_DIR}/cuda.h" cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
string(REGEX MATCH "[0-9]+" cuda_version "${cuda_version}")
if(cuda_version LESS 12000)
  message(FATAL_ERROR "${CE_CUDA_INCLUDE_DIR}/cuda.h is of CUDA version ${cuda_version}; expected 12000 (12.0) or "
                      "later. scripts/fetch-cuda gets 13.0 beside it: set "
                      "CE_CUDA_INCLUDE_DIR=${PROJECT_SOURCE_DIR}/build/cuda/include.")
endif()
