# ce_room(NAME SOURCES a.cpp ... [LINK target ...]): one room of the house as an object library, ce_room_NAME.
# The library ce::ce is made of all of them.
function(ce_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  add_library(ce_room_${name} OBJECT ${ROOM_SOURCES})
  target_include_directories(ce_room_${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)
  set_target_properties(ce_room_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(ce_room_${name} PUBLIC ${ROOM_LINK} PRIVATE ce_warnings)
  set_property(GLOBAL APPEND PROPERTY CE_ROOMS ce_room_${name})
endfunction()

add_library(ce_warnings INTERFACE)
target_compile_options(ce_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
  $<$<BOOL:${CE_WARNINGS_AS_ERRORS}>:-Werror>
  # No binary names the folder that it was built in.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=
  # In a unity build a source's own names stand before those of the next, and its types count as a header's.
  $<IF:$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<CXX_COMPILER_ID:GNU>>,-Wshadow=local;-Wno-subobject-linkage,-Wshadow>)
