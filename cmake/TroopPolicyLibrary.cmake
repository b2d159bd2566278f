# libtroop_policy (nn/policy_library/troop_policy.h): a shared and a static library that depend on
# libc and libstdc++ only.

file(GLOB sources CONFIGURE_DEPENDS nn/policy_library/*.cc)
add_library(troop_policy_objects OBJECT ${sources})
target_link_libraries(troop_policy_objects PRIVATE nlohmann_json::nlohmann_json)
target_compile_features(troop_policy_objects PRIVATE cxx_std_20)
target_include_directories(troop_policy_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(troop_policy_objects PROPERTIES POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
# Unlike Troop's own kernels the library promises no equal bits on all processors, so sums may use
# fused multiply-adds.
target_compile_options(troop_policy_objects PRIVATE -ffp-contract=fast)
if(NOT TROOP_SANITIZE)
  target_compile_options(troop_policy_objects PRIVATE -O3)
endif()

add_library(troop_policy SHARED $<TARGET_OBJECTS:troop_policy_objects>)
add_library(troop_policy_static STATIC $<TARGET_OBJECTS:troop_policy_objects>)
foreach(target troop_policy troop_policy_static)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/nn/policy_library>
    $<INSTALL_INTERFACE:include>)
endforeach()
# The version of the interface, TROOP_POLICY_ABI.
set_target_properties(troop_policy PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME policy VERSION 1.0.0
  SOVERSION 1)
set_target_properties(troop_policy_static PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME policy_static
  OUTPUT_NAME troop_policy)
