# Third-party libraries, and the headers of the CUDA driver API and NVRTC. Driver and NVRTC themselves are
# opened at run time: nothing here links them.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_path(CE_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

if(CE_STATIC_DEPENDENCIES)
  set(Boost_USE_STATIC_LIBS ON)
endif()
find_package(Boost REQUIRED COMPONENTS context)

find_path(CE_SQLITE_INCLUDE_DIR sqlite3.h REQUIRED)
find_path(CE_SQLITECPP_INCLUDE_DIR SQLiteCpp/SQLiteCpp.h REQUIRED)
find_library(CE_SQLITECPP_LIBRARY NAMES SQLiteCpp REQUIRED)
if(CE_STATIC_DEPENDENCIES)
  find_library(CE_SQLITE_STATIC_LIBRARY NAMES libsqlite3.a REQUIRED)
  set(CE_SQLITE_LIBRARY ${CE_SQLITE_STATIC_LIBRARY})
else()
  find_library(CE_SQLITE_LIBRARY NAMES sqlite3 REQUIRED)
endif()

# cuda.h and nvrtc.h: from a CUDA toolkit, or from the folder that scripts/fetch-cuda filled.
if(NOT CE_CUDA_INCLUDE_DIR)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(CE_CUDA_INCLUDE_DIR ${CUDAToolkit_INCLUDE_DIRS})
  else()
    message(FATAL_ERROR "No CUDA toolkit found. Run scripts/fetch-cuda and configure with "
                        "-DCE_CUDA_INCLUDE_DIR=<what it prints>, or install a toolkit.")
  endif()
endif()
