# ce_c_library(HEADER path OBJECTS ... EXPORTS file): libce_c.so, which shows nothing but the functions of its header,
# whatever the process has loaded beside it. Third-party libraries and the C++ runtime are in it where this machine has
# them as archives; CE_C_SHARED_LIBRARIES becomes the list of those that it loads instead.
include(CheckCXXSourceCompiles)

# Whether a shared library that calls `function` of C can be linked with these options and CE_CHECKED_LIBRARIES.
function(ce_check_shared_library result function)
  set(CMAKE_REQUIRED_LINK_OPTIONS -shared ${ARGN})
  set(CMAKE_REQUIRED_FLAGS -fPIC)
  set(CMAKE_REQUIRED_LIBRARIES "${CE_CHECKED_LIBRARIES}")
  set(CMAKE_REQUIRED_QUIET TRUE)
  check_cxx_source_compiles("extern \"C\" int ${function}(); int ce_probe() { try { return ${function}(); } catch (...) { throw; } }"
    ${result})
endfunction()

function(ce_c_library)
  cmake_parse_arguments(LIBRARY "" "HEADER;EXPORTS" "OBJECTS" ${ARGN})
  get_property(rooms GLOBAL PROPERTY CE_ROOMS)
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  list(APPEND objects ${LIBRARY_OBJECTS})
  add_library(ce_c SHARED ${objects})
  add_library(ce::ce_c ALIAS ce_c)

  find_library(CE_SQLITE_ARCHIVE NAMES libsqlite3.a)
  find_library(CE_SQLITECPP_ARCHIVE NAMES libSQLiteCpp.a)
  find_library(CE_BOOST_CONTEXT_ARCHIVE NAMES libboost_context.a)
  mark_as_advanced(CE_SQLITE_ARCHIVE CE_SQLITECPP_ARCHIVE CE_BOOST_CONTEXT_ARCHIVE)
  set(shared "")
  if(CE_SQLITE_ARCHIVE AND CE_SQLITECPP_ARCHIVE)
    set(CE_CHECKED_LIBRARIES ${CE_SQLITECPP_ARCHIVE} ${CE_SQLITE_ARCHIVE} Threads::Threads ${CMAKE_DL_LIBS} m)
    # Archives for programs will do where nothing of them is seen outside.
    ce_check_shared_library(CE_SQLITE_ARCHIVE_LINKS sqlite3_libversion_number
      LINKER:--version-script=${LIBRARY_EXPORTS})
  endif()
  if(CE_SQLITE_ARCHIVE_LINKS)
    target_link_libraries(ce_c PRIVATE ${CE_SQLITECPP_ARCHIVE} ${CE_SQLITE_ARCHIVE} m)
  else()
    list(APPEND shared SQLite)
    target_link_libraries(ce_c PRIVATE ce::sqlitecpp)
  endif()
  if(CE_BOOST_CONTEXT_ARCHIVE)
    target_link_libraries(ce_c PRIVATE ${CE_BOOST_CONTEXT_ARCHIVE})
  else()
    list(APPEND shared Boost.Context)
    target_link_libraries(ce_c PRIVATE Boost::context)
  endif()
  # Sanitizers look into the C++ runtime that the process has.
  set(CE_CHECKED_LIBRARIES "")
  set(runtime -static-libstdc++ -static-libgcc)
  ce_check_shared_library(CE_CXX_RUNTIME_ARCHIVE_LINKS abs ${runtime})
  if(CE_CXX_RUNTIME_ARCHIVE_LINKS AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(ce_c PRIVATE ${runtime} LINKER:--no-undefined)
  else()
    list(APPEND shared "the C++ runtime")
  endif()
  if(shared)
    list(JOIN shared ", " list)
    message(STATUS "libce_c.so loads at run time, without an archive to link: ${list}")
  endif()

  target_link_libraries(ce_c PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(ce_c PRIVATE LINKER:--version-script=${LIBRARY_EXPORTS})
  set_target_properties(ce_c PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINK_DEPENDS ${LIBRARY_EXPORTS}
    LINKER_LANGUAGE CXX)

  # The folder that consumers of the build see, as if it were installed.
  set(public ${PROJECT_BINARY_DIR}/public)
  file(MAKE_DIRECTORY ${public}/ce)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${LIBRARY_HEADER} ${public}/ce/ce.h SYMBOLIC)
  target_include_directories(ce_c INTERFACE
    $<BUILD_INTERFACE:${public}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set(CE_C_SHARED_LIBRARIES "${shared}" PARENT_SCOPE)
endfunction()
