# Makes the Debian package of a build and looks into it:
#   cmake -D CE_BINARY_DIR=... -D WORK=... -D VERSION=... -P deb.cmake
foreach(program dpkg-deb dpkg-shlibdeps)
  find_program(path_of_${program} ${program})
  if(NOT path_of_${program})
    message(STATUS "${program} is not installed")
    return()
  endif()
endforeach()

file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${CMAKE_CPACK_COMMAND} -G DEB --config ${CE_BINARY_DIR}/CPackConfig.cmake -B ${WORK}
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB package ${WORK}/ce_${VERSION}_*.deb)
foreach(field Package Version Depends)
  execute_process(COMMAND ${path_of_dpkg-deb} --field ${package} ${field} OUTPUT_VARIABLE ${field}
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(NOT Package STREQUAL "ce" OR NOT Version STREQUAL VERSION OR NOT Depends MATCHES "libc6")
  message(FATAL_ERROR "the package says ${Package} ${Version}, which depends on ${Depends}; expected ce ${VERSION} on libc6")
endif()

execute_process(COMMAND ${path_of_dpkg-deb} --extract ${package} ${WORK}/unpacked COMMAND_ERROR_IS_FATAL ANY)
set(prefix ${WORK}/unpacked/usr)
foreach(file bin/ce-tune include/ce/ce.hpp include/ce/ce.h share/man/man1/ce-tune.1 share/zsh/site-functions/_ce-tune
        share/bash-completion/completions/ce-tune share/fish/vendor_completions.d/ce-tune.fish)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "the package lacks ${file}")
  endif()
  file(SIZE ${prefix}/${file} size)
  if(size EQUAL 0)
    message(FATAL_ERROR "${file} is empty")
  endif()
endforeach()
execute_process(COMMAND ${prefix}/bin/ce-tune --version OUTPUT_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT said STREQUAL "ce-tune ${VERSION}")
  message(FATAL_ERROR "the packaged ce-tune says '${said}'")
endif()
