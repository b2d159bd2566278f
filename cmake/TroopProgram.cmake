# The only executable.
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/apps/main.cc)
  add_executable(troop apps/main.cc)
  target_link_libraries(troop PRIVATE troop::apps)
endif()
