# GPU code on the emulated GPU: the same sources, compiled as C++. The asan build has its unit
# tests, the dev build the program with that GPU, for whole runs.
troop_select_tests(cuda cuda_tests)

set(emulator ${CMAKE_SOURCE_DIR}/kernels/cuda/emulator/emulator.cc)
set(emulated ${troop_emulated_sources})
list(REMOVE_ITEM emulated ${emulator})
troop_join_tests(emulated emulated ${emulated})
set_source_files_properties(${emulated} ${emulator} PROPERTIES LANGUAGE CXX
  SKIP_PRECOMPILE_HEADERS ON)
add_library(troop_cuda_emulated STATIC ${emulator} ${emulated})
target_link_libraries(troop_cuda_emulated PUBLIC troop::kernels)
target_compile_options(troop_cuda_emulated PRIVATE -O1)  # it dominates the test time
# An empty TROOP_UNROLL confuses the indentation.
target_compile_options(troop_cuda_emulated PRIVATE
  $<$<CXX_COMPILER_ID:Clang>:-Wno-misleading-indentation>)
# A GPU refuses unaligned vector accesses, which a CPU performs.
if(TROOP_SANITIZE MATCHES "undefined")
  target_compile_options(troop_cuda_emulated PRIVATE -fsanitize=alignment)
endif()
set_source_files_properties(${emulator} PROPERTIES COMPILE_OPTIONS -O2)
target_include_directories(troop_cuda_emulated PUBLIC ${CMAKE_SOURCE_DIR})

set(device_sources)
foreach(source actors/inference/gpu_policy learners/gpu/batch_uploader learners/gpu/gpu_algorithm
    learners/gpu/gpu_replay learners/gpu/tensor_parallel_comm learners/rl/gpu_dqn
    learners/supervised/gpu_profile learners/supervised/gpu_supervised
    learners/supervised/gpu_text)
  list(APPEND device_sources ${CMAKE_SOURCE_DIR}/${source}.cc)
endforeach()

if(cuda_tests)
  set(oracle ${CMAKE_CURRENT_SOURCE_DIR}/cuda/text_oracle.cc)
  set(cases ${troop_parity_sources})
  list(REMOVE_ITEM cases ${oracle})
  troop_join_tests(cases parity ${cases})
  add_library(troop_parity STATIC ${oracle} ${cases})
  target_link_libraries(troop_parity PUBLIC troop_cuda_emulated)
  target_compile_options(troop_parity PRIVATE -O1)
  # The plain reference loops take a third of the time of the text tests.
  set(plain_loops -O3)
  if(TROOP_SANITIZE MATCHES "address")
    list(APPEND plain_loops -fno-sanitize=address)
  endif()
  set_source_files_properties(${oracle} PROPERTIES COMPILE_OPTIONS "${plain_loops}")
  troop_test_program(cuda unit troop_parity)
  add_executable(gpu_check_emulated cuda/gpu_check.cc)
  target_link_libraries(gpu_check_emulated PRIVATE troop_parity)
  add_dependencies(unit_tests gpu_check_emulated)
  add_test(NAME cuda.gpu_check COMMAND gpu_check_emulated Optimizer)
  # The tests of a real NCCL, over the simulated one; and that they detect errors.
  add_executable(gpu_nccl_emulated ${troop_gpu_nccl_sources})
  target_link_libraries(gpu_nccl_emulated PRIVATE troop_cuda_emulated troop::collective)
  add_dependencies(gpu_nccl_emulated troop_nccl_sim)
  add_dependencies(unit_tests gpu_nccl_emulated)
  foreach(what holds refused wrong hangs absent)
    add_test(NAME cuda.gpu_nccl_${what} COMMAND python3
      ${CMAKE_CURRENT_SOURCE_DIR}/device/gpu_nccl_test.py $<TARGET_FILE:gpu_nccl_emulated>
      $<TARGET_FILE:troop_nccl_sim> ${what})
    list(APPEND cuda_programs cuda.gpu_nccl_${what})
  endforeach()
  set_tests_properties(cuda.gpu_check ${cuda_programs} PROPERTIES TIMEOUT 120 LABELS unit)

  # DQN on the device: all tests of the CPU version, except those with thousands of updates; the
  # policy, and text models.
  file(GLOB device_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/device/*_test.cc)
  troop_join_tests(device_tests device learners/rl/dqn_test.cc
    learners/supervised/text_evaluator_test.cc learners/supervised/supervised_test.cc
    ${device_tests})
  add_executable(device_test ${device_tests} ${device_sources})
  target_compile_definitions(device_test PRIVATE TROOP_HAS_CUDA
    TROOP_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TROOP_NCCL_SIM="$<TARGET_FILE:troop_nccl_sim>")
  add_dependencies(device_test troop_nccl_sim)
  target_include_directories(device_test PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(device_test PRIVATE troop_cuda_emulated troop::actors troop::learners
    GTest::gmock GTest::gtest_main)
  add_dependencies(unit_tests device_test)
  string(JOIN ":" too_long SupervisedTest.FiftyUpdates* SupervisedTest.Recomputed*
    SupervisedTest.Bf16* SupervisedTest.DataParallel* SupervisedTest.GroupRounds*
    SupervisedTest.EachReview* SupervisedTest.PreparedBatches* SupervisedTest.Resumes*
    SupervisedTest.DropoutDiffers* SupervisedTest.WordDropout*
    ReviewTrialTest.EvaluatesManyReviews*)
  gtest_discover_tests(device_test DISCOVERY_TIMEOUT 120 TEST_PREFIX device.
    TEST_FILTER "-DqnTest.Learns*:${too_long}" PROPERTIES TIMEOUT 120 LABELS unit)
  # All of them on a real GPU (docs/guide/gpu.md). The NCCL tests stay with the simulated one.
  if(TARGET troop_cuda)
    add_executable(device_test_gpu EXCLUDE_FROM_ALL ${device_tests})
    target_compile_definitions(device_test_gpu PRIVATE TROOP_HAS_CUDA
      TROOP_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TROOP_NCCL_SIM="$<TARGET_FILE:troop_nccl_sim>")
    target_include_directories(device_test_gpu PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(device_test_gpu PRIVATE troop::actors troop::learners GTest::gmock
      GTest::gtest_main)
  endif()
endif()

if(TROOP_SANITIZE)
  return()
endif()
# Checks that the sources of gpu_nccl for machines with only a compiler have no other dependencies.
if(NOT TARGET troop_plain)
  troop_plain_library()
  set_target_properties(troop_plain PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
add_library(troop_plain_alone MODULE cuda/plain/arc4random.cc)
target_link_libraries(troop_plain_alone PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,troop_plain>)
target_link_options(troop_plain_alone PRIVATE -Wl,-z,defs)
set_target_properties(troop_plain_alone PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_dependencies(unit_tests troop_plain_alone)
# It must compile; measurements on the emulator are meaningless.
add_executable(gpu_bench_emulated ${CMAKE_SOURCE_DIR}/bench/gpu_bench.cc
  ${CMAKE_SOURCE_DIR}/bench/gpu_bench_text.cc)
target_link_libraries(gpu_bench_emulated PRIVATE troop_cuda_emulated)
add_dependencies(unit_tests gpu_bench_emulated)

if(TARGET troop)
  # Without plots, as in tools/gpu-bundle: this file replaces the one that needs Cairo, and the
  # linker leaves out libraries that nothing needs.
  if(TARGET PkgConfig::cairo)
    list(APPEND device_sources ${CMAKE_SOURCE_DIR}/core/graphics/plot/no_cairo.cc)
  endif()
  add_executable(troop_emulated ${CMAKE_SOURCE_DIR}/apps/main.cc ${device_sources})
  target_compile_definitions(troop_emulated PRIVATE TROOP_HAS_CUDA)
  target_include_directories(troop_emulated PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(troop_emulated PRIVATE troop_cuda_emulated troop::apps)
  add_dependencies(unit_tests troop_emulated)
  add_dependencies(troop_emulated troop_nccl_sim)
  # RPATH as in tools/gpu-bundle: the program finds the libraries next to it, and their
  # dependencies.
  set_target_properties(troop_emulated PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(troop_emulated PRIVATE -Wl,--disable-new-dtags -Wl,--as-needed)
  foreach(what serial killed lost learners reviews parts)
    add_test(NAME device.run_${what}
      COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/device/run_test.py
      $<TARGET_FILE:troop_emulated> ${CMAKE_SOURCE_DIR}/configs/apex_cartpole.toml ${what}
      $<TARGET_FILE:troop_nccl_sim>)
    set_tests_properties(device.run_${what} PROPERTIES TIMEOUT 300 LABELS unit COST 100)
  endforeach()
  # The row of bench/gpu that learns from the replay service, small enough for the emulator.
  add_dependencies(troop_emulated troop_test_plugins)
  add_test(NAME device.gpu_service COMMAND python3
    ${CMAKE_CURRENT_SOURCE_DIR}/device/gpu_service_test.py $<TARGET_FILE:troop_emulated>
    $<TARGET_FILE:troop_plugin_frames>)
  set_tests_properties(device.gpu_service PROPERTIES TIMEOUT 120 LABELS unit)
endif()
