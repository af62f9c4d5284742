# ce_library(HEADERS a.hpp ...): the library, made of every room declared before. The headers, relative to the
# top of the project, are the public ones: they are installed, and they are all that a consumer can include.
function(ce_library)
  cmake_parse_arguments(LIBRARY "" "" "HEADERS" ${ARGN})
  get_property(rooms GLOBAL PROPERTY CE_ROOMS)

  # Objects, not links: a link would put the rooms' names into the installed package.
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(ce ${objects})
  add_library(ce::ce ALIAS ce)
  target_compile_features(ce PUBLIC cxx_std_20)
  target_link_libraries(ce PRIVATE ce::sqlitecpp Boost::context Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(ce PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINKER_LANGUAGE CXX)

  # A consumer that adds this project as a subdirectory sees the installed layout, made of links to the sources.
  set(public ${PROJECT_BINARY_DIR}/public)
  foreach(header IN LISTS LIBRARY_HEADERS)
    cmake_path(GET header PARENT_PATH folder)
    file(MAKE_DIRECTORY ${public}/${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${public}/${header} SYMBOLIC)
  endforeach()
  configure_file(${PROJECT_BINARY_DIR}/generated/ce/version.hpp ${public}/ce/version.hpp COPYONLY)
  target_include_directories(ce INTERFACE
    $<BUILD_INTERFACE:${public}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_property(GLOBAL PROPERTY CE_PUBLIC_HEADERS "${LIBRARY_HEADERS}")
endfunction()
