# troop_source_flags(files): compiles files named *_avx2.cc, *_avx512.cc and *_avx512bf16.cc for
# those instruction sets. Their functions may be called only after the run-time check in kernels/.
function(troop_source_flags)
  set(avx2 -mavx2 -mfma -mbmi2)
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mbmi2)
  set(avx512bf16 ${avx512} -mavx512bf16)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "_(avx2|avx512|avx512bf16)\\.cc$")
      set_source_files_properties(${source} PROPERTIES
        COMPILE_OPTIONS "${${CMAKE_MATCH_1}}" SKIP_PRECOMPILE_HEADERS ON)
    endif()
    # These files and their plain variants use GCC's pragmas (`#pragma GCC ivdep`) and warnings.
    if(source MATCHES "_(plain|avx2|avx512|avx512bf16)\\.cc$" AND
       CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        -Wno-unknown-pragmas -Wno-unknown-warning-option -Wno-pass-failed)
    endif()
  endforeach()
endfunction()
