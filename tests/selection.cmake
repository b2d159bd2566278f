# Which unit tests a preset has: those that find something there that no other preset finds.
# docs/decisions/0018-what-each-preset-tests.md gives the reasons. TROOP_EVERY_TEST has all of them.
#
# asan: all. The other two: regular expressions that match <folder>/<file> without _test.cc.

# dev compiles at -O2 without sanitizers. Its unit tests are of vectorized and otherwise optimized
# arithmetic, of memory that a sanitizer accounts for differently, and the simulator's full hours.
set(troop_dev_tests
  "kernels/.*" "nn/.*" "simulation/.*"
  "envs/(atari/preprocessing|bsuite/catch|classic_control/.*|minatar/.*|vector_env)"
  "paramserver/(codec/.*|shard/(copy_on_write_floats|sync_policy))"
  "replay/(codec/encoded_batch|hostile_tcp|selectors/.*|shards|table/sample)"
  "apps/envtools/env_checker" "fleet/launcher/process_memory" "net/(wire/codec|hostile)")

# tsan: what starts a thread. Under asan a test of another file that starts one fails
# (testing/thread_check.cc).
set(troop_tsan_tests
  "core/(base/(executor|log)|storage/storage)"
  "net/(curve|hostile|network|process|reconnect|wire/shared_memory)"
  "collective/.*"
  "datasets/images/image_source"
  "replay/(codec/(batch_decoder|frame_codec)|hostile_tcp|persistence/(journal|restore)|tables|zmq)"
  "nn/(module|parallel/.*|rank_failure|transformer/transformer_ranks)"
  "paramserver/(digits|service/shard_server|shard/copy_on_write_floats|shard_threads)"
  "envs/vector/threaded_vector_env"
  "learners/(external/external_algorithm|gpu/parallel_copy|mesh)"
  "learners/images/(batch_statistics|image_loader)"
  "learners/(pipeline/stage_runner|supervised/bulk_predictor|sync/hogwild_updater)")

# Tests that start a thread, but are excluded from tsan.
set(troop_tsan_left_out
  "contracts/.*"  # headers: the files that include them are listed
  # The library apps is a seventh of all compilation; but for the HTTP server's, the threads are
  # those of folders that are listed.
  "apps/(monitor/(dashboard_api|http_deferred|http_server)|serving/model_server)"
  "apps/(deploy/predict_file|planner/mesh_planner|selfcheck/sync_check)"
  "learners/images/pipelined_classification"  # its exchanges are those of stage_runner and mesh
  "fleet/launcher/process_memory"
  "cuda/.*")  # the emulated GPU switches stacks, which is not annotated for the thread sanitizer

# troop_select_tests(folder OUT): the *_test.cc of tests/<folder> that this build has.
function(troop_select_tests folder out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
  if(NOT TARGET PkgConfig::cairo)
    list(FILTER sources EXCLUDE REGEX "/plot/cairo/")
  endif()
  if(NOT TROOP_EVERY_TEST AND NOT folder STREQUAL "system")
    set(selected "")
    if(TROOP_SANITIZE STREQUAL "thread")
      set(selected ${troop_tsan_tests})
    elseif(NOT TROOP_SANITIZE)
      set(selected ${troop_dev_tests})
    endif()
    if(selected)
      # One by one: CMake's regular expressions have at most nine groups.
      set(all ${sources})
      set(sources "")
      foreach(pattern IN LISTS selected)
        set(some ${all})
        list(FILTER some INCLUDE REGEX "/tests/(${pattern})_test\\.cc$")
        list(APPEND sources ${some})
      endforeach()
      list(REMOVE_DUPLICATES sources)
    endif()
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
