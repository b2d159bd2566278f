# Options, compiler settings, dependencies, and troop_library().

option(TROOP_TESTS "Build the tests" ON)
option(TROOP_EVERY_TEST "Build every unit test, not only those of this preset" OFF)
option(TROOP_TIDY "Register only the source checks, which build nothing" OFF)
option(TROOP_BENCHMARKS "Build the benchmark programs" OFF)
option(TROOP_PCH "Precompile the headers that most library files include" ON)
option(TROOP_TEST_PCH "Precompile headers of the tests" ${TROOP_PCH})
option(TROOP_UNITY "Compile several library files at a time, which saves a third of the time" ON)
option(TROOP_TEST_UNITY "Compile several test files at a time" ${TROOP_UNITY})
option(TROOP_CUDA_UNITY "Compile several GPU files at a time, which may leave CPUs idle" OFF)
option(TROOP_FUZZ "Build the fuzz targets with libFuzzer (needs clang)" OFF)
option(TROOP_PLOTS "Build plots if Cairo is found" ON)
option(TROOP_WHEEL "Build what a Python wheel contains (tools/wheel)" OFF)
option(TROOP_CUDA "Build GPU support if the CUDA toolkit is found" OFF)
option(TROOP_GPU_ONLY "Build only GPU code with its tests and benchmarks" OFF)
set(TROOP_SANITIZE "" CACHE STRING "Value of -fsanitize=: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# ccache rejects precompiled headers unless these checks of macros are relaxed.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  if((TROOP_PCH OR TROOP_TEST_PCH) AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

# The fastest installed linker: a dozen programs link the same static libraries.
include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} TROOP_HAS_${linker})
  if(TROOP_HAS_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()

# No -ffast-math (it removes NaN checks), no contraction: docs/design/numerics.md.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
# GCC's garbage collection starts at 128 MB; starting at 512 MB saves a tenth of the time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:$<$<COMPILE_LANGUAGE:CXX>:--param ggc-min-heapsize=524288>")
endif()
if(TROOP_SANITIZE)
  add_compile_options(-fsanitize=${TROOP_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TROOP_SANITIZE})
  # GCC defines these macros, Clang only from version 22 on.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    if(TROOP_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__)
    elseif(TROOP_SANITIZE STREQUAL "thread")
      add_compile_definitions(__SANITIZE_THREAD__)
    endif()
  endif()
  # With GCC these four checks take as long to compile as all others together. Null pointers are
  # detected by ASan anyway; decoders of external bytes are built with all checks for fuzzing.
  if(TROOP_SANITIZE MATCHES "undefined" AND NOT TROOP_FUZZ)
    add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  endif()
endif()
if(TROOP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(NOT TROOP_GPU_ONLY)
  include(TroopDependencies)
endif()

# One precompiled header for all libraries: headers that nine of ten files include. It has their
# flags; files with instruction-set flags do not use it.
set(troop_pch_headers <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint>
  <cstring> <deque> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional>
  <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
  <fmt/format.h>)
if(TROOP_PCH AND NOT TROOP_GPU_ONLY)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch.cc CONTENT "")
  add_library(troop_pch OBJECT ${CMAKE_BINARY_DIR}/pch.cc)
  target_link_libraries(troop_pch PRIVATE fmt::fmt Threads::Threads)
  target_precompile_headers(troop_pch PRIVATE ${troop_pch_headers})
endif()

include(TroopSourceFlags)
include(TroopIsa)

# troop_join(VARIABLE name files...): returns unity files, each of which includes several of the
# given files (unity_groups.py).
function(troop_join variable name)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/unity)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/unity_groups.py
    ${CMAKE_BINARY_DIR}/unity ${name} ${ARGN}
    OUTPUT_VARIABLE joined COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" joined "${joined}")
  set(${variable} ${joined} PARENT_SCOPE)
  # A new helper in one of the files may change the groups.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
endfunction()

# troop_join_sources(VARIABLE name files...): unity files if TROOP_UNITY is set, else the files
# themselves. Only files with equal flags are joined; never those into which kernels/simd/vec.h is
# copied, nor those that a program with an emulated GPU replaces (tests/cuda/emulated.cmake).
function(troop_join_sources variable name)
  set(result ${ARGN})
  if(TROOP_UNITY)
    set(sources ${ARGN})
    set(apart "_(plain|avx2|avx512|avx512bf16)\\.cc$"
      "|/(gpu_[a-z_]*|batch_uploader|tensor_parallel_comm)\\.cc$")
    string(CONCAT apart ${apart})
    list(FILTER sources EXCLUDE REGEX ${apart})
    list(FILTER result INCLUDE REGEX ${apart})
    set(kinds "")
    foreach(source IN LISTS sources)
      set(kind "")
      foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS)
        get_source_file_property(${property} ${source} ${property})
        string(APPEND kind "${${property}} ")
      endforeach()
      string(SHA1 kind "${kind}")
      list(APPEND kinds ${kind})
      list(APPEND files_${kind} ${source})
    endforeach()
    list(REMOVE_DUPLICATES kinds)
    set(index 0)
    foreach(kind IN LISTS kinds)
      list(GET files_${kind} 0 first)
      troop_join(joined ${name}_${index} ${files_${kind}})
      foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS)
        get_source_file_property(value ${first} ${property})
        if(value)
          set_source_files_properties(${joined} PROPERTIES ${property} "${value}")
        endif()
      endforeach()
      list(APPEND result ${joined})
      math(EXPR index "${index} + 1")
    endforeach()
  endif()
  set(${variable} ${result} PARENT_SCOPE)
endfunction()

# troop_library(folder LINK PUBLIC a b PRIVATE c): the static library troop_<folder>, alias
# troop::<folder>, of all <folder>/*.cc and the sources that troop_isa generated for the folder. A
# folder without sources gives an interface library. COLD: name prefixes of files that no training
# step runs often, or ALL. They are compiled at -O1 (with ALL under sanitizers at -O0): higher
# levels take a third longer to compile without a benefit. EXCLUDE: a regular expression of files
# that this build or library does not have. DIR: the folder, if it is not <folder>.
function(troop_library name)
  cmake_parse_arguments(ARG "" "DIR;EXCLUDE" "LINK;COLD" ${ARGN})
  if(NOT ARG_DIR)
    set(ARG_DIR ${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$|/cuda/")
  list(APPEND sources ${troop_isa_${name}})
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  set(scope PUBLIC)
  if(sources)
    troop_source_flags(${sources})
    if(ARG_COLD AND NOT ARG_COLD STREQUAL "ALL" AND NOT TROOP_SANITIZE)
      list(JOIN ARG_COLD "|" pattern)
      set(cold ${sources})
      list(FILTER cold INCLUDE REGEX "/(${pattern})[a-z_]*\\.cc$")
      set_source_files_properties(${cold} PROPERTIES COMPILE_OPTIONS -O1)
    endif()
    troop_join_sources(sources ${name} ${sources})
    add_library(troop_${name} STATIC ${sources})
    target_link_libraries(troop_${name} ${ARG_LINK} PUBLIC Threads::Threads)
    # GCC accepts a precompiled header of another optimization level, except for -O0.
    set(own_pch NO)
    if(ARG_COLD STREQUAL "ALL" AND TROOP_SANITIZE)
      set(own_pch YES)
      target_compile_options(troop_${name} PRIVATE -O0)
    elseif(ARG_COLD STREQUAL "ALL")
      target_compile_options(troop_${name} PRIVATE -O1)
    endif()
    # Outlined checks compile a sixth faster but run slower: for folders without hot loops.
    if(TROOP_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
        AND name MATCHES "^(actors|collective|datasets|envs|learners|net|paramserver)$")
      target_compile_options(troop_${name} PRIVATE
        "SHELL:--param asan-instrumentation-with-call-threshold=0")
    endif()
    if(TROOP_PCH AND own_pch)
      target_precompile_headers(troop_${name} PRIVATE ${troop_pch_headers})
    elseif(TROOP_PCH)
      target_precompile_headers(troop_${name} REUSE_FROM troop_pch)
    endif()
    if(TROOP_UNITY)
      target_compile_options(troop_${name} PRIVATE
        $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
  else()
    set(scope INTERFACE)
    add_library(troop_${name} INTERFACE)
  endif()
  add_library(troop::${name} ALIAS troop_${name})
  set_target_properties(troop_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(troop_${name} ${scope} cxx_std_20)
  target_include_directories(troop_${name} ${scope}
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/troop>)
  set_property(GLOBAL APPEND PROPERTY TROOP_FOLDERS ${name})
endfunction()
