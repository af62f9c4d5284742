# ce_library(HEADERS a.hpp ...): the library, made of every room declared before. The headers, relative to
# include/, are the public ones: they are installed, and they are all that a consumer can include.
#
# ce::ce shows the public names alone where it is shared. ce::internals, for the programs of this project, is ce::ce where
# it is static, and else a static library of the same rooms.
function(ce_library)
  cmake_parse_arguments(LIBRARY "" "" "HEADERS" ${ARGN})
  ce_whole_library(ce "")
  add_library(ce::ce ALIAS ce)
  set_target_properties(ce PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  get_target_property(type ce TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    ce_whole_library(ce_internals STATIC)
    add_library(ce::internals ALIAS ce_internals)
  else()
    add_library(ce::internals ALIAS ce)
  endif()

  # A consumer that adds this project as a subdirectory sees the installed layout, made of links to the sources.
  set(public ${PROJECT_BINARY_DIR}/public)
  foreach(header IN LISTS LIBRARY_HEADERS)
    cmake_path(GET header PARENT_PATH folder)
    file(MAKE_DIRECTORY ${public}/${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include/${header} ${public}/${header} SYMBOLIC)
  endforeach()
  configure_file(${PROJECT_BINARY_DIR}/generated/ce/version.hpp ${public}/ce/version.hpp COPYONLY)
  target_include_directories(ce INTERFACE
    $<BUILD_INTERFACE:${public}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(TARGET ce_internals)
    target_include_directories(ce_internals INTERFACE ${public})
  endif()
  set_property(GLOBAL PROPERTY CE_PUBLIC_HEADERS "${LIBRARY_HEADERS}")
endfunction()

# ce_whole_library(NAME STATIC|SHARED|""): all rooms in one library; "": as BUILD_SHARED_LIBS says.
function(ce_whole_library name type)
  get_property(rooms GLOBAL PROPERTY CE_ROOMS)
  # Objects, not links: a link would put the rooms' names into the installed package.
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(${name} ${type} ${objects})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PRIVATE ce::sqlitecpp Boost::context Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    set(exports ${PROJECT_SOURCE_DIR}/ce/exports.map)
    target_link_options(${name} PRIVATE LINKER:--version-script=${exports})
    set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
  endif()
endfunction()
