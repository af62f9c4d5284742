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
  # ce-tune prints these itself, so they are there where the program that was built runs.
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    message(STATUS "ce-tune is for another machine: its manual page and completions are not made")
  else()
    set(help_folder ${PROJECT_BINARY_DIR}/help)
    add_custom_command(OUTPUT ${help_folder}/ce-tune.1 ${help_folder}/ce-tune ${help_folder}/_ce-tune ${help_folder}/ce-tune.fish
      COMMAND ${CMAKE_COMMAND} -E make_directory ${help_folder}
      COMMAND ce-tune man > ${help_folder}/ce-tune.1
      COMMAND ce-tune completion bash > ${help_folder}/ce-tune
      COMMAND ce-tune completion zsh > ${help_folder}/_ce-tune
      COMMAND ce-tune completion fish > ${help_folder}/ce-tune.fish
      VERBATIM)
    add_custom_target(ce_tune_help ALL DEPENDS ${help_folder}/ce-tune.1)
    install(FILES ${help_folder}/ce-tune.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${help_folder}/ce-tune DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${help_folder}/_ce-tune DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${help_folder}/ce-tune.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()
# For builds without CMake: ce_pkg_config(NAME DESCRIPTION LIBRARIES). The file finds its prefix from where it lies.
file(RELATIVE_PATH CE_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
function(ce_pkg_config CE_PC_NAME CE_PC_DESCRIPTION CE_PC_LIBRARIES)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/ce.pc.in ${PROJECT_BINARY_DIR}/${CE_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${CE_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
get_target_property(library_type ce TYPE)
set(below "")
if(library_type STREQUAL "STATIC_LIBRARY")
  set(below " -lSQLiteCpp -lsqlite3 -lboost_context -pthread -ldl -lm")
endif()
ce_pkg_config(ce "Softmax and cross entropy kernels, tuned on the GPU that runs them" "-lce${below}")
if(CE_BUILD_C)
  ce_pkg_config(ce_c "The C interface of ce" "-lce_c")
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT ceTargets NAMESPACE ce:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ceConfig.cmake.in ${PROJECT_BINARY_DIR}/ceConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break its callers.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ceConfig.cmake ${PROJECT_BINARY_DIR}/ceConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/libraries.cmake
  DESTINATION ${package_dir})

# cpack -G DEB: one package of the library, its headers and ce-tune.
set(CPACK_PACKAGE_NAME ce)
set(CPACK_PACKAGE_CONTACT "The ce developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Softmax and cross entropy kernels, tuned on the GPU that runs them")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_GENERATOR DEB)
include(CPack)
