include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ce)

get_property(public_headers GLOBAL PROPERTY CE_PUBLIC_HEADERS)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/include/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/generated/ce/version.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ce)

install(TARGETS ce EXPORT ceTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(CE_BUILD_C)
  # In a package of its own: programs that use it need none of the libraries of a static ce.
  install(FILES ${PROJECT_SOURCE_DIR}/include/ce/ce.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ce)
  install(TARGETS ce_c EXPORT ceCTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ceCTargets NAMESPACE ce:: DESTINATION ${package_dir})
endif()
if(CE_BUILD_CLI)
  install(TARGETS ce-tune DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT ceTargets NAMESPACE ce:: DESTINATION ${package_dir})
get_target_property(library_type ce TYPE)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ceConfig.cmake.in ${PROJECT_BINARY_DIR}/ceConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break its callers.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ceConfig.cmake ${PROJECT_BINARY_DIR}/ceConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/libraries.cmake
  DESTINATION ${package_dir})
