# Options, compiler settings, dependencies, and troop_library().

option(TROOP_TESTS "Build the tests" ON)
option(TROOP_BENCHMARKS "Build the benchmark programs" OFF)
set(TROOP_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# No -ffast-math (it deletes NaN checks), no contraction: docs/numerics.md.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(TROOP_SANITIZE)
  add_compile_options(-fsanitize=${TROOP_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TROOP_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(cereal REQUIRED)
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)
# Debian's dnnl-config.cmake asks for OpenCL headers that only its GPU part needs.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
add_library(CLI11::CLI11 INTERFACE IMPORTED)
target_include_directories(CLI11::CLI11 INTERFACE ${CLI11_INCLUDE_DIR})

# troop_library(folder LINK PUBLIC a b PRIVATE c): the static library troop_<folder>, alias
# troop::<folder>, of all <folder>/*.cc. Files named *_avx2.cc, *_avx512.cc and *_avx512bf16.cc are
# compiled for those instruction sets and may only be called behind the run-time check in kernels/.
function(troop_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  if(NOT sources)
    add_library(troop_${name} INTERFACE)
    target_include_directories(troop_${name} INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>)
    add_library(troop::${name} ALIAS troop_${name})
    return()
  endif()
  add_library(troop_${name} STATIC ${sources})
  add_library(troop::${name} ALIAS troop_${name})
  target_include_directories(troop_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/troop>)
  target_link_libraries(troop_${name} ${ARG_LINK} PUBLIC Threads::Threads)
  set_target_properties(troop_${name} PROPERTIES EXPORT_NAME ${name})
  foreach(source IN LISTS sources)
    if(source MATCHES "_avx512bf16\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mfma;-mbmi2")
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mbmi2")
    elseif(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mbmi2")
    endif()
  endforeach()
endfunction()
