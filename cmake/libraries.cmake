# ce_find_libraries(MISSING): defines the third-party libraries that a program with a static ce in it must be
# linked with, as imported targets: ce::sqlitecpp, ce::sqlite, Boost::context and Threads::Threads. Both the
# build and, once installed, find_package(ce) call it, so that each machine finds its own. MISSING becomes the
# list of those that are not there. CE_STATIC_DEPENDENCIES asks for archives only.
function(ce_find_libraries missing)
  set(absent "")

  set(THREADS_PREFER_PTHREAD_FLAG ON)
  find_package(Threads QUIET)
  if(NOT TARGET Threads::Threads)
    list(APPEND absent "threads")
  endif()

  set(Boost_USE_STATIC_LIBS ${CE_STATIC_DEPENDENCIES})
  find_package(Boost QUIET CONFIG COMPONENTS context)
  if(NOT TARGET Boost::context)
    list(APPEND absent "Boost.Context (libboost-context-dev)")
  endif()

  # Each kind has variables of its own, so that a build folder can change from one to the other.
  if(CE_STATIC_DEPENDENCIES)
    find_library(CE_SQLITE_ARCHIVE NAMES libsqlite3.a)
    find_library(CE_SQLITECPP_ARCHIVE NAMES libSQLiteCpp.a)
    set(sqlite "${CE_SQLITE_ARCHIVE}")
    set(sqlitecpp "${CE_SQLITECPP_ARCHIVE}")
  else()
    find_library(CE_SQLITE_LIBRARY NAMES sqlite3)
    find_library(CE_SQLITECPP_LIBRARY NAMES SQLiteCpp)
    set(sqlite "${CE_SQLITE_LIBRARY}")
    set(sqlitecpp "${CE_SQLITECPP_LIBRARY}")
  endif()
  mark_as_advanced(CE_SQLITE_ARCHIVE CE_SQLITECPP_ARCHIVE CE_SQLITE_LIBRARY CE_SQLITECPP_LIBRARY)

  if(NOT sqlite)
    list(APPEND absent "SQLite (libsqlite3-dev)")
  elseif(NOT TARGET ce::sqlite)
    add_library(ce::sqlite UNKNOWN IMPORTED)
    set_target_properties(ce::sqlite PROPERTIES
      IMPORTED_LOCATION "${sqlite}"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
  endif()

  if(NOT sqlitecpp)
    list(APPEND absent "SQLiteCpp (libsqlitecpp-dev)")
  elseif(NOT TARGET ce::sqlitecpp)
    add_library(ce::sqlitecpp UNKNOWN IMPORTED)
    set_target_properties(ce::sqlitecpp PROPERTIES
      IMPORTED_LOCATION "${sqlitecpp}"
      INTERFACE_LINK_LIBRARIES "ce::sqlite")
  endif()

  list(JOIN absent ", " absent)
  set(${missing} "${absent}" PARENT_SCOPE)
endfunction()
