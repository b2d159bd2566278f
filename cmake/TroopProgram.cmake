# The only executable. Shared libraries with extensions (nn/extension.h) link nothing of Troop: the
# program exports its symbols, and has the whole of the libraries whose headers they include.
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/apps/main.cc)
  add_executable(troop apps/main.cc)
  target_link_libraries(troop PRIVATE troop::apps)
  set_target_properties(troop PROPERTIES ENABLE_EXPORTS ON)
  set(whole "")
  foreach(folder core kernels net collective datasets replay nn paramserver learners)
    list(APPEND whole $<TARGET_FILE:troop_${folder}>)
  endforeach()
  target_link_options(troop PRIVATE LINKER:--whole-archive ${whole} LINKER:--no-whole-archive)
endif()
