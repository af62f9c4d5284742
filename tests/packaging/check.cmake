# Builds and runs the consumer:
#   cmake -D USE=find_package|add_subdirectory -D CE_SOURCE_DIR=... -D CE_BINARY_DIR=... -D WORK=... -D GENERATOR=...
#         -D CXX=... -D CXX_FLAGS=... -D CUDA_INCLUDE_DIR=... -D VERSION=... -D JOBS=... -P check.cmake

function(run)
  list(JOIN ARGN " " command)
  message(STATUS "${command}")
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(expect_version)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" found "${output}")
  if(NOT found STREQUAL VERSION)
    message(FATAL_ERROR "${ARGN} printed '${output}'; expected version ${VERSION}")
  endif()
endfunction()

set(configure ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK}/build -G ${GENERATOR}
              -DCMAKE_CXX_COMPILER=${CXX})

if(USE STREQUAL "find_package")
  # Moved after the installation: a package must not remember where it was built or first installed.
  file(REMOVE_RECURSE ${WORK})
  run(${CMAKE_COMMAND} --install ${CE_BINARY_DIR} --prefix ${WORK}/first)
  file(RENAME ${WORK}/first ${WORK}/prefix)
  file(GLOB_RECURSE package ${WORK}/prefix/*.cmake)
  if(NOT package)
    message(FATAL_ERROR "the installation has no CMake package")
  endif()
  foreach(file IN LISTS package)
    file(READ ${file} text)
    foreach(path ${CE_SOURCE_DIR} ${CE_BINARY_DIR} ${WORK} /usr/lib)
      string(FIND "${text}" "${path}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names ${path}, a path of the machine that built it")
      endif()
    endforeach()
  endforeach()
  run(${configure} -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCE_EXPECTED_VERSION=${VERSION} -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
elseif(USE STREQUAL "add_subdirectory")
  # By default each source is compiled by itself. Here 16 are at once, in a third of the time: the first of them includes
  # all that it uses, and preset dev shows what the others lack. Quickly, since only compiling and linking are in question.
  # The folder is kept for the next time.
  run(${configure} -DCE_SOURCE_DIR=${CE_SOURCE_DIR} -DCE_CUDA_INCLUDE_DIR=${CUDA_INCLUDE_DIR}
      -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=16 "-DCMAKE_CXX_FLAGS=-O0 ${CXX_FLAGS}")
  if(NOT "$ENV{CE_FULL_TESTS}" STREQUAL 1)
    message(STATUS "configured; CE_FULL_TESTS=1 builds it, too")
    return()
  endif()
else()
  message(FATAL_ERROR "USE is '${USE}'; expected find_package or add_subdirectory")
endif()

run(${CMAKE_COMMAND} --build ${WORK}/build --parallel ${JOBS} --target consumer)
expect_version(${WORK}/build/consumer ${WORK}/build/ce.db)

if(USE STREQUAL "find_package")
  file(GLOB command ${WORK}/prefix/bin/ce-tune)
  if(command)
    expect_version(${command} --version)
  elseif(COMMAND_EXPECTED)
    message(FATAL_ERROR "ce-tune was not installed")
  endif()

  # The C interface from a project without a C++ compiler.
  run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/c_consumer -B ${WORK}/c_build -G ${GENERATOR}
      -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCE_EXPECTED_VERSION=${VERSION})
  run(${CMAKE_COMMAND} --build ${WORK}/c_build)
  expect_version(${WORK}/c_build/c_consumer ${WORK}/c_build/ce.db)

  # The same without CMake.
  find_program(pkg_config pkg-config)
  find_program(c_compiler cc)
  if(pkg_config AND c_compiler)
    file(GLOB_RECURSE described ${WORK}/prefix/ce_c.pc)
    cmake_path(GET described PARENT_PATH folder)
    set(ENV{PKG_CONFIG_PATH} ${folder})
    execute_process(COMMAND ${pkg_config} --cflags --libs ce_c OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                    COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags)
    cmake_path(GET folder PARENT_PATH libraries)
    run(${c_compiler} -DCE_EXPECTED_VERSION="${VERSION}" ${CMAKE_CURRENT_LIST_DIR}/c_consumer/main.c
        -o ${WORK}/c_consumer ${flags} -Wl,-rpath,${libraries})
    expect_version(${WORK}/c_consumer ${WORK}/c_consumer.db)
    execute_process(COMMAND ${pkg_config} --modversion ce OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE
                    COMMAND_ERROR_IS_FATAL ANY)
    if(NOT version STREQUAL VERSION)
      message(FATAL_ERROR "ce.pc says version ${version}; expected ${VERSION}")
    endif()
  endif()
endif()
