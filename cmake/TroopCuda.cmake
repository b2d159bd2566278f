# GPU code: <folder>/cuda of these folders. It needs the compiler, the CUDA toolkit and a few
# oracles of kernels/, nothing else; with TROOP_GPU_ONLY nothing else is built. By name:
# x.cu, x.cc   compiled by nvcc for the GPU, and as C++ for the emulated GPU (tests/cuda)
# x_cuda.cu    CUDA only
# x_emulated.cc, emulator.cc   emulator only
foreach(folder kernels nn replay learners)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu
    ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources INCLUDE REGEX "/cuda/")
  list(APPEND troop_cuda_sources ${sources})
endforeach()
set(troop_emulated_sources ${troop_cuda_sources})
list(FILTER troop_cuda_sources EXCLUDE REGEX "(_emulated|/emulator)\\.cc$")
list(FILTER troop_emulated_sources EXCLUDE REGEX "_cuda\\.cu$")
# Their results must not depend on the compiler: no contraction to FMA.
set(troop_exact_sources ${CMAKE_SOURCE_DIR}/kernels/cuda/ops/optimizer_step.cu)

# Sources that gpu_nccl needs of core/, kernels/ and collective/, without libraries of the build
# machine: tests/cuda/plain replaces fmt and spdlog. Every build with tests includes them, so that
# missing dependencies are detected.
foreach(source core/base/buffer core/base/check core/base/philox core/base/status core/base/time
    core/storage/crc32c core/tensor/tensor kernels/simd/cpu_features kernels/elementwise/reduce
    collective/collective collective/op_header collective/transfer_plan collective/engine/engine
    collective/nccl/nccl collective/nccl/nccl_comm collective/nccl/nccl_library
    collective/shared_memory/slab collective/shared_memory/slab_task collective/sim/sim_group
    collective/socket/control_word collective/socket/socket tests/cuda/plain/log)
  list(APPEND troop_plain_sources ${CMAKE_SOURCE_DIR}/${source}.cc ${troop_isa_${source}})
endforeach()
file(GLOB troop_gpu_nccl_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/gpu_nccl*.cc)
function(troop_plain_library)
  troop_source_flags(${troop_plain_sources})
  troop_join_sources(sources plain ${troop_plain_sources})
  add_library(troop_plain STATIC ${sources})
  target_include_directories(troop_plain BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/cuda/plain
    ${CMAKE_SOURCE_DIR})
  target_link_libraries(troop_plain PUBLIC ${CMAKE_DL_LIBS})
endfunction()

# The parity cases (tests/cuda), for GPU and emulator.
file(GLOB troop_parity_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/*.cc)
list(FILTER troop_parity_sources EXCLUDE REGEX "(_test|/gpu_[a-z_]*)\\.cc$")

if(TROOP_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA toolkit not found: building for the CPU alone")
  endif()
endif()
if(CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90a-real)
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # this CMake is older than the toolkit
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

  # The oracles, without the libraries that the rest of kernels/ needs.
  foreach(oracle conv/conv2d_reference linear/linear_reference loss/dqn_loss loss/categorical_loss
      loss/quantile_loss loss/text_loss optim/optimizer_step recurrent/lstm_cell simd/cpu_features
      transformer/dropout transformer/layer_norm_gelu)
    list(APPEND oracles ${CMAKE_SOURCE_DIR}/kernels/${oracle}.cc ${troop_isa_kernels/${oracle}})
  endforeach()
  # Their dependencies in core/, without fmt: no library of the build machine is needed.
  list(APPEND oracles ${CMAKE_SOURCE_DIR}/core/base/check.cc
    ${CMAKE_SOURCE_DIR}/core/base/philox.cc)
  troop_source_flags(${oracles})
  troop_join_sources(oracles oracles ${oracles})
  add_library(troop_oracles STATIC ${oracles})
  target_include_directories(troop_oracles PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_definitions(troop_oracles PUBLIC TROOP_PLAIN_CHECKS)

  set(joined ${troop_cuda_sources})
  set(cases ${troop_parity_sources})
  if(TROOP_CUDA_UNITY)
    list(REMOVE_ITEM joined ${troop_exact_sources})
    troop_join(joined cuda ${joined})
    list(APPEND joined ${troop_exact_sources})
    troop_join(cases gpu_check ${cases})
  endif()
  add_library(troop_cuda STATIC ${joined})
  target_include_directories(troop_cuda PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  set_target_properties(troop_cuda PROPERTIES EXPORT_NAME cuda)
  set_property(GLOBAL APPEND PROPERTY TROOP_FOLDERS cuda)
  target_link_libraries(troop_cuda PUBLIC CUDA::cudart_static CUDA::cublasLt)
  target_compile_options(troop_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall --expt-relaxed-constexpr>)
  set_source_files_properties(${troop_exact_sources} PROPERTIES COMPILE_OPTIONS -fmad=false)

  add_executable(gpu_check ${CMAKE_SOURCE_DIR}/tests/cuda/gpu_check.cc ${cases})
  target_link_libraries(gpu_check PRIVATE troop_cuda troop_oracles)
  add_executable(gpu_bench ${CMAKE_SOURCE_DIR}/bench/gpu_bench.cc
    ${CMAKE_SOURCE_DIR}/bench/gpu_bench_text.cc)
  target_link_libraries(gpu_bench PRIVATE troop_cuda)
  if(NOT TARGET troop_plain)
    troop_plain_library()
  endif()
  add_executable(gpu_nccl ${troop_gpu_nccl_sources})
  target_link_libraries(gpu_nccl PRIVATE troop_plain troop_cuda)
  add_library(gpu_frames MODULE ${CMAKE_SOURCE_DIR}/bench/gpu_frames.cc)
  target_include_directories(gpu_frames PRIVATE ${CMAKE_SOURCE_DIR}/envs/plugin)
  set_target_properties(gpu_frames PROPERTIES PREFIX "")
  # They must run on machines with only CUDA and possibly an older C library.
  foreach(program gpu_check gpu_bench gpu_nccl gpu_frames)
    target_sources(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests/cuda/plain/arc4random.cc)
    target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc)
  endforeach()
endif()
