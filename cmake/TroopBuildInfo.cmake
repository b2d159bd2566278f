# Facts about this build for provenance.jsonl. The commit is read at each build, so that it is right
# also when no CMake file changed; an unchanged commit compiles and links nothing. The same file is
# the script of that step (cmake -P).

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.24)
  set(commit "${COMMIT}")
  if(NOT commit)
    # -dirty: tracked files differ from the commit.
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude=*
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    # A source tree without a repository may lie in the repository of another project.
    if(failed OR NOT EXISTS ${SOURCE}/.git)
      set(commit unknown)
    endif()
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"#include \"apps/launch/build_info.h\"

namespace troop {
BuildInfo GetBuildInfo() {
  return {.commit = \"@commit@\",
          .compiler = \"@COMPILER@\",
          .type = \"@TYPE@\",
          .cuda = \"@CUDA@\"};
}
}  // namespace troop
")
  return()
endif()

set(TROOP_COMMIT "" CACHE STRING "Commit of the sources, for a build without their repository")
set(build_info ${CMAKE_BINARY_DIR}/build_info.cc)
add_custom_target(troop_build_info BYPRODUCTS ${build_info} VERBATIM
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${CMAKE_SOURCE_DIR} -D OUTPUT=${build_info}
    -D COMMIT=${TROOP_COMMIT} -D "COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -D TYPE=${CMAKE_BUILD_TYPE} -D CUDA=${CUDAToolkit_VERSION} -P ${CMAKE_CURRENT_LIST_FILE}
  COMMENT "Commit of the sources")
target_sources(troop_apps PRIVATE ${build_info})
add_dependencies(troop_apps troop_build_info)
