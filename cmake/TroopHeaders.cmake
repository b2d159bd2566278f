# The header troop_headers.h: the version and a checksum of the headers that extensions in C++
# include. A shared library that was compiled with other headers is refused (nn/extension.h). The
# same file is the script of that step (cmake -P).

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.24)
  file(STRINGS ${LIST} headers)
  set(all "")
  foreach(header IN LISTS headers)
    file(SHA256 ${header} one)
    string(APPEND all "${one}\n")
  endforeach()
  string(SHA256 sum "${all}")
  string(SUBSTRING ${sum} 0 16 sum)
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// Generated: the version and a checksum of these headers, for nn/extension.h.
#pragma once
#define TROOP_HEADERS \"@VERSION@ headers @sum@\"
")
  return()
endif()

set(headers "")
foreach(folder core kernels net collective datasets replay nn paramserver learners)
  file(GLOB_RECURSE some CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.h)
  list(APPEND headers ${some})
endforeach()
list(SORT headers)
list(JOIN headers "\n" lines)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers.txt CONTENT "${lines}\n")
set(troop_headers ${CMAKE_BINARY_DIR}/headers/troop_headers.h)
add_custom_command(OUTPUT ${troop_headers} VERBATIM
  COMMAND ${CMAKE_COMMAND} -D LIST=${CMAKE_BINARY_DIR}/headers.txt -D OUTPUT=${troop_headers}
    -D VERSION=${PROJECT_VERSION} -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${headers} ${CMAKE_BINARY_DIR}/headers.txt ${CMAKE_CURRENT_LIST_FILE}
  COMMENT "Checksum of the headers")
add_custom_target(troop_headers DEPENDS ${troop_headers})
add_dependencies(troop_nn troop_headers)
target_include_directories(troop_nn PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/headers>)

# A shared library with extensions is compiled with headers alone. The program that loads it
# has the symbols.
add_library(troop_extension INTERFACE)
target_compile_features(troop_extension INTERFACE cxx_std_20)
target_include_directories(troop_extension INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/headers>
  $<INSTALL_INTERFACE:include/troop>
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:cereal::cereal,INTERFACE_INCLUDE_DIRECTORIES>)
add_dependencies(troop_extension troop_headers)
set_target_properties(troop_extension PROPERTIES EXPORT_NAME extension)
add_library(troop::extension ALIAS troop_extension)
install(TARGETS troop_extension EXPORT troopTargets)
install(FILES ${troop_headers} DESTINATION include/troop)
